// Package meta keeps in etcd the jobs of a cluster and which worker runs what. It is never on the
// path of a record: while etcd is unavailable, running tasks continue.
//
//	/tailrace/<cluster>/
//	  cluster                      Cluster     once, by the first manager
//	  job/<name>                   Job         by the client that submits or stops it
//	  state/<name>                 State       by the leading manager
//	  task/<name>/<stage>/<task>   Assignment  by the leading manager
//	  worker/<name>                Worker      by the worker, under its lease
//	  deleted/<id>                 Deleted     by the client that deletes the job, until the leading manager has removed what the log has of it
//	  manager/…                    Manager     election (concurrency.Election)
//
// All values are JSON. Each key has one kind of writer, so no writer needs to merge.
//
// # Rules
//
//  1. A manager's writes are conditional on its election key (Leader.Write): after it is
//     deposed, they fail.
//  2. A lease that has expired means "look", not "stop" (architecture §2): it results in
//     a View without the worker, and the manager decides what that means.
//  3. An assignment in etcd is a placement, not ownership: the log says which key groups
//     a task owns (pitfall T7), and the instance in the log's metadata says which process
//     is the task.
//  4. An etcd without the Cluster record, or with another one than before, is not
//     trusted: it was emptied, or belongs to another cluster.
package meta
