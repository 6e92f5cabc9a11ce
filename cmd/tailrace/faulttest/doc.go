// Package faulttest exposes a cluster of real processes to process faults: SIGKILL, SIGSTOP,
// restarts with and without data, broken links. It has tests only.
package faulttest
