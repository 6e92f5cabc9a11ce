// Package connect is the contract of the sources and sinks of a job. Programs use its names in
// package operators. The packages below it are sources and sinks.
package connect
