// Package driver runs workloads (package workload) on a log: to their end over a given input (Run), or for a
// time over generated events while it measures (Bench). Settings hold every input, and results
// leave only through return values and callbacks, so the command line stays thin and tests can call
// the package.
package driver
