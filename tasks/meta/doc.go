// Package meta keeps in etcd what a cluster's jobs are and who runs what. It is never
// on the way of a record: while etcd is gone, running tasks go on.
//
//	/tailrace/<cluster>/
//	  cluster                      Cluster     once, by the first manager
//	  job/<name>                   Job         by whoever submits and stops it
//	  state/<name>                 State       by the leading manager
//	  task/<name>/<stage>/<task>   Assignment  by the leading manager
//	  worker/<name>                Worker      by the worker, under its lease
//	  manager/…                    Manager     election (concurrency.Election)
//
// All values are JSON. Each key has one kind of writer, so nobody needs to merge.
//
// # Rules
//
//  1. What a manager writes is conditional on its election key (Leader.Write): a
//     deposed one writes nothing.
//  2. A lease that has expired means "look", not "stop" (architecture §2): it is told
//     as a View without the worker, and what that means is decided elsewhere.
//  3. What etcd says about tasks is a placement, not ownership: which key groups a
//     task owns is in the log (pitfall T7), and who is the task is a matter of the
//     instance in the log's metadata.
//  4. An etcd without the Cluster record, or with another one than before, is not
//     believed: it was emptied, or is somebody else's.
package meta
