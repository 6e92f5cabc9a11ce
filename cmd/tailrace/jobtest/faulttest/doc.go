// Package faulttest has tests only: jobs on a cluster of real processes, which are killed, stopped
// and disconnected while they run. The answers are those of an undisturbed run.
package faulttest
