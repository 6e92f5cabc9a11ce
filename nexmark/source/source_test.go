package source_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
)

// readAll reads a partition to its end, at most so many items a Read.
func readAll(t *testing.T, p operators.Partition[event.Raw], most int) (all []string) {
	for {
		var b operators.Batch[event.Raw]
		st, err := p.Read(&b, most, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, b.Len(), most)
		for _, r := range b.Items {
			all = append(all, string(r))
		}
		if st.State == operators.Ended {
			require.Equal(t, operators.MaxTime, p.Watermark())
			return all
		}
	}
}

func lines(t *testing.T, n int64) (file string, raws []string) {
	g, err := generator.New(generator.Config{Seed: 3, Base: generator.DefaultBase})
	require.NoError(t, err)
	var text []byte
	for k := range n {
		raw := g.Append(nil, k)
		raws = append(raws, string(raw))
		text, err = event.AppendJSON(text, raw)
		require.NoError(t, err)
		text = append(text, '\n')
		if k%3 == 0 {
			text = append(text, " \n"...) // blank lines yield nothing
		}
	}
	file = filepath.Join(t.TempDir(), "events.jsonl")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	return file, raws
}

// From whatever position a file or a generator is read again, the rest is the same, with the same
// watermark.
func TestReadAgainFromEveryPosition(t *testing.T) {
	file, raws := lines(t, 100)
	g, err := generator.New(generator.Config{Seed: 3, Base: generator.DefaultBase, Events: 100})
	require.NoError(t, err)
	for name, src := range map[string]operators.Source[event.Raw]{
		"files":     source.NewFiles([]string{file}, 5, false),
		"generated": source.NewGenerated(g, 1, 5, false),
	} {
		t.Run(name, func(t *testing.T) {
			open := func() operators.Partition[event.Raw] {
				p, err := src.Open(0)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, p.Close()) })
				return p
			}
			require.Equal(t, raws, readAll(t, open(), 7))
			first := open()
			for n := 0; n < len(raws); n++ {
				again := open()
				require.NoError(t, again.Seek(first.Position(nil)))
				require.Equal(t, first.Watermark(), again.Watermark())
				require.Equal(t, raws[n:], readAll(t, again, 64))
				var b operators.Batch[event.Raw]
				_, err := first.Read(&b, 1, 0)
				require.NoError(t, err)
				require.Equal(t, b.Times[0], b.Items[0].Time())
				if n < len(raws)-1 {
					require.Equal(t, b.Times[0]-5, first.Watermark(), "these events are in the order of time")
				}
			}
		})
	}
}

func TestPositionsThatDoNotFit(t *testing.T) {
	long, _ := lines(t, 100)
	short, _ := lines(t, 3)
	p, err := source.NewFiles([]string{long}, 0, false).Open(0)
	require.NoError(t, err)
	readAll(t, p, 64)
	end := p.Position(nil)
	require.NoError(t, p.Close())
	q, err := source.NewFiles([]string{short}, 0, false).Open(0)
	require.NoError(t, err)
	require.ErrorContains(t, q.Seek(end), short)
	require.Error(t, q.Seek([]byte{1, 2, 3}))
	require.NoError(t, q.Close())
}

func TestMalformedLines(t *testing.T) {
	file, raws := lines(t, 10)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append([]byte("{\"nothing\": \n"), b...), 0o644))
	p, err := source.NewFiles([]string{file}, 0, false).Open(0)
	require.NoError(t, err)
	_, err = p.Read(&operators.Batch[event.Raw]{}, 10, 0)
	var bad *event.LineError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, file, bad.File)
	require.EqualValues(t, 1, bad.Line)
	require.NoError(t, p.Close())

	skipping := source.NewFiles([]string{file}, 0, true)
	p, err = skipping.Open(0)
	require.NoError(t, err)
	require.Equal(t, raws, readAll(t, p, 64))
	require.EqualValues(t, 1, skipping.Bad())
	require.NoError(t, p.Close())
}

func TestLineTooLong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "long")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("x", source.MaxLine+1)), 0o644))
	p, err := source.NewFiles([]string{file}, 0, false).Open(0)
	require.NoError(t, err)
	_, err = p.Read(&operators.Batch[event.Raw]{}, 10, 0)
	require.ErrorContains(t, err, fmt.Sprint(source.MaxLine))
	require.NoError(t, p.Close())
}

// Paced follows the clock: no event is early, and late events arrive at once.
func TestPaced(t *testing.T) {
	g, err := generator.New(generator.Config{Seed: 3, Base: generator.DefaultBase, Events: 10_000})
	require.NoError(t, err)
	p, err := source.Paced(source.NewGenerated(g, 2, 0, false), 2000).Open(0) // 1000 a second for this half
	require.NoError(t, err)
	read := func(now int64) (int, operators.Status) {
		var b operators.Batch[event.Raw]
		st, err := p.Read(&b, 512, now)
		require.NoError(t, err)
		return b.Len(), st
	}
	n, st := read(50_000)
	require.Zero(t, n)
	require.Equal(t, operators.Status{State: operators.Waiting, Due: 50_001}, st)
	n, _ = read(50_010)
	require.Equal(t, 10, n)
	n, st = read(50_010)
	require.Zero(t, n)
	require.EqualValues(t, 50_011, st.Due)
	n, _ = read(51_000)
	require.Equal(t, 512, n, "at most what was asked for")
	n, _ = read(51_000)
	require.Equal(t, 1000-10-512, n)
	require.NoError(t, p.Close())

	events, err := source.NewGenerated(g, 1, 0, true).Open(0) // by their own times
	require.NoError(t, err)
	var b operators.Batch[event.Raw]
	st, err = events.Read(&b, 512, generator.DefaultBase-1)
	require.NoError(t, err)
	require.Zero(t, b.Len())
	require.Equal(t, operators.Waiting, st.State)
	require.EqualValues(t, generator.DefaultBase, st.Due)
}
