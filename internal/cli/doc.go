// Package cli holds what the programs share: flags that can also be set by environment variables
// and in a file, sizes, and errors that the caller must fix.
package cli
