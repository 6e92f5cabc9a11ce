// Package jobs is what programs and people do with the jobs of a cluster: submit them,
// stop them, wait for them, see how they are. It writes what is wanted into etcd; the
// task manager does it.
package jobs
