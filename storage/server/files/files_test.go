package files_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage/server/files"
)

func shard(n uint64) *logpb.Shard { return &logpb.Shard{Id: 7, Length: n} }

// A file is replaced as a whole: after a power cut at any time it is the old one or the new one, and
// the new one once Write has returned.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewMem()
		require.NoError(t, mem.MkdirAll("d"))
		require.NoError(t, mem.SyncDir("."))
		cut := errors.New("cut")
		last, at := uint64(0), rng.Int64N(40)
		for n := uint64(1); ; n++ {
			ops := int64(0)
			d := files.Dir{FS: vfs.Inject(mem, func(vfs.Op) error {
				if ops++; at < ops {
					return cut
				}
				return nil
			}), Path: "d"}
			err := d.WriteMessage("m", shard(n), true)
			at -= ops
			if err == nil {
				last = n
				continue
			}
			require.ErrorIs(t, err, cut)
			var got logpb.Shard
			ok, damaged, err := files.Dir{FS: mem.CrashClone(rng), Path: "d"}.ReadMessage("m", &got)
			require.NoError(t, err)
			require.False(t, damaged, "seed %d", seed)
			require.Equal(t, got.Length > 0, ok)
			require.Contains(t, []uint64{last, n}, got.Length, "seed %d", seed)
			break
		}
	}
}

// A message that is not as it was written is damaged: with any bit flipped, cut, or, if the checksum
// includes its name, under another name.
func TestDamage(t *testing.T) {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("d"))
	d := files.Dir{FS: mem, Path: "d"}
	for _, named := range []bool{false, true} {
		require.NoError(t, d.WriteMessage("m", shard(1000), named))
		var got logpb.Shard
		ok, damaged, err := d.ReadMessage("m", &got)
		require.NoError(t, err)
		require.True(t, ok && !damaged && proto.Equal(shard(1000), &got))
		b, err := d.Read("m")
		require.NoError(t, err)

		require.NoError(t, d.Write("other", b))
		ok, damaged, err = d.ReadMessage("other", &got)
		require.NoError(t, err)
		require.Equal(t, []bool{!named, named}, []bool{ok, damaged})

		for i := range b {
			for bit := range 8 {
				flipped := append([]byte(nil), b...)
				flipped[i] ^= 1 << bit
				require.NoError(t, d.Write("m", flipped))
				ok, damaged, err = d.ReadMessage("m", &got)
				require.NoError(t, err)
				require.True(t, !ok && damaged, "byte %d, bit %d", i, bit)
			}
			require.NoError(t, d.Write("m", b[:i]))
			ok, damaged, err = d.ReadMessage("m", &got)
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, i >= 4, damaged, "%d bytes", i)
		}
	}
}

// A file that does not exist is no error, to read or to remove; one that cannot be read is, and the
// error names it.
func TestErrors(t *testing.T) {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("d"))
	d := files.Dir{FS: mem, Path: "d"}
	b, err := d.Read("m")
	require.NoError(t, err)
	require.Nil(t, b)
	require.NoError(t, d.Remove("m"))
	ok, damaged, err := d.ReadMessage("m", new(logpb.Shard))
	require.NoError(t, err)
	require.False(t, ok || damaged)

	require.NoError(t, d.Write("m", []byte("x")))
	for _, op := range []vfs.OpKind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir} {
		full := files.Dir{FS: vfs.Inject(mem, vfs.FailAt(1, func(o vfs.Op) bool { return o.Kind == op }, syscall.ENOSPC)), Path: "d"}
		err := full.Write("m", []byte("y"))
		require.ErrorIs(t, err, syscall.ENOSPC, fmt.Sprint(op))
		require.ErrorContains(t, err, "m")
	}
	bad := files.Dir{FS: vfs.Inject(mem, vfs.FailAt(1, func(o vfs.Op) bool { return o.Kind == vfs.OpOpen }, syscall.EIO)), Path: "d"}
	_, err = bad.Read("m")
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "m")
	_, _, err = bad.ReadMessage("m", new(logpb.Shard))
	require.NoError(t, err, "the fault was transient")
	require.NoError(t, d.Remove("m"))
	b, err = d.Read("m")
	require.NoError(t, err)
	require.Nil(t, b)
}
