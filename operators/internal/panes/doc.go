// Package panes says how event time is cut into windows and panes, and counts panes by their ends.
package panes
