// Package jobs lets programs and users submit, stop, await and inspect the jobs of a cluster. It
// writes the requests into etcd; the task manager carries them out.
package jobs
