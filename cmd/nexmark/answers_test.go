package main

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// worlds are inputs of different character; each is written once and read by all queries.
var worlds = []struct {
	name     string
	files    int
	disorder time.Duration
	change   func(rng *rand.Rand, b *event.Bid, a *event.Auction, p *event.Person)
}{
	{name: "in order", files: 1},
	{name: "disorder", files: 1, disorder: 3 * time.Second},
	{name: "four files", files: 4, disorder: 2 * time.Second},
	{name: "ties", files: 2, change: func(rng *rand.Rand, b *event.Bid, _ *event.Auction, _ *event.Person) {
		if b != nil {
			b.Price = 100 * rng.Int64N(3)
			b.Auction = 1000 + b.Auction%7
		}
	}},
	{name: "hot keys", files: 1, change: func(rng *rand.Rand, b *event.Bid, a *event.Auction, _ *event.Person) {
		if b != nil && rng.IntN(10) > 0 {
			b.Auction = 1003
		}
		if a != nil && rng.IntN(10) > 0 {
			a.Seller, a.Category = 1001, 10
		}
	}},
	{name: "silent gaps", files: 2, change: func(_ *rand.Rand, b *event.Bid, a *event.Auction, p *event.Person) {
		for _, t := range times(b, a, p) {
			*t += *t / 2000 % 4 * 60_000 // every two seconds, a jump of a minute ahead or back
			*t -= *t % 7
		}
	}},
}

func times(b *event.Bid, a *event.Auction, p *event.Person) []*int64 {
	switch {
	case b != nil:
		return []*int64{&b.Time}
	case a != nil:
		return []*int64{&a.Time, &a.Expires}
	}
	return []*int64{&p.Time}
}

func rewrite(rng *rand.Rand, raw event.Raw, change func(*rand.Rand, *event.Bid, *event.Auction, *event.Person)) (event.Raw, error) {
	switch raw.Type() {
	case event.TypeBid:
		b, err := event.DecodeBid(raw)
		change(rng, &b, nil, nil)
		return event.AppendBid(nil, &b), err
	case event.TypeAuction:
		a, err := event.DecodeAuction(raw)
		change(rng, nil, &a, nil)
		return event.AppendAuction(nil, &a), err
	}
	p, err := event.DecodePerson(raw)
	change(rng, nil, nil, &p)
	return event.AppendPerson(nil, &p), err
}

// All eight queries over every kind of input equal the brute-force evaluation, at every
// parallelism, number of key groups, protocol and commit interval (each pair of input and query
// uses a different part of the combinations; the ordinary run, one parallelism for each protocol).
func TestAnswersOfEveryKind(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for w, world := range worlds {
		dir := t.TempDir()
		paths, in := writeInput(t, dir, 12_000, world.files, world.disorder)
		delay := 4 * time.Second
		if world.change != nil {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			changed := &oracle.Input{}
			for _, path := range paths {
				changeFile(t, path, func(raw event.Raw) event.Raw {
					raw, err := rewrite(rng, raw, world.change)
					require.NoError(t, err)
					require.NoError(t, changed.Add(raw))
					return raw
				})
			}
			in = changed
			delay = 10 * time.Minute // the changed events jump in time
		}
		n := w
		for query := 1; query <= 8; query++ {
			for i, protocol := range []string{"fused", "marker", "txn", "aligned"} {
				for k, parallelism := range []int{1, 2, 4} {
					if (w+query+i+k)%3 != 0 && os.Getenv("TAILRACE_SOAK") == "" {
						continue
					}
					n++
					s := driver.Settings{
						Query: query, Inputs: paths, WatermarkDelay: delay, Q7Window: 10 * time.Second,
						Protocol: protocol, Parallelism: parallelism, Groups: []int{8, 64}[n%2], Logged: n%3 == 0,
						CommitInterval: []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}[n%3],
						Checkpoints:    storetest.NewMem(),
					}
					t.Run(fmt.Sprintf("%s/q%d/%s/%d/%d/%v", world.name, query, protocol, parallelism, s.Groups, s.CommitInterval), func(t *testing.T) {
						t.Parallel()
						dir := t.TempDir()
						s.Output = filepath.Join(dir, "out")
						log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 1 << 20, CacheBytes: 1 << 20, Logger: quiet})
						require.NoError(t, err)
						sum, err := driver.Run(t.Context(), log, s, nil)
						require.NoError(t, err)
						require.NoError(t, log.Close())
						require.Zero(t, sum.Late)
						sameAnswer(t, query, in, s.Output)
					})
				}
			}
		}
	}
}

// changeFile applies change to each event of a file and writes the file again.
func changeFile(t *testing.T, path string, change func(event.Raw) event.Raw) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var p event.Parser
	var out []byte
	for len(b) > 0 {
		end := 0
		for b[end] != '\n' {
			end++
		}
		raw, err := p.Append(nil, b[:end])
		require.NoError(t, err)
		out, err = event.AppendJSON(out, change(raw))
		require.NoError(t, err)
		b = b[end+1:]
	}
	require.NoError(t, os.WriteFile(path, out, 0o644))
}
