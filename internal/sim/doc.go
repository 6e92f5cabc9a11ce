// Package sim plays a cluster from a seed: the cores of sequencers, shards and
// controller, with clients, over a virtual clock, a network that loses, delays,
// reorders, repeats and partitions, and disks that lose what was not synced. There is
// no goroutine and no real time in it: a seed is a run, and the same seed is the same
// run again.
//
//	World ── clock, network, faults
//	  ├── sequencer: sequencer/replica on a vfs.Mem, sequencer/controller
//	  ├── node:      storage.Replica a shard, frames on a disk
//	  ├── writer:    numbers, home shard, resolve, instances
//	  └── checkers:  truth.go
//
// What stands around the cores here is not what stands around them in the servers
// (loops, files, sockets): those are played against real processes in
// cmd/tailrace/faulttest. The simulator is for the protocol: the interleavings of
// docs and papers, and those that nobody has thought of.
//
// Bugs are pitfalls that can be put back in; a test shows that each is found.
package sim
