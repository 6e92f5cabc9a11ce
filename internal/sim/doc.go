// Package sim simulates a cluster from a seed: the cores of sequencers, shards and controller, with
// clients, on a virtual clock, a network that loses, delays, reorders, repeats and partitions
// messages, and disks that lose what was not synced. It uses no goroutines and no real time: the
// same seed always gives the same run.
//
//	World ── clock, network, faults
//	  ├── sequencer: sequencer/replica on a vfs.Mem, sequencer/controller
//	  ├── node:      storage.Replica a shard, frames on a disk
//	  ├── writer:    numbers, home shard, resolve, instances
//	  └── checkers:  truth.go
//
// The code around the cores (loops, files, sockets) is not that of the servers, which
// cmd/tailrace/faulttest tests in real processes. The simulator tests the protocol: the
// interleavings known from documents and papers, and others that are not known.
//
// Bugs are pitfalls that a run can put back in; a test shows that each is found.
package sim
