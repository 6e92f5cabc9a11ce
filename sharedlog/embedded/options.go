package embedded

import (
	"cmp"
	"log/slog"
	"time"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// Fsync says when an append counts as durable.
type Fsync string

// The Fsync settings. With all of them, appends survive the end of the process, also by SIGKILL:
// every group is written to the operating system before it is acknowledged. They differ in what a
// power cut can lose.
const (
	// FsyncAlways: an acknowledged group is on disk. Waiting groups share one fdatasync (group
	// commit).
	FsyncAlways Fsync = "always"
	// FsyncInterval: a power cut can lose the last Options.FsyncInterval plus the duration of an
	// fdatasync. The next Open then ends the log at a consistent place and logs it.
	FsyncInterval Fsync = "interval"
	// FsyncNever: like FsyncInterval, but a power cut can lose everything after the last closed
	// segment that the operating system has not written by itself.
	FsyncNever Fsync = "never"
)

// Options of Open. The zero value suits a server.
type Options struct {
	// Fsync says when an append counts as durable; default FsyncInterval.
	Fsync Fsync
	// FsyncInterval is the time between two calls of fdatasync with Fsync = FsyncInterval; default
	// 100 ms. With a shorter interval a power cut loses less, and the disk works more.
	FsyncInterval time.Duration
	// SegmentBytes is the size at which a segment file is full; default 64 MiB.
	SegmentBytes int64
	// CacheBytes is how much of the newest part of the log stays in memory; default 128 MiB.
	// Readers that are further behind read from disk.
	CacheBytes int64
	// ReaderBytes bounds the record data in the queues of all readers together; default 128 MiB.
	// Above it, readers that are behind read through the index later, like a reader that has used
	// up its credit.
	ReaderBytes int64
	// QueueBytes bounds the bytes that wait for the disk; above it Append waits; default 32 MiB.
	// One group is always accepted.
	QueueBytes int64
	// ReserveBytes is the free space of the disk below which appends are refused with ErrReadOnly;
	// trims still pass. Default 1 GiB, but at most a twentieth of the disk; negative: none.
	ReserveBytes int64
	// ScrubRate is how many bytes of closed segments are read in a second to find damage, which is
	// logged. Default: the rate at which one pass over a full disk takes a week, at least 1 MiB;
	// negative: no scrubbing.
	ScrubRate int64
	// FS is the file system; default vfs.OS.
	FS vfs.FS
	// Logger logs what an operator should know, for example that a power cut ended the order or
	// that the log failed. Default: slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	o.Fsync = cmp.Or(o.Fsync, FsyncInterval)
	o.FsyncInterval = cmp.Or(o.FsyncInterval, 100*time.Millisecond)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.CacheBytes = cmp.Or(o.CacheBytes, 128<<20)
	o.ReaderBytes = cmp.Or(o.ReaderBytes, 128<<20)
	o.QueueBytes = cmp.Or(o.QueueBytes, 32<<20)
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch o.Fsync {
	case FsyncAlways, FsyncInterval, FsyncNever:
	default:
		return o, sharedlog.Errorf(sharedlog.KindInvalid, "fsync %q: use always, interval or never", o.Fsync)
	}
	if o.FsyncInterval < 0 || o.SegmentBytes < 0 || o.CacheBytes < 0 || o.ReaderBytes < 0 || o.QueueBytes < 0 {
		return o, sharedlog.Errorf(sharedlog.KindInvalid, "negative size or interval")
	}
	return o, nil
}
