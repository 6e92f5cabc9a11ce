// Package jobtest has tests only: jobs on a cluster of real processes, and the commands about them.
// Package faulttest has those whose processes are killed, stopped and disconnected; the two are
// packages of their own so that go test runs them at the same time.
package jobtest
