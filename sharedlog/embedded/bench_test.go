package embedded_test

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

var benchSizes = []struct {
	name  string
	bytes int
}{{"100B", 100}, {"1KiB", 1 << 10}, {"16KiB", 16 << 10}}

var benchFsyncs = []embedded.Fsync{embedded.FsyncNever, embedded.FsyncInterval, embedded.FsyncAlways}

func benchLog(b *testing.B, fsync embedded.Fsync) sharedlog.Log {
	log, err := embedded.Open(b.TempDir(), embedded.Options{Fsync: fsync, Logger: quiet})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, log.Close()) })
	return log
}

// quantiles reports the 50th and 99th percentile, in µs. It sorts.
func quantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}

// BenchmarkDelivery measures the time from Append until a subscriber in another goroutine has the
// record, for one record at a time.
func BenchmarkDelivery(b *testing.B) {
	for _, fsync := range benchFsyncs {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("fsync=%s/%s", fsync, size.name), func(b *testing.B) {
				log := benchLog(b, fsync)
				r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"t"}})
				require.NoError(b, err)
				got := make(chan time.Time)
				ctx := b.Context()
				go func() {
					defer close(got)
					for {
						batch, err := r.Next(ctx)
						now := time.Now()
						if err != nil {
							return
						}
						for range batch.Entries {
							got <- now
						}
					}
				}()
				w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
				record := sharedlog.Record{Tags: []sharedlog.Tag{"t"}, Data: make([]byte, size.bytes)}
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					p := w.Append(record)
					took = append(took, (<-got).Sub(start))
					if _, err := p.Wait(ctx); err != nil {
						b.Fatal(err)
					}
				}
				quantiles(b, took)
				require.NoError(b, r.Close())
				<-got
			})
		}
	}
}

// BenchmarkBareDelivery measures the least that the same can cost: a checksum, write(2) of the
// bytes to a pre-written file, fdatasync where required, and a channel to another goroutine and
// back.
func BenchmarkBareDelivery(b *testing.B) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncNever, embedded.FsyncAlways} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("fsync=%s/%s", fsync, size.name), func(b *testing.B) {
				const length = 64 << 20
				f := bareFile(b, length)
				to, got := make(chan uint32), make(chan time.Time)
				go func() {
					defer close(got)
					for range to {
						got <- time.Now()
					}
				}()
				data := make([]byte, size.bytes)
				table := crc32.MakeTable(crc32.Castagnoli)
				var took []time.Duration
				off := int64(0)
				for b.Loop() {
					start := time.Now()
					crc := crc32.Checksum(data, table)
					if _, err := f.WriteAt(data, off); err != nil {
						b.Fatal(err)
					}
					if fsync == embedded.FsyncAlways {
						if err := unix.Fdatasync(int(f.Fd())); err != nil {
							b.Fatal(err)
						}
					}
					to <- crc
					took = append(took, (<-got).Sub(start))
					off = (off + int64(size.bytes)) % (length - 1<<20)
				}
				close(to)
				<-got
				quantiles(b, took)
			})
		}
	}
}

func bareFile(b *testing.B, length int) *os.File {
	f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, f.Close()) })
	_, err = f.Write(make([]byte, length))
	require.NoError(b, err)
	require.NoError(b, f.Sync())
	return f
}

// BenchmarkThroughput appends as fast as one writer can with 8 MiB in flight: one record a group,
// and batches of 256 KiB as a producer makes them. It ends when all groups are acknowledged. Fsync
// is interval.
func BenchmarkThroughput(b *testing.B) {
	for _, batch := range []int{0, 256 << 10} {
		for _, size := range benchSizes {
			records, name := 1, "single"
			if batch > 0 {
				records, name = batch/size.bytes, "batched"
			}
			b.Run(fmt.Sprintf("%s/%s", name, size.name), func(b *testing.B) {
				log := benchLog(b, embedded.FsyncInterval)
				w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
				group := make([]sharedlog.Record, records)
				tags := []sharedlog.Tag{"t"}
				for i := range group {
					group[i] = sharedlog.Record{Tags: tags, Data: make([]byte, size.bytes)}
				}
				window := max(8<<20/(records*size.bytes), 1)
				var flying []*sharedlog.Pending
				for b.Loop() {
					if len(flying) == window {
						if _, err := flying[0].Wait(b.Context()); err != nil {
							b.Fatal(err)
						}
						flying = flying[1:]
					}
					flying = append(flying, w.Append(group...))
				}
				for _, p := range flying {
					if _, err := p.Wait(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				n := float64(b.N * records)
				b.ReportMetric(n/b.Elapsed().Seconds(), "records/s")
				b.ReportMetric(n*float64(size.bytes)/1e6/b.Elapsed().Seconds(), "MB/s")
			})
		}
	}
}

// BenchmarkBareThroughput checksums 256 KiB at a time and writes them to files that grow to 64 MiB,
// as the log does with FsyncInterval.
func BenchmarkBareThroughput(b *testing.B) {
	const length = 64 << 20
	dir := b.TempDir()
	data := make([]byte, 256<<10)
	table := crc32.MakeTable(crc32.Castagnoli)
	var f *os.File
	off, sum := length, uint32(0)
	for b.Loop() {
		if off == length {
			if f != nil {
				require.NoError(b, f.Close())
			}
			var err error
			f, err = os.CreateTemp(dir, "bare")
			require.NoError(b, err)
			off = 0
		}
		sum ^= crc32.Checksum(data, table)
		if _, err := f.WriteAt(data, int64(off)); err != nil {
			b.Fatal(err)
		}
		off += len(data)
	}
	require.NoError(b, f.Close())
	b.ReportMetric(float64(b.N)*float64(len(data))/1e6/b.Elapsed().Seconds(), "MB/s")
}
