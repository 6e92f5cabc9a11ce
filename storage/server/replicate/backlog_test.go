package replicate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog/wire"
)

// The backlog has the newest groups, as many as fit below its limit, one at least, and no gap: a
// sender that continues where a message ended sends each group once, in order. What it no longer has
// it says, and what it does not have yet it does not invent.
func TestBacklog(t *testing.T) {
	bytes := make([]byte, wire.MessageBytes)
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 4*wire.MessageBytes).Draw(t, "limit")
		b := NewBacklog(limit)
		var all []wire.Placed // of which b must have those from kept on
		kept, end := 0, uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 3, 1500}).Draw(t, "groups") {
					p := wire.Placed{Position: end, Body: wire.Body{
						Records: rapid.SampledFrom([]int{1, 2, 7}).Draw(t, "records"),
						Bytes:   bytes[:rapid.SampledFrom([]int{0, 100, 300_000, len(bytes)}).Draw(t, "bytes")],
					}}
					b.Add(p.Position, p.Body)
					all, end = append(all, p), end+uint64(p.Body.Records)
				}
				size := int64(0)
				for i := len(all) - 1; i >= kept; i-- {
					if size += int64(len(all[i].Body.Bytes)); size > limit && i < len(all)-1 {
						kept = i + 1
					}
				}
			},
			"release": func(t *rapid.T) {
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)).Draw(t, "below")
					position := end
					if i < len(all) {
						position = all[i].Position
					}
					b.Release(position)
					kept = max(kept, i)
				}
			},
			"": func(t *rapid.T) {
				i := rapid.IntRange(0, len(all)).Draw(t, "from")
				position := end
				if i < len(all) {
					position = all[i].Position
				}
				groups, _, ok, closed := b.from(position, nil)
				require.False(t, closed)
				switch {
				case kept == len(all): // it is empty: the sender reads what it lacks from disk
					require.True(t, ok)
					require.Empty(t, groups)
				case i < kept:
					require.False(t, ok)
					require.Empty(t, groups)
				default:
					require.True(t, ok)
					require.LessOrEqual(t, len(groups), len(all)-i)
					require.Equal(t, i < len(all), len(groups) > 0)
					sent := 0
					for k, g := range groups {
						require.Equal(t, all[i+k].Position, g.Position)
						require.Len(t, g.Body.Bytes, len(all[i+k].Body.Bytes))
						require.Less(t, sent, wire.MessageBytes, "a message has room for no more")
						sent += len(g.Body.Bytes)
					}
					if i+len(groups) < len(all) {
						require.GreaterOrEqual(t, sent, wire.MessageBytes)
					}
				}
			},
		})
	})
}

// A sender that has sent all waits on a channel that is closed when there is more, and when the
// backlog is closed; what comes after that is not kept.
func TestBacklogWakesSenders(t *testing.T) {
	b := NewBacklog(1000)
	_, more, ok, closed := b.from(0, nil)
	require.True(t, ok)
	require.False(t, closed)
	b.Add(0, wire.Body{Records: 3, Bytes: make([]byte, 10)})
	select {
	case <-more:
		require.Fail(t, "the group is not written yet")
	default:
	}
	b.Signal()
	<-more
	groups, more, _, _ := b.from(0, nil)
	require.Len(t, groups, 1)
	b.Close()
	<-more
	b.Add(3, wire.Body{Records: 1})
	b.Signal()
	b.Close()
	groups, more, _, closed = b.from(3, nil)
	require.True(t, closed)
	require.Empty(t, groups)
	<-more
}
