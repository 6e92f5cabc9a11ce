package logtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
)

// RunRandom plays random histories on f's log and on the twin, each step on both, and compares
// every answer. Each step waits for its outcome, so the two must agree on every LSN.
func RunRandom(t *testing.T, f Factory) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		twin := mem.New(mem.Options{})
		log := f.Open(t)
		type writer struct {
			name string
			next uint64
			cond sharedlog.Condition
		}
		var writers []*writer
		born := 0
		tags := []sharedlog.Tag{"a", "b", "c", "d"}
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(tags), 1, 3, func(t sharedlog.Tag) sharedlog.Tag { return t })
		keys := rapid.SampledFrom([]string{"k", "l"})
		values := rapid.SampledFrom([]string{"", "1", "2"})
		position := func(rt *rapid.T) sharedlog.LSN {
			tail, err := twin.Tail(ctx)
			require.NoError(rt, err)
			return sharedlog.LSN(rapid.Uint64Range(0, uint64(tail)+1).Draw(rt, "position"))
		}
		kinds := func(rt *rapid.T, want, got error) {
			require.Equal(rt, sharedlog.KindOf(want), sharedlog.KindOf(got), "twin: %v, log: %v", want, got)
			require.Equal(rt, want == nil, got == nil, "twin: %v, log: %v", want, got)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"new writer": func(rt *rapid.T) {
				born++
				w := &writer{name: fmt.Sprint("w", born), next: 1}
				if rapid.Bool().Draw(rt, "conditional") {
					w.cond = sharedlog.Condition{Key: keys.Draw(rt, "key"), Value: []byte(values.Draw(rt, "value"))}
				}
				writers = append(writers, w)
			},
			"append": func(rt *rapid.T) {
				if len(writers) == 0 {
					rt.Skip("no writer yet") // skips this step, not the test
				}
				w := writers[rapid.IntRange(0, len(writers)-1).Draw(rt, "writer")]
				n := w.next
				switch rapid.IntRange(0, 9).Draw(rt, "number") {
				case 0:
					n++ // a gap
				case 1:
					n = max(1, n-1) // a repeat
				}
				g := sharedlog.Group{Writer: w.name, Number: n, If: w.cond}
				for i := range rapid.IntRange(1, 4).Draw(rt, "records") {
					size := rapid.SampledFrom([]int{0, 10, 3000}).Draw(rt, "size")
					g.Records = append(g.Records, sharedlog.Record{Tags: some.Draw(rt, "tags"), Data: fmt.Appendf(make([]byte, size), "%s.%d.%d", w.name, n, i)})
				}
				want, werr := twin.Append(g).Wait(ctx)
				got, gerr := log.Append(g).Wait(ctx)
				if f.Seals && n < w.next && sharedlog.KindOf(gerr) == sharedlog.KindUnknown {
					return
				}
				kinds(rt, werr, gerr)
				require.Equal(rt, want, got)
				if n == w.next && sharedlog.KindOf(werr) != sharedlog.KindOutOfOrder {
					w.next++
				}
			},
			"change": func(rt *rapid.T) {
				key, old, new := keys.Draw(rt, "key"), values.Draw(rt, "old"), values.Draw(rt, "new")
				want, werr := twin.CompareAndSet(ctx, key, []byte(old), []byte(new))
				got, gerr := log.CompareAndSet(ctx, key, []byte(old), []byte(new))
				kinds(rt, werr, gerr)
				require.Equal(rt, want.Place, got.Place)
				require.Equal(rt, string(want.Value), string(got.Value))
			},
			"read": func(rt *rapid.T) {
				ts, from, until := some.Draw(rt, "tags"), position(rt), position(rt)
				tail, err := twin.Tail(ctx)
				require.NoError(rt, err)
				until = max(1, min(until, tail)) // a reader would wait for an until above the tail
				want, werr := Read(ctx, twin, from, until, ts...)
				got, gerr := Read(ctx, log, from, until, ts...)
				kinds(rt, werr, gerr)
				if werr == nil {
					require.Equal(rt, want, got)
				}
			},
			"last": func(rt *rapid.T) {
				tag, below := rapid.SampledFrom(tags).Draw(rt, "tag"), position(rt)
				want, wok, werr := twin.Last(ctx, tag, below)
				got, gok, gerr := log.Last(ctx, tag, below)
				kinds(rt, werr, gerr)
				require.Equal(rt, wok, gok)
				require.Equal(rt, want.LSN, got.LSN)
				require.Equal(rt, string(want.Data), string(got.Data))
			},
			"trim": func(rt *rapid.T) {
				tag, before := rapid.SampledFrom(tags).Draw(rt, "tag"), position(rt)
				kinds(rt, twin.Trim(ctx, tag, before), log.Trim(ctx, tag, before))
			},
			"reopen": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
					return
				}
				log = f.Reopen(t, log)
				require.NoError(rt, twin.Close())
				twin.Reopen()
				writers = nil // their names must not be used again
			},
			"": func(rt *rapid.T) {
				want, err := twin.Tail(ctx)
				require.NoError(rt, err)
				got, err := log.Tail(ctx)
				require.NoError(rt, err)
				require.Equal(rt, want, got)
			},
		})
		require.NoError(rt, log.Close())
	})
}
