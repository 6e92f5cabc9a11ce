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

// The settings. All of them survive the end of the process, by SIGKILL too:
// every group is with the operating system before it is acknowledged. They
// differ in what a power cut may take.
const (
	// FsyncAlways: an acknowledged group is on disk. Groups that wait share
	// one fdatasync (group commit).
	FsyncAlways Fsync = "always"
	// FsyncInterval: a power cut may take the last FsyncInterval (and the
	// duration of an fdatasync); the log then ends at a consistent place and
	// says so at the next start.
	FsyncInterval Fsync = "interval"
	// FsyncNever: as interval, but whatever the operating system has not
	// written by itself, up to the last closed segment, may be gone.
	FsyncNever Fsync = "never"
)

// Options of Open. The zero value is right for a server.
type Options struct {
	// Fsync is when an append counts as durable; default FsyncInterval.
	Fsync Fsync
	// FsyncInterval is how long data waits for its fdatasync under
	// FsyncInterval; default 100 ms. Shorter: a power cut takes less, and the
	// disk works more.
	FsyncInterval time.Duration
	// SegmentBytes is how long a segment's file becomes; default 64 MiB.
	SegmentBytes int64
	// CacheBytes is how much of the newest part of the log stays in memory;
	// default 128 MiB. Readers behind it read the disk.
	CacheBytes int64
	// ReaderBytes is how much record data may wait in the queues of all readers
	// together; default 128 MiB. Beyond it a reader that is behind reads by the
	// index when it comes to it, as one does that has used up its credit.
	ReaderBytes int64
	// QueueBytes is how much may wait for the disk before Append waits too;
	// default 32 MiB. One group is always taken.
	QueueBytes int64
	// ReserveBytes is how much of the disk is to stay free: with less, appends are
	// refused with ErrReadOnly, and trims pass. Default 1 GiB, at most a twentieth of
	// the disk; negative: none.
	ReserveBytes int64
	// ScrubRate is how much of the closed segments is read in a second to find damage, in
	// bytes, which is logged; default: as much as makes a pass over a full disk last a
	// week, at least 1 MiB; negative: nothing.
	ScrubRate int64
	// FS is the file system; default vfs.OS.
	FS vfs.FS
	// Logger hears of what a person should know: the order ended by a power
	// cut, a log that failed. Default: slog.Default.
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
