// Package local runs all processes of a cluster on this machine (tailrace up): it chooses their
// addresses, starts them in order, waits until they serve, and stops them.
package local
