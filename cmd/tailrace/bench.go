package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/sharedlog"
)

type logBench struct {
	target
	size     cli.Size
	rate     float64
	duration time.Duration
	warmup   time.Duration
	writers  int
	batch    cli.Size
	json     bool
}

func newLogBench() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "bench", Short: "Measure latency or throughput of the log"}, newLatency(), newThroughput())
}

func (b *logBench) common(cmd *cobra.Command) {
	b.target.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&b.duration, "duration", 10*time.Second, "how long to measure")
	f.DurationVar(&b.warmup, "warmup", 2*time.Second, "how long to run before")
	f.BoolVar(&b.json, "json", false, "the result as JSON")
}

// latencies are in µs.
type latencies struct {
	Size       int64   `json:"size"`
	Rate       float64 `json:"rate"`
	Count      int64   `json:"count"`
	AckP50     int64   `json:"acked_p50_us"`
	AckP99     int64   `json:"acked_p99_us"`
	DeliverP50 int64   `json:"delivered_p50_us"`
	DeliverP90 int64   `json:"delivered_p90_us"`
	DeliverP99 int64   `json:"delivered_p99_us"`
	DeliverMax int64   `json:"delivered_max_us"`
}

func newLatency() *cobra.Command {
	b := logBench{size: 16 << 10}
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Append at a steady rate and time until acknowledged and until delivered to a reader of this process",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.rate <= 0 || b.size < 16 {
				return usagef("--rate must be positive and --size at least 16")
			}
			var l *latencies
			err := b.withAppends(cmd.Context(), func(log sharedlog.Log) (err error) {
				l, err = b.latency(cmd.Context(), log)
				return err
			})
			if err != nil {
				return err
			}
			if b.json {
				return json.NewEncoder(os.Stdout).Encode(l)
			}
			fmt.Printf("%d B at %.0f appends/s, %d samples: acknowledged p50 %d µs, p99 %d µs; delivered p50 %d µs, p90 %d µs, p99 %d µs, most %d µs\n",
				l.Size, l.Rate, l.Count, l.AckP50, l.AckP99, l.DeliverP50, l.DeliverP90, l.DeliverP99, l.DeliverMax)
			return nil
		},
	}
	b.common(cmd)
	cmd.Flags().Var(&b.size, "size", "bytes of a record")
	cmd.Flags().Float64Var(&b.rate, "rate", 100, "appends a second")
	return cmd
}

func (b *logBench) latency(ctx context.Context, log sharedlog.Log) (*latencies, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tag := sharedlog.Tag(fmt.Sprintf("bench-%016x", rand.Uint64()))
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: tail, Credit: 64 << 20})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	began := time.Now()
	measured := int64(b.warmup)
	total := int64(float64(b.rate) * (b.warmup + b.duration).Seconds())
	acked, delivered := hdrhistogram.New(1, 60_000_000, 3), hdrhistogram.New(1, 60_000_000, 3)
	read := make(chan error, 1)
	go func() {
		for n := int64(0); n < total; {
			batch, err := r.Next(ctx)
			if err != nil {
				read <- err
				return
			}
			now := int64(time.Since(began))
			for _, e := range batch.Entries {
				n++
				if sent := int64(binary.LittleEndian.Uint64(e.Data)); sent >= measured {
					_ = delivered.RecordValue(max(1, (now-sent)/1000))
				}
			}
		}
		read <- nil
	}()
	w := sharedlog.NewWriter(log, string(tag), sharedlog.Condition{})
	acks := make(chan *sharedlog.Pending, 1<<16)
	sents := make(chan int64, 1<<16)
	ackDone := make(chan error, 1)
	go func() {
		for p := range acks {
			sent := <-sents
			if _, err := p.Wait(ctx); err != nil {
				ackDone <- err
				return
			}
			if now := int64(time.Since(began)); sent >= measured {
				_ = acked.RecordValue(max(1, (now-sent)/1000))
			}
		}
		ackDone <- nil
	}()
	for i := range total {
		at := time.Duration(float64(i) / b.rate * float64(time.Second))
		if wait := at - time.Since(began); wait > 0 {
			time.Sleep(wait)
		}
		data := make([]byte, b.size)
		now := int64(time.Since(began))
		binary.LittleEndian.PutUint64(data, uint64(now))
		sents <- now
		acks <- w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: data})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	close(acks)
	if err := errors.Join(<-ackDone, <-read); err != nil {
		return nil, err
	}
	return &latencies{
		Size: int64(b.size), Rate: b.rate, Count: delivered.TotalCount(), AckP50: acked.ValueAtQuantile(50), AckP99: acked.ValueAtQuantile(99),
		DeliverP50: delivered.ValueAtQuantile(50), DeliverP90: delivered.ValueAtQuantile(90), DeliverP99: delivered.ValueAtQuantile(99), DeliverMax: delivered.Max(),
	}, nil
}

// throughput is the throughput of the log.
type throughput struct {
	Size    int64   `json:"size"`
	Writers int     `json:"writers"`
	Batch   int64   `json:"batch_bytes"`
	Seconds float64 `json:"seconds"`
	Records float64 `json:"records_per_second"`
	MB      float64 `json:"mb_per_second"`
	Read    bool    `json:"read_by_this_process"`
}

func newThroughput() *cobra.Command {
	b := logBench{size: 1 << 10, batch: 256 << 10}
	var read bool
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "Append as much as the log takes, in batches, and count what is acknowledged",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.writers < 1 || b.size < 1 {
				return usagef("--writers and --size must be at least 1")
			}
			var t *throughput
			err := b.withAppends(cmd.Context(), func(log sharedlog.Log) (err error) {
				t, err = b.throughput(cmd.Context(), log, read)
				return err
			})
			if err != nil {
				return err
			}
			if b.json {
				return json.NewEncoder(os.Stdout).Encode(t)
			}
			fmt.Printf("%d B, %d writers, groups of %v: %.0f records/s, %.1f MB/s over %.1f s\n", t.Size, t.Writers, &b.batch, t.Records, t.MB, t.Seconds)
			return nil
		},
	}
	b.common(cmd)
	f := cmd.Flags()
	f.Var(&b.size, "size", "bytes of a record")
	f.Var(&b.batch, "batch", "about how many bytes of records one group holds")
	f.IntVar(&b.writers, "writers", 4, "how many writers append side by side, each to its home shard")
	f.BoolVar(&read, "read", false, "also read everything back, in this process, while it is appended")
	return cmd
}

func (b *logBench) throughput(ctx context.Context, log sharedlog.Log, read bool) (*throughput, error) {
	run := fmt.Sprintf("bench-%016x", rand.Uint64())
	each := max(1, min(int(b.batch)/int(b.size), sharedlog.MaxGroupTags))
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tags []sharedlog.Tag
	for i := range b.writers {
		tags = append(tags, sharedlog.Tag(fmt.Sprint(run, "/", i)))
	}
	if read {
		r, err := log.NewReader(sharedlog.ReaderOptions{Tags: tags, From: tail, Credit: 32 << 20})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		go func() {
			for {
				if _, err := r.Next(ctx); err != nil {
					return
				}
			}
		}()
	}
	data := make([]byte, b.size)
	begin := time.Now()
	from, until := begin.Add(b.warmup), begin.Add(b.warmup+b.duration)
	counts := make(chan int64, b.writers)
	failed := make(chan error, b.writers)
	for i := range b.writers {
		go func() {
			w := sharedlog.NewWriter(log, fmt.Sprint(run, "-", i), sharedlog.Condition{})
			flying := make(chan *sharedlog.Pending, 32)
			go func() {
				defer close(flying)
				for time.Now().Before(until) && ctx.Err() == nil {
					g := make([]sharedlog.Record, each)
					for j := range g {
						g[j] = sharedlog.Record{Tags: tags[i : i+1], Data: data}
					}
					flying <- w.Append(g...)
				}
			}()
			n := int64(0)
			for p := range flying {
				if _, err := p.Wait(ctx); err != nil {
					failed <- err
					cancel()
					return
				}
				if now := time.Now(); now.After(from) && now.Before(until) {
					n += int64(each)
				}
			}
			counts <- n
		}()
	}
	total := int64(0)
	for range b.writers {
		select {
		case n := <-counts:
			total += n
		case err := <-failed:
			return nil, err
		}
	}
	s := b.duration.Seconds()
	return &throughput{
		Size: int64(b.size), Writers: b.writers, Batch: int64(b.batch), Seconds: s, Read: read,
		Records: float64(total) / s, MB: float64(total) * float64(b.size) / s / 1e6,
	}, nil
}
