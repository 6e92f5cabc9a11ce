// Package probe lets others look into a process over HTTP: is it alive, is it ready,
// what are its numbers, where does its time go.
package probe
