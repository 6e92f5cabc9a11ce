package server

import (
	"cmp"
	"log/slog"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Options configures a storage node.
type Options struct {
	// Addr is the address at which others reach the node, and its permanent name: the metalog and
	// the data directory contain it.
	Addr string
	// Sequencers are the addresses of all sequencers.
	Sequencers []string
	FS         vfs.FS
	Dir        string
	// Dialer connects to sequencers and other nodes.
	Dialer transport.Dialer
	// Fsync determines when a group counts as held: "interval" (default) when the operating system
	// has it, which is synced every FsyncInterval (default 100 ms); "always" when it is on disk.
	Fsync         string
	FsyncInterval time.Duration
	// SegmentBytes is the size of a segment's file; default 64 MiB.
	SegmentBytes int64
	// ReserveBytes is how much of the disk must stay free: with less, appends are refused with
	// ErrReadOnly, and trims pass. Default 1 GiB, at most a twentieth of the disk; negative: none.
	ReserveBytes int64
	// ScrubRate is how many bytes of closed segments per second are read to find damage. The
	// default makes a pass over a full disk take a week, and is at least 1 MiB; negative: no
	// scrubbing. ScrubPause is the time from the end of a pass to the next; default 10 s.
	ScrubRate  int64
	ScrubPause time.Duration
	// Memory is the memory budget of the process in bytes, default 512 MiB: an eighth for the
	// newest records of all shards together, an eighth for readers' queues; for each shard that is
	// open here a sixty-fourth for groups that wait for the disk, and, where this node is the
	// primary, a sixteenth for groups that wait for backups. A single group is always admitted,
	// however large.
	Memory int64
	// ClientBytes is how many bytes of records a client may have in flight to a shard (default 256
	// MiB). ClientTags is how many tags the cursors of a client on this node may follow together
	// (default 1 000 000). Negative: no limit.
	ClientBytes int64
	ClientTags  int
	// CheckpointInterval is how often a replica writes a checkpoint; default 1 s.
	CheckpointInterval time.Duration
	// Zone is the failure domain of the node (a rack, an availability zone); replicas are spread
	// over zones. Empty: none.
	Zone    string
	Cluster string
	Version string
	Logger  *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	o.Fsync = cmp.Or(o.Fsync, "interval")
	o.FsyncInterval = cmp.Or(o.FsyncInterval, 100*time.Millisecond)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.ScrubPause = cmp.Or(o.ScrubPause, 10*time.Second)
	o.Memory = cmp.Or(o.Memory, 512<<20)
	o.ClientBytes = cmp.Or(o.ClientBytes, 256<<20)
	o.ClientTags = cmp.Or(o.ClientTags, 1_000_000)
	o.CheckpointInterval = cmp.Or(o.CheckpointInterval, time.Second)
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Fsync != "always" && o.Fsync != "interval":
		return o, sharedlog.Errorf(sharedlog.KindInvalid, "fsync %q: use always or interval", o.Fsync)
	case o.Addr == "":
		return o, sharedlog.Errorf(sharedlog.KindInvalid, "a storage node needs the address at which others reach it")
	case len(o.Sequencers) == 0:
		return o, sharedlog.Errorf(sharedlog.KindInvalid, "a storage node needs the addresses of the sequencers")
	}
	return o, nil
}

// ballastBytes is the size of the ballast. On a full disk it is freed for the files that must be
// written before segments can be deleted: the table and the checkpoints.
func (o *Options) ballastBytes() int64 { return max(min(8<<20, o.SegmentBytes), 256<<10) }

func (o *Options) cacheBytes() int64   { return o.Memory / 8 }
func (o *Options) readerBytes() int64  { return o.Memory / 8 }
func (o *Options) queueBytes() int64   { return o.Memory / 64 }
func (o *Options) backlogBytes() int64 { return o.Memory / 16 }
