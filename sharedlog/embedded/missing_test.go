package embedded_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// A process is killed while it closes segments, each time when one has its trailer and is not on
// the list yet, and then one file of the log is removed. Its records are not skipped: either Open
// fails, or readers that reach them get an error; both name the file.
func TestFileMissingAfterKillWhileClosing(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(string(fsync), func(t *testing.T) {
			const records = 18
			disk := vfs.NewMem()
			o := smallSegments
			o.Fsync, o.ScrubRate = fsync, -1
			written := make(chan struct{})
			var killed []*vfs.Mem
			o.FS = vfs.Inject(disk, func(op vfs.Op) error {
				if op.Kind == vfs.OpWrite && op.Len == 72 && strings.Contains(op.Path, "LIST-1") {
					<-written
					killed = append(killed, disk.KillClone())
				}
				return nil
			})
			l, err := embedded.Open("log", o)
			require.NoError(t, err)
			w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
			c := &closedLog{records: map[sharedlog.LSN]string{}, first: 1, tail: records + 1}
			for i := range records {
				data := strings.Repeat(fmt.Sprint(i, " "), 400)
				lsn, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: []byte(data)}).Wait(t.Context())
				require.NoError(t, err)
				c.records[lsn] = data
			}
			close(written)
			require.NoError(t, l.Close())
			require.NotEmpty(t, killed)

			refused, shown := 0, 0
			for i, left := range killed {
				names, err := left.List("log")
				require.NoError(t, err)
				var metas []string
				for _, name := range names {
					if strings.HasPrefix(name, "meta-") {
						metas = append(metas, filepath.Join("log", name))
					}
				}
				if fsync != embedded.FsyncAlways {
					metas = nil // a power cut may have removed one of several
				} else if len(metas) > 1 {
					metas = metas[:len(metas)-1] // nothing shows that there was a newer one
				}
				c.disk = left
				_ = left.Remove("log/BALLAST") // otherwise every round would copy it
				for _, path := range append(metas, c.files(t)...) {
					what := fmt.Sprintf("kill %d, without %s", i, path)
					disk := left.KillClone()
					require.NoError(t, disk.Remove(path))
					o.FS = disk
					l, err := embedded.Open("log", o)
					if err != nil {
						refused++
						require.ErrorIs(t, err, sharedlog.ErrCorrupt, what)
						require.ErrorContains(t, err, "put it back from a copy", what)
						if strings.HasSuffix(path, ".seg") {
							require.ErrorContains(t, err, path, what)
						}
						continue
					}
					tail, err := l.Tail(t.Context())
					require.NoError(t, err)
					require.EqualValues(t, records+1, tail, what)
					for from := sharedlog.First; from < tail; { // there is more after the damage
						seen, err := c.read(t, l, "all", from, tail)
						for lsn := from; lsn < from+sharedlog.LSN(len(seen)); lsn++ {
							require.Equal(t, c.records[lsn], seen[lsn], "%s: LSN %d, from %d", what, lsn, from)
						}
						if from += sharedlog.LSN(len(seen)); from < tail {
							shown++
							c.damage(t, err, []string{path}, what)
							from++
						}
					}
					require.NoError(t, l.Close())
				}
			}
			t.Logf("%d kills: Open failed %d times, %d records were not shown, with an error", len(killed), refused, shown)
			require.NotZero(t, refused)
		})
	}
}

// A log whose only metalog file is damaged or missing is not taken for a new one, even if it holds
// nothing but metadata.
func TestNoSnapshot(t *testing.T) {
	t.Run("never any record", func(t *testing.T) { noSnapshot(t, false) })
	t.Run("all trimmed", func(t *testing.T) { noSnapshot(t, true) })
}

func noSnapshot(t *testing.T, trimmed bool) {
	for name, damage := range map[string]func(t *testing.T, disk *vfs.Mem, path string){
		"missing": func(t *testing.T, disk *vfs.Mem, path string) { require.NoError(t, disk.Remove(path)) },
		"flipped": func(t *testing.T, disk *vfs.Mem, path string) {
			f, err := disk.OpenReadWrite(path)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{0xff}, 12)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		},
		"empty": func(t *testing.T, disk *vfs.Mem, path string) {
			f, err := disk.Create(path)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			o := embedded.Options{FS: disk, Logger: quiet}
			l, err := embedded.Open("log", o)
			require.NoError(t, err)
			_, err = l.CompareAndSet(t.Context(), "key", nil, []byte("value"))
			require.NoError(t, err)
			require.NoError(t, l.Close())
			if trimmed {
				l, err = embedded.Open("log", o)
				require.NoError(t, err)
				_, err = sharedlog.NewWriter(l, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}}).Wait(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Close())
				l, err = embedded.Open("log", o)
				require.NoError(t, err)
				require.NoError(t, l.Trim(t.Context(), "all", 2))
				require.Eventually(t, func() bool { _, err := disk.Stat("log/segments/00000002-00000001.seg"); return err != nil }, time.Minute, time.Millisecond)
				require.NoError(t, l.Close())
				l, err = embedded.Open("log", o) // its metalog holds only the snapshot
				require.NoError(t, err)
				require.NoError(t, l.Close())
			}
			names, err := disk.List("log")
			require.NoError(t, err)
			var metas []string
			for _, name := range names {
				if strings.HasPrefix(name, "meta-") {
					metas = append(metas, filepath.Join("log", name))
				}
			}
			require.Len(t, metas, 1)
			damage(t, disk, metas[0])
			_, err = embedded.Open("log", o)
			require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			require.ErrorContains(t, err, "log/meta-")
		})
	}
}

// openUntil opens a log, ends the process before the first call for which ends returns true, and
// returns what a power cut leaves of the disk then.
func openUntil(t *testing.T, disk *vfs.Mem, seed uint64, ends func(vfs.Op) bool) (left *vfs.Mem) {
	dead := errors.New("the power has failed")
	l, err := embedded.Open("log", embedded.Options{Logger: quiet, SegmentBytes: 4 << 10, ScrubRate: -1, FS: vfs.Inject(disk, func(op vfs.Op) error {
		if left == nil && ends(op) {
			left = disk.CrashClone(rand.New(rand.NewPCG(seed, 6)))
		}
		if left != nil {
			return dead
		}
		return nil
	})})
	require.ErrorIs(t, err, dead, "%v", l)
	return left
}

// The power fails repeatedly before the first Open of a log has finished, and one copy of the list
// of segments is lost each time.
func TestPowerCutsInTheFirstOpen(t *testing.T) {
	torn := 0
	for seed := range uint64(12) {
		disk := vfs.NewMem()
		for cut := range 4 {
			created := ""
			disk = openUntil(t, disk, seed*10+uint64(cut), func(op vfs.Op) bool {
				if op.Kind == vfs.OpCreate && strings.Contains(op.Path, "meta-") {
					created = op.Path
				}
				return op.Kind == vfs.OpSync && op.Path == created
			})
			if _, err := disk.Stat("log/segments/LIST-2"); err == nil { // one copy is enough
				_ = disk.Remove("log/segments/LIST-1")
			}
			names, err := disk.List("log")
			require.NoError(t, err)
			n := 0
			for _, name := range names {
				if strings.HasPrefix(name, "meta-") {
					n++
				}
			}
			if n > 1 {
				torn++
			}
		}
		l, err := embedded.Open("log", embedded.Options{FS: disk, Logger: quiet})
		require.NoError(t, err, "seed %d", seed)
		_, err = sharedlog.NewWriter(l, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}}).Wait(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	require.NotZero(t, torn, "never were there two files without a snapshot")
}
