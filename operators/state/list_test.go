package state

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// change is an item of a change log (exec.StateTable).
type change struct {
	op         byte
	key, value []byte
}

// logged returns the changes of a list since the last call, and their bytes.
func logged(t require.TestingT, m *List[int64, int64]) (all []change, text []byte) {
	out := exec.NewOutput(1)
	m.Changes(0, out)
	s := out.Section(0)
	r := serde.NewReader(s.Data)
	for range s.Items {
		require.Zero(t, r.Uint64())
		c := change{op: byte(r.Uint64())}
		c.key = r.Bytes()
		if c.op != exec.OpDelete {
			c.value = r.Bytes()
		}
		all = append(all, c)
	}
	require.NoError(t, r.Err())
	return all, s.Data
}

// A list that is restored from its change log then writes the same changes as the list that wrote the
// log. Each insertion is of a number that the log does not hold.
func TestRestoredListWritesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := NewList("l", 1, serde.Int64, serde.Int64)
		var log []change
		held := map[string]bool{}
		restored := NewList("l", 1, serde.Int64, serde.Int64)
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			for range rapid.IntRange(0, 8).Draw(t, "calls") {
				key, at := rapid.Int64Range(0, 2).Draw(t, "key"), rapid.Int64Range(0, 9).Draw(t, "time")
				call := rapid.IntRange(0, 3).Draw(t, "call")
				for _, m := range []*List[int64, int64]{live, restored} {
					switch all := m.Get(0, &key); {
					case call <= 1:
						_, err := m.Add(0, &key, at, &at)
						require.NoError(t, err)
					case call == 2:
						m.DropBefore(0, &key, at)
					case len(all) > 0:
						m.Remove(0, &key, int(at)%len(all))
					}
				}
			}
			changes, want := logged(t, live)
			_, got := logged(t, restored)
			require.True(t, bytes.Equal(want, got), "live %x, restored %x", want, got)
			for _, c := range changes {
				require.Equal(t, c.op != exec.OpInsert, held[string(c.key)])
				held[string(c.key)] = c.op == exec.OpInsert
			}
			log = append(log, changes...)
			if rapid.Bool().Draw(t, "restore") {
				restored = NewList("l", 1, serde.Int64, serde.Int64)
				for _, c := range log {
					require.NoError(t, restored.Apply(0, c.op, c.key, c.value))
				}
				require.NoError(t, restored.Restored([]int{0}))
				require.Equal(t, live.Len(), restored.Len())
			}
		}
	})
}

// BenchmarkList adds a value to each of 1 000 keys, whose values end after ten commits, and logs the
// changes. An operation is a commit.
func BenchmarkList(b *testing.B) {
	const keys, keep = 1_000, 10
	m := NewList("list", 16, serde.Int64, serde.Int64)
	out := exec.NewOutput(16)
	commit := func(at int64) {
		for k := range int64(keys) {
			group := int(k % 16)
			if _, err := m.Add(group, &k, at, &at); err != nil {
				b.Fatal(err)
			}
			m.DropBefore(group, &k, at-keep)
		}
		m.Changes(0, out)
		out.Reset()
	}
	at := int64(0)
	for ; at < 2*keep; at++ {
		commit(at)
	}
	b.ReportAllocs()
	for b.Loop() {
		at++
		commit(at)
	}
}
