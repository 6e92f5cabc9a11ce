// Package cli is what the programs have in common: flags that are also environment
// variables and lines of a file, sizes, and errors that are the caller's to put right.
package cli
