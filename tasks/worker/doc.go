// Package worker makes a program a worker: a process that runs tasks of jobs, as the
// cluster's task manager says. Any program that can build its jobs' plans can be one:
//
//	var o worker.Options
//	o.Flags(flags)                      // --log, --name, --stage, …
//	o.Program, o.Build = "wordcount", build
//	err := worker.Run(ctx, o)
//
// It needs to know the sequencers' addresses only; where etcd is stands in the log. It
// registers under a lease, follows etcd for what it is to run, and tells the manager
// ten times a second how that goes. While etcd or the manager are gone, what runs runs
// on; a task that another instance has replaced stops itself, because its commits are
// refused.
//
// When the context of Run ends, the tasks commit what they have done and end, and the
// manager gives them to others at once.
package worker
