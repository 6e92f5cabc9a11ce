package main

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/transport/memory"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// verify reports what it could not verify: a node that does not answer, and one that stops
// answering. It names both with their shards, and the command fails although all that was compared
// is equal. It also names a replica that is still being copied.
func TestVerifyNamesWhatWasNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memory.New()
		defer net.Close()
		shows := func(rows int) transport.Handler {
			return func(st transport.Stream) error {
				if err := st.Recv(new(logpb.FetchRequest)); err != nil {
					return err
				}
				for i := range rows {
					f := wire.Fetched{Kind: wire.FetchedGroup, From: uint64(i), First: sharedlog.LSN(i + 1)}
					f.Body.Encode(&sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}}}}, false)
					if err := st.Send(&transport.Raw{Parts: [][]byte{wire.AppendFetched(nil, &f)}}); err != nil {
						return err
					}
				}
				if rows < 2 {
					<-st.Context().Done()
				}
				return nil
			}
		}
		for addr, rows := range map[string]int{"a": 2, "b": 2, "hangs": 1} {
			net.Handle(addr, "storage/fetch", shows(rows))
		}
		shard := func(id uint32, addrs ...string) *logpb.Shard {
			return &logpb.Shard{Id: id, Addrs: addrs, Length: 2, Sealed: true, SealedAt: 3}
		}
		full := func(ids ...uint32) *logpb.StorageStatus {
			m := new(logpb.StorageStatus)
			for _, id := range ids {
				m.Replicas = append(m.Replicas, &logpb.ReplicaStatus{Shard: id, Full: true})
			}
			return m
		}
		c := &cluster{nodes: map[string]*logpb.StorageStatus{"a": full(1, 2, 3), "b": full(1, 3), "hangs": full(2, 4), "gone": nil}}
		var v verification
		verify := func(sh *logpb.Shard, want string, ok bool) {
			t.Helper()
			v.add(verifyShard(t.Context(), net, c, sh, time.Second))
			row := v.Shards[len(v.Shards)-1]
			require.Equal(t, want, row.String())
			require.Equal(t, ok, row.OK)
		}
		verify(shard(1, "a", "b"), "shard 1\t2 records\tequal\ta\tb", true)
		require.NoError(t, v.err())
		verify(shard(1, "a", "b", "gone"), "shard 1\t2 records\tequal\ta\tb\tgone: NOT VERIFIED, no answer", true)
		require.ErrorContains(t, v.err(), "storage node gone does not answer: its replicas were not verified (shards: 1)")
		verify(shard(2, "a", "b", "hangs"), "shard 2\t2 records\tequal\ta\thangs: NOT VERIFIED, no answer\tb: not compared, it does not hold all of it yet", true)
		require.NotContains(t, v.err().Error(), "as they should be")
		verify(shard(3, "gone", "b", "a"), "shard 3\t2 records\tequal\ta\tb\tgone: NOT VERIFIED, no answer", true)
		verify(shard(4, "hangs", "gone"), "shard 4\t2 records\tno replica that holds all of it answers\tgone: NOT VERIFIED, no answer\thangs: NOT VERIFIED, no answer", false)
		require.Equal(t, []unverified{{"gone", []uint32{1, 3, 4}}, {"hangs", []uint32{2, 4}}}, v.Unverified)
		require.ErrorContains(t, v.err(), "1 of 5 sealed shards are not as they should be")
		require.ErrorContains(t, v.err(), "node hangs does not answer: its replicas were not verified (shards: 2, 4)")
	})
}

// Replicas are compared where both have records. Records that one has deleted after a trim are not
// a difference; records that it cannot read are damage.
func TestCompareReplicas(t *testing.T) {
	group := func(position uint64, lsn sharedlog.LSN, data string) wire.Fetched {
		f := wire.Fetched{Kind: wire.FetchedGroup, From: position, First: lsn}
		f.Body.Encode(&sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte(data)}}}, false)
		return f
	}
	trimmed := func(from, to uint64) wire.Fetched {
		return wire.Fetched{Kind: wire.FetchedTrimmed, From: from, To: to}
	}
	replica := func(addr string, end error, rows ...wire.Fetched) *fetched {
		f := &fetched{addr: addr, close: func() {}}
		f.next = func() ([]byte, error) {
			if len(rows) == 0 {
				return nil, end
			}
			b := wire.AppendFetched(nil, &rows[0])
			rows = rows[1:]
			return b, nil
		}
		return f
	}
	all := []wire.Fetched{group(0, 1, "a"), group(1, 2, "b"), group(2, 7, "c")}
	for i, c := range []struct {
		other *fetched
		ok    bool
		want  string
	}{
		{replica("b", io.EOF, all...), true, "equal\ta\tb"},
		{replica("b", io.EOF, append([]wire.Fetched{{Kind: wire.FetchedWriters, Table: []byte("t")}}, all...)...), true, "equal\ta\tb"},
		{replica("b", io.EOF, trimmed(0, 2), all[2]), true, "equal\ta\tb (2 trimmed)"},
		{replica("b", io.EOF, all[0], trimmed(1, 3)), true, "equal\ta\tb (2 trimmed)"},
		{replica("b", io.EOF, all[0], group(1, 2, "B"), all[2]), false, "DIFFERENT at position 1"},
		{replica("b", io.EOF, all[0], all[1], group(2, 8, "c")), false, "DIFFERENT at position 2"},
		{replica("b", io.EOF, all[0], all[2]), false, "b: error: it continues at position 2 behind 1"},
		{replica("b", io.EOF, all[0]), false, "b: error: it ends at position 1 of 3"},
		{replica("b", errors.New("broken"), all[0]), false, "b: error: broken"},
	} {
		verdict, ok := compareReplicas([]*fetched{replica("a", io.EOF, all...), c.other}, 3)
		require.Equal(t, c.ok, ok, fmt.Sprint(i, verdict))
		require.Contains(t, verdict, c.want, i)
	}
	// A majority decides which one is right.
	verdict, ok := compareReplicas([]*fetched{
		replica("a", io.EOF, all...), replica("b", io.EOF, all[0], group(1, 2, "B"), all[2]), replica("c", io.EOF, all...),
	}, 3)
	require.False(t, ok)
	require.Contains(t, verdict, "\tRIGHT: a, c (2 of 3)\tWRONG: b, whose scrubber")
	verdict, _ = compareReplicas([]*fetched{replica("a", io.EOF, all...), replica("b", io.EOF, all[0], group(1, 2, "B"), all[2])}, 3)
	require.Contains(t, verdict, "\tno majority says which is right")
	verdict, ok = compareReplicas(nil, 3)
	require.False(t, ok)
	require.Contains(t, verdict, "no node that answers holds all of it")
}
