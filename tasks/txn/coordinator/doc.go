// Package coordinator runs the transactions of tasks (package txn) on a log: one Machine
// for each task that has asked here, begun by setting the metadata key that says who
// coordinates it, and dropped at the first append that is not acknowledged, whatever the
// reason. Whoever is asked next takes over, from the log.
//
//	task -- Call --> Service --> Machine --> appends, all under the key's condition
//	                    ^                        |
//	                    +------ acknowledged ----+
//
// A Service is in the task's process (embedded log) or in that of a storage node
// (Handle); Cluster is the way from a task to the latter.
package coordinator
