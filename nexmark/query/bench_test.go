package query

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// benchEvents is the number of events in one round of a benchmark.
const benchEvents = 5000

func benchGenerator(b *testing.B) *generator.Generator {
	g, err := generator.New(generator.Config{Seed: 1, Base: generator.DefaultBase, Rate: 1_000_000})
	require.NoError(b, err)
	return g
}

// section is a stream's section of generated events, as a source writes it.
func section(g *generator.Generator) []byte {
	var payload []byte
	last := int64(0)
	for k := range int64(benchEvents) {
		raw := event.Raw(g.Append(nil, k))
		payload = serde.AppendInt64(payload, raw.Time()-last)
		last = raw.Time()
		payload = source.Raw.Append(payload, &raw)
	}
	return payload
}

type benchRuntime struct{ outs []*exec.Output }

func (r *benchRuntime) Home(int) exec.Home        { return nil }
func (r *benchRuntime) Task() (int, int)          { return 0, 1 }
func (r *benchRuntime) Groups() int               { return 64 }
func (r *benchRuntime) OutputGroups(int) int      { return 64 }
func (r *benchRuntime) Promises(int) []int64      { return nil }
func (r *benchRuntime) Output(i int) *exec.Output { return r.outs[i] }
func (r *benchRuntime) Now() int64                { return 0 }
func (r *benchRuntime) Random() uint64            { return 0 }
func (r *benchRuntime) Late(int)                  {}
func (r *benchRuntime) Fence() operators.Fence    { return operators.Fence{} }
func (r *benchRuntime) Arrived(int64)             {}
func (r *benchRuntime) Count(string, int64)       {}

// BenchmarkStage measures the stage that reads the events' stream, query by query: decode, the
// query's operators up to the next repartition, encode, and a commit every 5000 events. The budget
// is 150 ns an event and no allocation per event.
func BenchmarkStage(b *testing.B) {
	g := benchGenerator(b)
	payload := section(g)
	for q := 1; q <= 8; q++ {
		b.Run(fmt.Sprintf("q%d", q), func(b *testing.B) {
			plan, err := Build(Params{Number: q, Logged: true}, source.NewGenerated(g, 2, 0, false), Output{File: "-"})
			require.NoError(b, err)
			stage := plan.Stages[1]
			require.Equal(b, "input", stage.Name)
			rt := &benchRuntime{}
			for range stage.Outputs {
				rt.outs = append(rt.outs, exec.NewOutput(64))
			}
			c, err := stage.New(rt)
			require.NoError(b, err)
			round := func() {
				if _, err := c.Process(&exec.In{Group: 1, Items: benchEvents}, payload, exec.Budget{}); err != nil {
					b.Fatal(err)
				}
				if err := c.Flush(); err != nil {
					b.Fatal(err)
				}
				for _, o := range rt.outs {
					o.Reset()
				}
			}
			round()
			b.ReportAllocs()
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEvents, "ns/event")
		})
	}
}

// BenchmarkBareStage does the same work for Q1, Q2 and Q5 in a loop without the system: iterate
// over the section, decode in place, compute, encode (Q5: count in a map).
func BenchmarkBareStage(b *testing.B) {
	payload := section(benchGenerator(b))
	var out []byte
	counts := map[int64]int64{}
	for name, each := range map[string]func(r event.Raw){
		"q1": func(r event.Raw) {
			if r.Type() == event.TypeBid {
				x := must(event.DecodeBid(r))
				out = q1Serde{}.Append(out, &event.Q1Row{Auction: x.Auction, Bidder: x.Bidder, Price: x.Price, Time: x.Time, Extra: x.Extra})
			}
		},
		"q2": func(r event.Raw) {
			if auction, _, price, ok := event.BidKey(r); ok && auction%123 == 0 {
				out = serde.AppendInt64(serde.AppendInt64(out, auction), price)
			}
		},
		"q5": func(r event.Raw) {
			if auction, _, _, ok := event.BidKey(r); ok {
				counts[auction]++
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				out = out[:0]
				d := serde.ReaderOf(payload)
				for range benchEvents {
					d.Int64()
					each(event.Raw(d.Bytes()))
				}
				require.NoError(b, d.Err())
				clear(counts)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEvents, "ns/event")
		})
	}
}

// BenchmarkBarePipeline has the shape of a run without the system, on two goroutines: generate
// events in batches of 128 KiB, checksum, write(2) to files that grow to 64 MiB, pass the batch
// over a channel; iterate over it in place and decode the bids.
func BenchmarkBarePipeline(b *testing.B) {
	const batch, file = 128 << 10, 64 << 20
	g := benchGenerator(b)
	dir := b.TempDir()
	full, empty := make(chan []byte, 8), make(chan []byte, 8)
	for range 8 {
		empty <- make([]byte, 0, batch+2048)
	}
	done := make(chan int64)
	go func() {
		sum := int64(0)
		for buf := range full {
			d := serde.ReaderOf(buf)
			for d.Pos() < len(buf) && d.Err() == nil {
				if raw := event.Raw(d.Bytes()); raw.Type() == event.TypeBid {
					sum += must(event.DecodeBid(raw)).Price
				}
			}
			empty <- buf[:0]
		}
		done <- sum
	}()
	table := crc32.MakeTable(crc32.Castagnoli)
	var f *os.File
	var raw event.Raw
	off, k, files, crc := file, int64(0), 0, uint32(0)
	for b.Loop() {
		if off >= file {
			if f != nil {
				require.NoError(b, f.Close())
			}
			var err error
			f, err = os.Create(filepath.Join(dir, fmt.Sprint(files)))
			require.NoError(b, err)
			files++
			off = 0
		}
		buf := <-empty
		for len(buf) < batch {
			raw = g.Append(raw[:0], k)
			buf = source.Raw.Append(buf, &raw)
			k++
		}
		crc ^= crc32.Checksum(buf, table)
		n, err := f.WriteAt(buf, int64(off))
		if err != nil {
			b.Fatal(err)
		}
		off += n
		full <- buf
	}
	close(full)
	require.NotZero(b, <-done)
	require.NoError(b, f.Close())
	b.ReportMetric(float64(k)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
