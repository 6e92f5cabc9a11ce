// Package leader is a storage node's link to the leader of the sequencers: the node reports what it
// Holds and how its replicas are, and the leader orders and places shards from that.
package leader
