// Package faulttest plays a cluster of real processes against what happens to
// processes: SIGKILL, SIGSTOP, restarts with and without data, broken links. It has
// tests only.
package faulttest
