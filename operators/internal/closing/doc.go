// Package closing closes windows as event time advances: Clock those of a table of panes (state.PaneTable), and
// Cursors say, for each key group, up to which windows have closed.
package closing
