// Package build says which build of the programs this is: the release's stamp if there
// is one, and what the Go command has written into the binary.
package build
