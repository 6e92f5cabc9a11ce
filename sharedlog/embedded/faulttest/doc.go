// Package faulttest holds only tests: what the embedded log keeps when its process is killed with
// SIGKILL, when the power fails (internal/vfs.Mem), and when the disk is full.
package faulttest
