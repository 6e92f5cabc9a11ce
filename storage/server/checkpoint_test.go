package server

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// The ticker's checkpoint and a replica's start write the same file: neither removes the other's
// new file, and the newest table is there at the end.
func TestTableIsWrittenByOne(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("d"))
	n := &Node{opt: Options{FS: fsys, Dir: "d"}}
	n.table.Init(&logpb.Snapshot{Tail: uint64(sharedlog.First)})
	const writers, each = 4, 250
	var wg sync.WaitGroup
	var apply sync.Mutex // serializes apply, as following the metalog does
	index := uint64(0)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				apply.Lock()
				index++
				n.table.Apply(&logpb.Event{Index: index, What: &logpb.Event_Change{Change: &logpb.Pair{Key: fmt.Sprint(w), Value: fmt.Append(nil, i)}}})
				apply.Unlock()
				if err := n.saveTable(); err != nil {
					t.Errorf("writer %d, time %d: %v", w, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var got logpb.Snapshot
	ok, err := n.readMessage(tableName, &got)
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, got.GetMetadata(), writers)
	for _, p := range got.GetMetadata() {
		require.Equal(t, fmt.Sprint(each-1), string(p.GetValue()), "what writer %s wrote last", p.GetKey())
	}
}

// A table that could not be written is written the next time.
func TestTableIsWrittenAgain(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("d"))
	n := &Node{opt: Options{FS: fsys, Dir: "missing"}}
	n.table.Init(&logpb.Snapshot{Tail: 7})
	require.Error(t, n.saveTable())
	n.opt.Dir = "d"
	require.NoError(t, n.saveTable())
	var got logpb.Snapshot
	ok, err := n.readMessage(tableName, &got)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 7, got.GetTail())
}
