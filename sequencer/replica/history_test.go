package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// grow opens a replica that is alone and appends n entries with values of 100 bytes.
func grow(t *testing.T, disk *vfs.Mem, historyBytes int64, n int) *Replica {
	r, err := Open(Options{ID: 1, Voters: []uint64{1}, FS: disk, Dir: "d", AheadBytes: -1, SnapshotBytes: 4 << 10, HistoryBytes: historyBytes, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, r.Campaign())
	for i := range n {
		_, err := r.Process()
		require.NoError(t, err)
		e := sequencer.Entry{Kind: sequencer.KindChange, Key: fmt.Sprint("k", i%10), Old: r.State().Value(fmt.Sprint("k", i%10)), New: fmt.Appendf(nil, "%0100d", i)}
		require.NoError(t, r.Propose(e, func(e sequencer.Effect, err error) {
			require.NoError(t, err)
			require.True(t, e.OK)
		}))
		_, err = r.Process()
		require.NoError(t, err)
	}
	return r
}

func readAll(v View, after uint64) (n uint64, err error) {
	err = v.Read(after, func(e sequencer.Effect) error {
		n++
		if e.Index != after+n || !e.OK {
			return fmt.Errorf("effect %d behind %d is %v", n, after, e)
		}
		return nil
	})
	return n, err
}

// Old files stay up to a limit, the newest ones; the history can be read from each index that they
// cover, also after a restart.
func TestHistoryOnDisk(t *testing.T) {
	disk := vfs.NewMem()
	r := grow(t, disk, 1<<20, 300)
	files, err := r.View().files()
	require.NoError(t, err)
	require.Greater(t, len(files), 5)
	for after := range uint64(301) {
		n, err := readAll(r.View(), after)
		require.NoError(t, err)
		require.Equal(t, 300-after, n)
	}
	stop := fmt.Errorf("enough")
	require.ErrorIs(t, r.View().Read(7, func(sequencer.Effect) error { return stop }), stop)
	require.NoError(t, r.Close())

	r = grow(t, disk, 10<<10, 20) // fewer may stay
	_, err = readAll(r.View(), 0)
	require.ErrorIs(t, err, ErrGone)
	kept, err := r.View().files()
	require.NoError(t, err)
	require.Less(t, len(kept), len(files))
	_, bytes := disk.Used()
	require.Less(t, bytes, int64(24<<10))
	n, err := readAll(r.View(), 305)
	require.NoError(t, err)
	require.Equal(t, uint64(15), n)
	require.NoError(t, r.Close())

	r = grow(t, disk, 0, 0) // only what is needed
	kept, err = r.View().files()
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.NoError(t, r.Close())
}

// On a full disk the history is removed first: nothing is refused because of it.
func TestAFullDiskTakesHistory(t *testing.T) {
	disk := vfs.NewMem()
	disk.SetCapacity(40 << 10)
	r := grow(t, disk, 1<<30, 600) // about 100 KB
	files, err := r.View().files()
	require.NoError(t, err)
	require.Greater(t, len(files), 1, "some is left")
	_, err = readAll(r.View(), 0)
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, r.Close())
}

// Damage in an old file is lost history, and reported as such; the replica does not need the file
// otherwise.
func TestDamagedHistory(t *testing.T) {
	disk := vfs.NewMem()
	r := grow(t, disk, 1<<20, 300)
	files, err := r.View().files()
	require.NoError(t, err)
	path := "d/" + walName(files[2])
	size, err := disk.Stat(path)
	require.NoError(t, err)
	f, err := disk.OpenReadWrite(path)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, size/2)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b[0] ^ 1}, size/2)
	require.NoError(t, err)
	_, err = readAll(r.View(), 0)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.True(t, strings.Contains(err.Error(), path), "%v", err)
	n, err := readAll(r.View(), 250)
	require.NoError(t, err)
	require.Equal(t, uint64(50), n)
	require.NoError(t, r.Close())
	require.NoError(t, grow(t, disk, 1<<20, 1).Close())
}

// A power failure right after a new file was renamed does not tear the older one, although no
// caller waited for the last entries in it.
func TestAPowerCutTearsNoHistory(t *testing.T) {
	for seed := range uint64(200) {
		disk := vfs.NewMem()
		w, s, err := openWAL(disk, "d", -1, 1<<20, new(raftpb.Snapshot))
		require.NoError(t, err)
		begin := w.begin(s)
		begin.Run()
		for i := range uint64(5) {
			e := &raftpb.Entry{Index: proto.Uint64(i + 1), Term: proto.Uint64(1), Data: make([]byte, 700)}
			require.NoError(t, w.append(nil, []*raftpb.Entry{e}))
		}
		require.NoError(t, begin.done())
		sync := w.sync()
		sync.Run()
		require.NoError(t, errors.Join(begin.err, sync.err))
		disk = disk.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		n := 0
		err = View{fs: disk, dir: "d", number: 2, end: 1 << 62}.scan(1, func(_ int64, kind byte, _ []byte) (bool, error) {
			if kind == kindEntry {
				n++
			}
			return true, nil
		})
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, 5, n, "seed %d", seed)
	}
}
