// Package driver runs NEXMark's queries on a log: to their end over a given input
// (Run), or for a time over generated events while it measures (Bench). It is told
// everything by its Settings and prints nothing but through what it is given, so
// that the command line stays thin and tests can call it.
package driver
