// Package build identifies the build of the running program: by the release's stamp if there is
// one, and by what the Go command has written into the binary.
package build
