// Package panes computes the windows and panes of event time, and counts panes by their ends.
package panes
