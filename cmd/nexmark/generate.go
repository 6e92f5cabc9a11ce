package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
)

func newGenerate() *cobra.Command {
	var cfg generator.Config
	var out string
	cmd := &cobra.Command{
		Use:   "generate --events N --out FILE|-",
		Short: "Write generated events as JSON lines",
		Long: `Write generated events as JSON lines: one person, three auctions and 46 bids in
every 50, with the reference generator's distributions. The same settings give
the same bytes, always.

The rate is that of event time: event k happens k/rate seconds after
2015-07-15 00:00:00 UTC. With --disorder 3s the same events come in an order in
which one may be up to 3 s older than one before it.`,
		Example: `  nexmark generate --events 100000 --out events.jsonl
  nexmark generate --events 1000 --seed 7 --disorder 3s --out - | head`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Events < 1 {
				return usagef("--events: how many? at least 1")
			}
			if cfg.Rate < 1 {
				return usagef("--event-rate: %d; at least 1 event a second", cfg.Rate)
			}
			if out == "" {
				return usagef("--out: give a file, or - for standard output")
			}
			g, err := generator.New(cfg)
			if err != nil {
				return &usageError{Err: err}
			}
			return generate(cmd.Context(), g, out)
		},
	}
	cfg.Base = generator.DefaultBase
	f := cmd.Flags()
	f.Int64Var(&cfg.Events, "events", 0, "how many events")
	f.Uint64Var(&cfg.Seed, "seed", 1, "the random part; same seed, same bytes")
	f.Int64Var(&cfg.Rate, "event-rate", generator.DefaultRate, "events in a second of event time")
	f.DurationVar(&cfg.Disorder, "disorder", 0, "how much older than one before it an event may be")
	f.StringVar(&out, "out", "", "file to write, - for standard output")
	return cmd
}

// generate writes all events of g to a file, which it creates or truncates, or to standard output.
func generate(ctx context.Context, g *generator.Generator, out string) (err error) {
	w := io.Writer(os.Stdout)
	if out != "-" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() {
			if cerr := file.Close(); err == nil {
				err = cerr
			}
		}()
		w = file
	}
	total := g.Config().Events
	bar := newProgress(os.Stderr, out != "-", total)
	if err := writeEvents(ctx, w, g, bar.show); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: interrupted; it holds a part of the events", out)
		}
		return fmt.Errorf("%s: %w", out, err)
	}
	bar.done()
	return nil
}

// writeEvents writes the events in pieces of some 256 KiB. After each piece it reports the number
// of events so far.
func writeEvents(ctx context.Context, w io.Writer, g *generator.Generator, report func(events int64)) error {
	const piece = 256 << 10
	var raw, text []byte
	var err error
	for k := range g.Config().Events {
		raw = g.Append(raw[:0], k)
		if text, err = event.AppendJSON(text, raw); err != nil {
			return err
		}
		if len(text) < piece {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		text = text[:0]
		report(k + 1)
	}
	_, err = w.Write(text)
	return err
}

// progress shows the progress of a long command: on a terminal as a bar that is redrawn, elsewhere
// as a line every few seconds.
type progress struct {
	w     *os.File
	on    bool
	tty   bool
	total int64
	begin time.Time
	last  time.Time
}

func newProgress(w *os.File, on bool, total int64) *progress {
	now := time.Now()
	return &progress{w: w, on: on, tty: term.IsTerminal(int(w.Fd())), total: total, begin: now, last: now}
}

func (p *progress) show(n int64) {
	every := 5 * time.Second
	if p.tty {
		every = 100 * time.Millisecond
	}
	now := time.Now()
	if !p.on || now.Sub(p.last) < every {
		return
	}
	p.last = now
	rate := float64(n) / now.Sub(p.begin).Seconds() / 1e6
	if !p.tty {
		fmt.Fprintf(p.w, "%d of %d events, %.2f million a second\n", n, p.total, rate)
		return
	}
	const width = 40
	var bar [width]byte
	for i := range bar {
		bar[i] = ' '
		if int64(i)*p.total < n*width {
			bar[i] = '='
		}
	}
	fmt.Fprintf(p.w, "\r[%s] %3d %%  %.2f million events/s ", bar[:], n*100/p.total, rate)
}

func (p *progress) done() {
	if !p.on {
		return
	}
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, "%d events in %.1f s\n", p.total, time.Since(p.begin).Seconds())
}
