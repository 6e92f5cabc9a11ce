package session

import (
	"sync/atomic"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage/delivery"
)

// Replica is what readers see of a replica of a shard.
type Replica struct {
	Shard uint32
	Hub   *delivery.Hub
	// Describe returns the metalog's description of the shard.
	Describe func() *logpb.Shard
	// Stale reports whether the replica waits for a copy: it shows nothing until then.
	Stale func() bool

	// Lost is the LSN from which a full replica shows nothing, because records were given up; 0:
	// none were.
	Lost atomic.Uint64
	// Hung is true while the replica's turns do not complete.
	Hung atomic.Bool
	// Lacks, if not nil, says why the missing end of a sealed shard cannot be fetched: no other
	// replica has it.
	Lacks atomic.Pointer[error]
}

// LostFrom returns the LSN from which records of the shard were given up, 0 if none were or if it
// is not known yet.
func (r *Replica) LostFrom() sharedlog.LSN { return sharedlog.LSN(r.Lost.Load()) }

// ErrLost is the error for readers that reach the lost records.
func (r *Replica) ErrLost(from sharedlog.LSN) error {
	sh := r.Describe()
	return sharedlog.Lost(r.Shard, sh.GetLost(), from, sharedlog.LSN(sh.GetSealedAt()))
}
