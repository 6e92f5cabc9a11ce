// Package coordinator runs the transactions of tasks (package txn) on a log: one Machine for each
// task that has sent a request to this process. The service takes a task over by setting the
// metadata key that names its coordinator, and drops it at the first append that is not
// acknowledged, whatever the reason. The next coordinator that is asked takes over, from the log.
//
//	task -- Call --> Service --> Machine --> appends, all under the key's condition
//	                    ^                        |
//	                    +------ acknowledged ----+
//
// A Service is in the task's process (embedded log) or in that of a storage node (Handle); a task
// reaches the latter through Cluster.
package coordinator
