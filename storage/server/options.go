package server

import (
	"cmp"
	"log/slog"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Options of a storage node.
type Options struct {
	// Addr is where others reach it, and its name for ever: the metalog and the
	// data directory hold it.
	Addr string
	// Sequencers are the addresses of all sequencers.
	Sequencers []string
	FS         vfs.FS
	Dir        string
	// Dialer reaches sequencers and other nodes.
	Dialer transport.Dialer
	// Fsync says when a group counts as held: "interval" (default) when it is with
	// the operating system, which is made durable every FsyncInterval (default
	// 100 ms); "always" when it is on disk.
	Fsync         string
	FsyncInterval time.Duration
	// SegmentBytes is how long a segment's file becomes; default 64 MiB.
	SegmentBytes int64
	// ReserveBytes is how much of the disk is to stay free: with less, appends are refused
	// with ErrReadOnly, and trims pass. Default 1 GiB, at most a twentieth of the disk;
	// negative: none.
	ReserveBytes int64
	// ScrubRate is how much of the closed segments is read in a second to find damage, in
	// bytes; default: as much as makes a full disk's pass last a week, at least 1 MiB;
	// negative: nothing. ScrubPause is from the end of a pass to the next; default 10 s.
	ScrubRate  int64
	ScrubPause time.Duration
	// Memory is the budget of the process, in bytes, default 512 MiB: an eighth
	// of it for the newest part of all shards together, an eighth for readers'
	// queues; for each shard that is open here a sixty-fourth for what waits for the
	// disk, and, where it is primary, a sixteenth for what waits for backups. One
	// group is always let through, however large.
	Memory int64
	// ClientBytes is how many bytes of records a client may have in flight to a shard
	// (default 256 MiB), ClientTags how many tags its cursors here may follow together
	// (default 1 000 000); below 0: any.
	ClientBytes int64
	ClientTags  int
	// CheckpointInterval is how often a replica writes down where it is; default
	// 1 s.
	CheckpointInterval time.Duration
	// Zone is the failure domain that the node is in (a rack, an availability zone);
	// replicas are spread over zones. Empty: none.
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

// ballastBytes is what is kept to be given up on a full disk, for what must be written so
// that segments can be deleted: the table and the checkpoints.
func (o *Options) ballastBytes() int64 { return max(min(8<<20, o.SegmentBytes), 256<<10) }

func (o *Options) cacheBytes() int64   { return o.Memory / 8 }
func (o *Options) readerBytes() int64  { return o.Memory / 8 }
func (o *Options) queueBytes() int64   { return o.Memory / 64 }
func (o *Options) backlogBytes() int64 { return o.Memory / 16 }
