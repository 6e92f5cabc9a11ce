package faulttest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// The power fails at a random moment: what had not been synced is lost, for each file in any
// combination. With always nothing acknowledged is lost; with interval and never the order ends
// somewhere, and everything below is complete and unchanged. A trim that has returned still holds,
// and no recovery needs what it allowed to be deleted, also when the power fails at the very moment
// of the deletion. Then the log continues, and the power fails again.
func TestPowerCut(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(string(fsync), func(t *testing.T) {
			shortened, warned, deletions := 0, 0, 0
			for seed := range uint64(60) {
				p := powerCut{t: t, fsync: fsync, seed: seed, rng: rand.New(rand.NewPCG(seed, 4))}
				p.run()
				if p.shortened {
					shortened++
				}
				if p.warned {
					warned++
				}
				deletions += p.deletions
			}
			t.Logf("%d of 60 lost something, %d with a warning; %d cuts while segments were deleted", shortened, warned, deletions)
			require.Greater(t, deletions, 20, "nothing was ever deleted")
			if fsync == embedded.FsyncNever {
				// Lost without a warning: the end of the metalog itself was lost, and nothing is
				// left that shows it.
				require.NotZero(t, warned, "no cut ever took anything: the test is too tame")
			}
		})
	}
}

// powerCut is a test run with power cuts.
type powerCut struct {
	t     *testing.T
	fsync embedded.Fsync
	seed  uint64
	rng   *rand.Rand

	before  map[sharedlog.LSN]string // records below the tail of the newest Open, and those appended since
	durable sharedlog.LSN            // as Stats reported at the power cut
	trimmed sharedlog.LSN            // the highest trim that has returned
	asked   sharedlog.LSN            // the highest trim that was requested

	shortened, warned bool
	deletions         int
}

// deletion is what a power cut leaves when the first segment of a round is about to be deleted.
type deletion struct {
	mu      sync.Mutex
	left    *vfs.Mem
	trimmed sharedlog.LSN
}

func (p *powerCut) run() {
	disk := vfs.NewMem()
	p.before, p.durable, p.trimmed, p.asked = map[sharedlog.LSN]string{}, sharedlog.First, sharedlog.First, sharedlog.First
	for round := range 3 {
		p.opens(disk, fmt.Sprintf("fsync %s, seed %d, round %d", p.fsync, p.seed, round), func(log *embedded.Log, all map[sharedlog.LSN]string) {
			if len(all) < len(p.before) {
				p.shortened = true
				require.NotEqual(p.t, embedded.FsyncAlways, p.fsync, "seed %d, round %d: %d acknowledged records lost", p.seed, round, len(p.before)-len(all))
			}
			p.before = all
		})
		var d deletion
		var armed atomic.Bool // set when the log is open
		o := p.options()
		deleted := make(chan struct{})
		used := disk
		o.FS = vfs.Inject(used, func(op vfs.Op) error {
			if armed.Load() && op.Kind == vfs.OpSync && p.fsync != embedded.FsyncAlways && strings.Contains(op.Path, "meta-") {
				select { // a slow disk: a caller that does not wait for it is faster
				case <-deleted:
				case <-time.After(2 * time.Millisecond):
				}
			}
			if armed.Load() && op.Kind == vfs.OpRename && strings.HasSuffix(op.Path, ".seg") {
				d.mu.Lock()
				if d.left == nil {
					close(deleted)
					d.left = used.CrashClone(rand.New(rand.NewPCG(p.seed, uint64(round))))
				}
				d.mu.Unlock()
			}
			return nil
		})
		log, err := embedded.Open("log", o)
		require.NoError(p.t, err)
		armed.Store(true)
		p.write(log, round, &d)
		p.durable = log.Stats().Durable
		disk = disk.CrashClone(p.rng)
		armed.Store(false)
		require.NoError(p.t, log.Close())
		if d.left != nil {
			p.deletions++
			now := *p
			now.durable, now.trimmed = sharedlog.First, d.trimmed
			now.opens(d.left, fmt.Sprintf("fsync %s, seed %d, round %d, at a deletion", p.fsync, p.seed, round), func(*embedded.Log, map[sharedlog.LSN]string) {})
		}
	}
}

func (p *powerCut) options() embedded.Options {
	o := options(p.fsync)
	o.FsyncInterval = time.Millisecond
	o.SegmentBytes = 8 << 10
	return o
}

// opens opens what a cut has left and checks it: from the log's first record on there is no hole,
// all records are unchanged, and nothing that was durable is missing.
func (p *powerCut) opens(disk *vfs.Mem, what string, then func(*embedded.Log, map[sharedlog.LSN]string)) {
	t := p.t
	var text bytes.Buffer
	o := p.options()
	o.FS, o.Logger = disk, slog.New(slog.NewTextHandler(&text, nil))
	log, err := embedded.Open("log", o)
	require.NoError(t, err, what)
	require.NotContains(t, text.String(), "damaged", what)
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	begins := sharedlog.LSN(1 + sort.Search(int(tail)-1, func(i int) bool {
		_, err := readBetween(log, sharedlog.LSN(i+1), sharedlog.LSN(i+2))
		return !errors.Is(err, sharedlog.ErrTrimmed)
	}))
	require.GreaterOrEqual(t, begins, min(p.trimmed, tail), "%s: a trim that had returned is gone", what)
	require.LessOrEqual(t, begins, p.asked, what)
	all, err := readBetween(log, begins, tail)
	require.NoError(t, err, what)
	for lsn, rec := range all {
		require.Equal(t, p.before[lsn], rec, "%s: LSN %d", what, lsn)
	}
	whole(t, all)
	require.Equal(t, int(tail-begins), len(all), "%s: a hole between %d and the tail", what, begins)
	require.GreaterOrEqual(t, tail, p.durable, "%s: the log said that less could be lost", what)
	p.warned = p.warned || strings.Contains(text.String(), "a power cut took the end of the log")
	for lsn := range p.before {
		if lsn < begins {
			delete(p.before, lsn)
		}
	}
	then(log, all)
	require.NoError(t, log.Close())
}

// write appends and trims.
func (p *powerCut) write(log *embedded.Log, round int, d *deletion) {
	ctx := p.t.Context()
	w := sharedlog.NewWriter(log, fmt.Sprint("w", round), sharedlog.Condition{})
	var starts []sharedlog.LSN // first LSNs of groups
	for i := range 1 + p.rng.IntN(120) {
		size := 1 + p.rng.IntN(4)
		lsn, err := w.Append(groupOf(w.Name(), i, size)...).Wait(ctx)
		require.NoError(p.t, err)
		for j, r := range groupOf(w.Name(), i, size) {
			p.before[lsn+sharedlog.LSN(j)] = string(r.Data)
		}
		if starts = append(starts, lsn); p.rng.IntN(15) > 0 || len(starts) < 5 {
			continue
		}
		to := starts[len(starts)-1-p.rng.IntN(5)]
		p.asked = max(p.asked, to)
		var trims sync.WaitGroup
		errs := make([]error, 4)
		for i, tag := range []sharedlog.Tag{"mod0", "mod1", "mod2", "all"} {
			trims.Go(func() { errs[i] = log.Trim(ctx, tag, to) })
		}
		trims.Wait()
		require.NoError(p.t, errors.Join(errs...))
		p.trimmed = max(p.trimmed, to)
		d.mu.Lock()
		if d.left == nil {
			d.trimmed = p.trimmed
		}
		d.mu.Unlock()
	}
}

// A process is killed, and the power fails while the next one opens the log, after it has closed
// the segments: only a part of the order that was not synced is left, and no record of a closed
// segment is shown above that.
func TestPowerCutWhileOpening(t *testing.T) {
	for seed := range uint64(20) {
		disk := vfs.NewMem()
		o := options(embedded.FsyncNever)
		o.FS = disk
		log, err := embedded.Open("log", o)
		require.NoError(t, err)
		w := sharedlog.NewWriter(log, "a", sharedlog.Condition{})
		for i := range 60 {
			_, err := w.Append(groupOf("a", i, 2)...).Wait(t.Context())
			require.NoError(t, err)
		}
		was := records(t, log)
		killed := disk.Fork()
		require.NoError(t, log.Close())

		var left *vfs.Mem
		o.FS = vfs.Inject(killed, func(op vfs.Op) error {
			if left == nil && op.Kind == vfs.OpCreate && strings.Contains(op.Path, "meta-") {
				left = killed.CrashClone(rand.New(rand.NewPCG(seed, 5)))
			}
			return nil
		})
		log, err = embedded.Open("log", o)
		require.NoError(t, err)
		require.NoError(t, log.Close())
		require.NotNil(t, left)

		o.FS = left
		log, err = embedded.Open("log", o)
		require.NoError(t, err, "seed %d", seed)
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		w = sharedlog.NewWriter(log, "b", sharedlog.Condition{})
		for i := range 60 {
			_, err := w.Append(groupOf("b", i, 2)...).Wait(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, log.Close())
		log, err = embedded.Open("log", o) // reads the segments instead of the cache
		require.NoError(t, err, "seed %d", seed)
		all := records(t, log)
		require.Len(t, all, int(tail)-1+2*60, "seed %d", seed)
		for lsn, text := range all {
			if lsn < tail {
				require.Equal(t, was[lsn], text, "seed %d, LSN %d", seed, lsn)
			} else {
				require.True(t, strings.HasPrefix(text, "b "), "seed %d, LSN %d, opened at %d: %.20q", seed, lsn, tail, text)
			}
		}
		require.NoError(t, log.Close())
	}
}

// The disk is full for a while: appends are refused with ErrFull, trims pass, and when there is
// room again everything continues, with nothing lost and no LSN used twice.
func TestFullDisk(t *testing.T) {
	full := false
	disk := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if full && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	})
	o := options(embedded.FsyncNever)
	o.FS = disk
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	ctx := t.Context()
	w := sharedlog.NewWriter(log, "a", sharedlog.Condition{})
	for i := range 10 {
		_, err := w.Append(groupOf("a", i, 2)...).Wait(ctx)
		require.NoError(t, err)
	}
	full = true
	refused := sharedlog.NewWriter(log, "b", sharedlog.Condition{})
	for range 3 {
		_, err = sharedlog.NewWriter(log, "b", sharedlog.Condition{}).Append(groupOf("b", 0, 3)...).Wait(ctx)
		require.ErrorIs(t, err, sharedlog.ErrFull)
	}
	full = false
	_, err = refused.Append(groupOf("b", 0, 3)...).Wait(ctx)
	require.NoError(t, err, "the number was given back")
	_, err = w.Append(groupOf("a", 10, 2)...).Wait(ctx)
	require.NoError(t, err)
	all := records(t, log)
	require.Len(t, all, 25)
	whole(t, all)
	require.NoError(t, log.Close())
	log, err = embedded.Open("log", o)
	require.NoError(t, err)
	require.Equal(t, all, records(t, log))
	require.NoError(t, log.Close())
}

// The disk is full, and only trims make room: trims pass and are durable, segments are deleted,
// appends continue. This happens repeatedly, also across restarts on the full disk.
func TestTrimsMakeRoom(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval} {
		t.Run(string(fsync), func(t *testing.T) { trimsMakeRoom(t, fsync, -1, sharedlog.KindFull, sharedlog.KindReadOnly) })
		t.Run(string(fsync)+", read-only before", func(t *testing.T) { trimsMakeRoom(t, fsync, 0, sharedlog.KindReadOnly) })
	}
}

func trimsMakeRoom(t *testing.T, fsync embedded.Fsync, reserve int64, refused ...sharedlog.Kind) {
	disk := vfs.NewMem()
	o := options(fsync)
	o.FS, o.ReserveBytes = disk, reserve
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	ctx := t.Context()
	n := 0
	fill := func(name string) (next sharedlog.LSN) {
		w := sharedlog.NewWriter(log, name, sharedlog.Condition{})
		for i := 0; ; i++ {
			lsn, err := w.Append(groupOf(name, i, 4)...).Wait(ctx)
			if err != nil {
				require.Contains(t, refused, sharedlog.KindOf(err), "%v", err)
				return next
			}
			next = lsn + 4
			n++
		}
	}
	disk.SetCapacity(24 << 20)
	for round := range 4 {
		name := fmt.Sprint("w", round)
		next := sharedlog.LSN(0)
		require.Eventually(t, func() bool { // segments may still be about to be deleted
			next = fill(name)
			return next > sharedlog.First
		}, 10*time.Minute, 10*time.Millisecond, "round %d", round)
		if round > 1 {
			require.NoError(t, log.Close())
			log, err = embedded.Open("log", o)
			require.NoError(t, err, "the disk is full")
		}
		for _, tag := range []sharedlog.Tag{"all", "mod0", "mod1", "mod2"} {
			require.NoError(t, log.Trim(ctx, tag, next), "round %d", round)
		}
		require.Eventually(t, func() bool {
			w := sharedlog.NewWriter(log, name+"+", sharedlog.Condition{})
			_, err := w.Append(groupOf(name+"+", 0, 4)...).Wait(ctx)
			return err == nil
		}, 10*time.Minute, 10*time.Millisecond, "round %d: trimming made no room", round)
		require.Eventually(t, func() bool {
			_, err := disk.Stat("log/BALLAST")
			return err == nil
		}, 10*time.Minute, 10*time.Millisecond)
	}
	require.Greater(t, n, 1000)
	require.NoError(t, log.Close())
}

// The disk is full whenever a metalog file is to be created, so that the old one is used beyond the
// end of its segment. A recovery needs the segments that it orders, trimmed or not.
func TestTrimsWithoutAMetalogOfTheirOwn(t *testing.T) {
	var full atomic.Bool
	mem := vfs.NewMem()
	o := options(embedded.FsyncInterval)
	o.ReserveBytes = -1
	o.FS = vfs.Inject(mem, func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpCreate && strings.HasPrefix(filepath.Base(op.Path), "meta-") {
			return syscall.ENOSPC
		}
		return nil
	})
	log, err := embedded.Open("log", o)
	require.NoError(t, err)
	ctx := t.Context()
	n := 0
	fill := func() (next sharedlog.LSN) {
		for range 30 {
			n++
			w := sharedlog.NewWriter(log, fmt.Sprint("w", n), sharedlog.Condition{})
			lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: make([]byte, 8<<10)}).Wait(ctx)
			if err != nil { // the ballast was dropped for the file
				require.ErrorIs(t, err, sharedlog.ErrReadOnly)
				require.Eventually(t, func() bool { _, err := mem.Stat("log/BALLAST"); return err == nil }, time.Minute, time.Millisecond)
				continue
			}
			next = lsn + 1
		}
		return next
	}
	fill()
	full.Store(true)
	next := fill()
	require.NoError(t, log.Trim(ctx, "all", next))
	require.Eventually(t, func() bool {
		_, err := mem.Stat("log/segments/00000001-00000001.seg")
		return err != nil
	}, time.Minute, time.Millisecond, "what is not needed is not deleted")
	o.FS = mem.KillClone()
	full.Store(false)
	require.NoError(t, log.Close())
	log, err = embedded.Open("log", o)
	require.NoError(t, err)
	_, err = sharedlog.NewWriter(log, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}}).Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, log.Close())
}
