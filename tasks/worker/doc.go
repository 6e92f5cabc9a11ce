// Package worker turns a program into a worker: a process that runs the tasks that the cluster's
// task manager assigns to it. Any program that can build its jobs' plans can be one:
//
//	var o worker.Options
//	o.Flags(flags)                      // --log, --name, --stage, …
//	o.Program, o.Build = "wordcount", build
//	err := worker.Run(ctx, o)
//
// It needs only the addresses of the sequencers; the log has the addresses of etcd. It registers
// under a lease, follows its assignments in etcd, and reports the state of its tasks to the manager
// ten times a second. While etcd or the manager is unavailable, running tasks continue; a task that
// another instance has replaced stops itself, because its commits are refused.
//
// When the context of Run ends, the tasks commit what they have done and end, and the manager
// assigns them to other workers at once.
package worker
