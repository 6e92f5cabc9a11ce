package fetch

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
)

// kept is a Target that keeps what it gets.
type kept struct {
	t      require.TestingT
	at     uint64
	groups []Group
	ended  bool
	lacks  error
}

func (k *kept) Put(groups []Group) bool {
	for _, g := range groups {
		require.Equal(k.t, k.at, g.Position, "there is a hole")
		k.at += uint64(len(g.Decoded.Group.Records))
		k.groups = append(k.groups, g)
	}
	return !k.ended
}

func (k *kept) Skip(from, to uint64) bool {
	require.Equal(k.t, k.at, from, "there is a hole")
	k.at = to
	return !k.ended
}

func (k *kept) Stalls() int     { return 0 }
func (k *kept) Lacks(err error) { k.lacks = err }

// rows draws what a replica sends of a shard of this length at most: groups and trimmed ranges, one
// behind the other.
func rows(t *rapid.T, length uint64) (all []wire.Fetched) {
	lsn := sharedlog.LSN(1)
	for at := uint64(0); at < length; {
		if rapid.IntRange(0, 3).Draw(t, "trimmed") == 0 {
			to := min(length, at+rapid.Uint64Range(1, 9).Draw(t, "positions"))
			all = append(all, wire.Fetched{Kind: wire.FetchedTrimmed, From: at, To: to, Index: 3 * to})
			at = to
			continue
		}
		g := &sharedlog.Group{Writer: "w", Number: uint64(len(all)) + 1}
		for range rapid.Uint64Range(1, 5).Draw(t, "records") {
			g.Records = append(g.Records, sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte("data")})
		}
		row := wire.Fetched{Kind: rapid.SampledFrom([]wire.FetchedKind{wire.FetchedVoid, wire.FetchedGroup}).Draw(t, "kind"), From: at, First: lsn}
		row.Body.Encode(g, false)
		row.To = at + uint64(len(g.Records))
		if row.To > length {
			return all
		}
		lsn += sharedlog.LSN(len(g.Records))
		at, all = row.To, append(all, row)
	}
	return all
}

// messages cuts rows into messages.
func messages(t *rapid.T, all []wire.Fetched) (cut [][]byte) {
	var b []byte
	for i := range all {
		b = wire.AppendFetched(b, &all[i])
		if rapid.Bool().Draw(t, "end") {
			cut, b = append(cut, b), nil
		}
	}
	return append(cut, b)
}

func fetcher(k *kept, length uint64) *Fetcher {
	return &Fetcher{Node: "self", Logger: slog.New(slog.DiscardHandler), Target: k, Whole: true, Shard: &logpb.Shard{Id: 1, Length: length, Addrs: []string{"self", "peer"}}}
}

// A copy has the groups of its source with their outcomes, and no others, however the rows are cut
// into messages. If one row is lost, repeated or moved, what comes before it is taken, and the rest
// is damage: never a copy with a hole.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = 60
		sent := rows(t, length)
		if len(sent) == 0 {
			return
		}
		k := &kept{t: t}
		f := fetcher(k, length)
		for _, m := range messages(t, sent) {
			require.NoError(t, f.Take("peer", m))
			require.Equal(t, k.at, f.At)
		}
		require.Equal(t, sent[len(sent)-1].To, f.At)
		n := 0
		for _, row := range sent {
			if row.Kind == wire.FetchedTrimmed {
				require.GreaterOrEqual(t, f.Index, row.Index)
				continue
			}
			require.Equal(t, row.Body.Bytes, k.groups[n].Body.Bytes)
			require.Equal(t, &storage.Outcome{First: row.First, Effect: row.Kind == wire.FetchedGroup, Head: storage.Head{
				Position: row.From, Records: uint64(row.Body.Records), Writer: "w", Number: k.groups[n].Decoded.Group.Number,
			}}, k.groups[n].Outcome)
			n++
		}
		require.Len(t, k.groups, n)

		bad, i := slices.Clone(sent), rapid.IntRange(0, len(sent)-1).Draw(t, "row")
		switch rapid.SampledFrom([]string{"lost", "repeated", "moved", "too long"}).Draw(t, "damage") {
		case "lost":
			if i == len(bad)-1 {
				return // the source has no more
			}
			bad = slices.Delete(bad, i, i+1)
		case "repeated":
			bad = slices.Insert(bad, i, bad[i])
			i++
		case "moved":
			bad[i].From++
			bad[i].To++
		case "too long":
			i = len(bad)
			bad = append(bad, wire.Fetched{Kind: wire.FetchedTrimmed, From: sent[i-1].To, To: length + 1})
		}
		k = &kept{t: t}
		f = fetcher(k, length)
		var err error
		for _, m := range messages(t, bad) {
			if err = f.Take("peer", m); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		before := uint64(0)
		if i > 0 {
			before = bad[i-1].To
		}
		require.Equal(t, before, k.at, "the rows before it count")
		require.Equal(t, before, f.At)
	})
}

// A bit that flips on the way is found.
func TestTakeDamaged(t *testing.T) {
	row := wire.Fetched{Kind: wire.FetchedGroup, First: 7}
	row.Body.Encode(&sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte("data")}}}, false)
	b := wire.AppendFetched(nil, &row)
	for i := 17; i < len(b); i++ { // behind position, LSN and kind
		for bit := range 8 {
			k := &kept{t: t}
			flipped := slices.Clone(b)
			flipped[i] ^= 1 << bit
			require.ErrorIs(t, fetcher(k, 10).Take("peer", flipped), sharedlog.ErrCorrupt, "byte %d, bit %d", i, bit)
			require.Empty(t, k.groups)
		}
	}
	k := &kept{t: t, ended: true}
	require.ErrorIs(t, fetcher(k, 10).Take("peer", b), sharedlog.ErrClosed)
}

// The peers are tried in turn. When none of them supplies more for a while the readers of the replica
// learn why they cannot go further, with damage before everything else; when one does, they wait
// again.
func TestPause(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing waits
	k := &kept{t: t}
	f := fetcher(k, 10)
	require.Equal(t, []string{"self", "peer", "self"}, []string{f.Next(), f.Next(), f.Next()})
	require.False(t, f.Pause(ctx))
	f.Tried("peer", sharedlog.Errorf(sharedlog.KindCorrupt, "a bit has flipped"))
	for n := 0; k.lacks == nil; n++ {
		require.Less(t, n, 100)
		f.Tried("peer", sharedlog.Errorf(sharedlog.KindClosed, "it is away"))
		f.Pause(ctx)
	}
	require.ErrorIs(t, k.lacks, sharedlog.ErrCorrupt)
	require.ErrorContains(t, k.lacks, "holds 0 of 10 records")
	require.ErrorContains(t, k.lacks, "a bit has flipped")
	f.At = 5
	f.Pause(ctx)
	require.NoError(t, k.lacks)
	for n := 0; k.lacks == nil; n++ {
		require.Less(t, n, 100)
		f.Tried("peer", sharedlog.Errorf(sharedlog.KindClosed, "it is away"))
		f.Pause(ctx)
	}
	require.ErrorIs(t, k.lacks, sharedlog.ErrClosed, "the damage was before the progress")
	require.ErrorContains(t, k.lacks, "holds 5 of 10 records")
}
