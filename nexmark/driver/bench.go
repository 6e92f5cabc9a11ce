package driver

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tailrace.dev/tailrace/internal/build"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
)

// BenchSettings are the settings of a measurement. Bench sets the generator's base time itself.
type BenchSettings struct {
	Settings
	// Max generates events as fast as the query takes them, instead of at Rate events/s.
	Max              bool
	Warmup, Duration time.Duration
	// FailAt, if not 0, is when in the measured time a task of FailStage loses its memory.
	// FailStage defaults to the stage with the most keys; CheckFailure must have accepted another.
	FailAt    time.Duration
	FailStage string
	// Profile, if set, is called at the end of the warm-up, and the function it returns at the end
	// of the measured time. It profiles the process between the two.
	Profile func() (stop func() error, err error) `json:"-"`
}

// Quantiles are the quantiles of a latency; they are Unseen if no row was measured.
type Quantiles struct {
	P50   MS    `json:"p50_ms"`
	P90   MS    `json:"p90_ms"`
	P99   MS    `json:"p99_ms"`
	P999  MS    `json:"p99_9_ms"`
	Max   MS    `json:"max_ms"`
	Count int64 `json:"count"`
}

// Report is the result of a measurement. All figures cover the time after the warm-up.
type Report struct {
	Workload  string  `json:"workload"`        // q5, count
	Query     int     `json:"query,omitempty"` // NEXMark's number
	Protocol  string  `json:"protocol"`
	Offered   float64 `json:"rate_offered"`  // events/s; 0 with --rate max
	Achieved  float64 `json:"rate_achieved"` // events/s that the query's stages consumed
	Sustained bool    `json:"sustained"`
	Outputs   int64   `json:"outputs"`
	// Emit is measured when a row leaves the output operator, Visible when a reader of committed
	// rows receives it.
	Emit    Quantiles `json:"emit"`
	Visible Quantiles `json:"visible"`
	// Measured names the time that latencies are measured from.
	Measured     string `json:"latency_from"`
	BacklogBytes int64  `json:"backlog_bytes"`
	Late         uint64 `json:"late"`
	*Clocks
	CPU           float64 `json:"cpu_seconds"`
	CPUPerEvent   float64 `json:"cpu_ns_per_event"`
	RSS           uint64  `json:"peak_rss_bytes"`
	BytesPerEvent float64 `json:"log_bytes_per_event"`
	AppendsPer1k  float64 `json:"log_appends_per_1000_events"`
	AllocsPer1k   float64 `json:"allocs_per_1000_events"` // of the whole process
	AllocBytes    float64 `json:"alloc_bytes_per_event"`
	Seconds       float64 `json:"seconds"`
	// Skipped counts how often rows of the warm-up were trimmed before the reader of Visible read
	// them, so that it continued behind them.
	Skipped int64 `json:"warmup_skips,omitempty"`
	// Recovery describes the recovery from the failure at FailAt.
	Recovery *Recovery `json:"recovery,omitempty"`
	// Rescaled has the outcome of each of Settings.Rescales.
	Rescaled []Rescaled `json:"rescale,omitempty"`
	// Autoscaled says how stages were autoscaled.
	Autoscaled []tasks.Autoscaled `json:"autoscale,omitempty"`
	// Balanced says how the key groups of a stage were distributed in the measured time.
	Balanced *Balanced `json:"balance,omitempty"`
	// Exchange is what the stages have sent each other.
	Exchange *Exchange `json:"exchange,omitempty"`
	Version  string    `json:"version"`
	Go       string    `json:"go"`
	Cores    int       `json:"cores"`
	Source   string    `json:"source"`
	Fsync    string    `json:"fsync"`
	Settings any       `json:"settings"`
}

// latency collects the ages of rows. Safe for concurrent use.
type latency struct {
	mu     sync.Mutex
	h      *hdrhistogram.Histogram
	lately *hdrhistogram.Histogram
	step   *hdrhistogram.Histogram // of a timeline; nil if there is none
}

func newLatency() *latency {
	return &latency{h: hdrhistogram.New(1, 3_600_000_000, 3), lately: hdrhistogram.New(1, 3_600_000_000, 2)}
}

// add counts rows with these event times (ms) as seen now. A row that is seen before its event time
// counts as 0 ms old: a window may close early by the resolution of the clock.
func (l *latency) add(times []int64) {
	now := time.Now().UnixMicro()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 0; i < len(times); {
		// Rows that arrive together mostly have the same millisecond.
		t, from := times[i], i
		for i++; i < len(times) && times[i] == t; i++ {
			continue
		}
		us, n := min(max(now-t*1000, 1), 3_600_000_000), int64(i-from)
		// The value is in range, so recording cannot fail.
		_ = l.h.RecordValues(us, n)
		_ = l.lately.RecordValues(us, n)
		if l.step != nil {
			_ = l.step.RecordValues(us, n)
		}
	}
}

func (l *latency) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Reset()
}

// record starts the steps of a timeline.
func (l *latency) record() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step = hdrhistogram.New(1, 3_600_000_000, 3)
}

// lastStep returns how many rows there were since its last call, and their latency.
func (l *latency) lastStep() (rows int64, s Short) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rows = l.step.TotalCount(); rows == 0 {
		return 0, unseen()
	}
	at := func(q float64) MS { return MS(l.step.ValueAtQuantile(q)) / 1000 }
	s = Short{P50: at(50), P99: at(99), Max: at(100)}
	l.step.Reset()
	return rows, s
}

func (l *latency) median() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lately.TotalCount() == 0 {
		return math.NaN()
	}
	v := float64(l.lately.ValueAtQuantile(50)) / 1000
	l.lately.Reset()
	return v
}

func (l *latency) quantiles() Quantiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(q float64) MS {
		if l.h.TotalCount() == 0 {
			return Unseen()
		}
		return MS(l.h.ValueAtQuantile(q)) / 1000
	}
	return Quantiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: at(100), Count: l.h.TotalCount()}
}

// Bench measures a query on generated events: open loop at a fixed rate, or as fast as the query
// takes them. The log should be empty; Bench leaves it in a state that nothing else can use.
func Bench(ctx context.Context, log sharedlog.Log, s BenchSettings, show func(Live)) (*Report, error) {
	s.Generator.Base = time.Now().Add(100 * time.Millisecond).UnixMilli()
	emit, visible := newLatency(), newLatency()
	j, err := s.buildTo(s.input(!s.Max), query.Output{Rows: visible.add, Emitted: emit.add})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	job, err := tasks.Start(ctx, log, j.plan, j.options)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	rescales := s.rescaler(ctx, job, cancel)
	autoscaled, err := s.autoscale(ctx, job)
	if err != nil {
		return nil, err
	}
	balanced, err := s.balance(ctx, job)
	if err != nil {
		return nil, err
	}
	defer balanced.end()
	grains := sync.OnceValue(s.chosen(job))
	defer grains()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	until := func(d time.Duration) error {
		end := time.NewTimer(d)
		defer end.Stop()
		for {
			select {
			case <-job.Done():
				if _, err := rescales.end(); err != nil {
					return err
				}
				if err := job.Wait(); err != nil {
					return err
				}
				return errors.New("the events ended before the measurement")
			case <-end.C:
				return nil
			case <-tick.C:
				if show != nil {
					l := reading(job, time.Since(begin), (*tasks.Status).Items)
					l.Latency = visible.median()
					show(l)
				}
			}
		}
	}
	if err := until(s.Warmup); err != nil {
		return nil, err
	}
	emit.reset()
	visible.reset()
	before, stats := job.Status(), log.Stats()
	from := s.consumed(before)
	balanced.measure(s.CommitInterval)
	cpu, _ := usage()
	var heap, heapAfter runtime.MemStats
	runtime.ReadMemStats(&heap)
	stop := func() error { return nil }
	if s.Profile != nil {
		if stop, err = s.Profile(); err != nil {
			return nil, err
		}
	}
	var timeline []Moment
	if show := s.Timeline; len(s.Rescales) > 0 {
		s.Timeline = func(m Moment) error {
			timeline = append(timeline, m)
			if show == nil {
				return nil
			}
			return show(m)
		}
	}
	measured := time.Now()
	stopTimeline := s.timeline(recorder{
		backlog: func() int64 { return backlog(job) }, tasks: func() int { return tasksOf(job) },
		spent: func() spent { return spentOf(job.Status()) }, events: func() int64 { return s.consumed(job.Status()) }, visible: visible, emit: emit, unpaced: s.Max,
	})
	var failed *failure
	if s.FailAt > 0 {
		if err := until(s.FailAt); err != nil {
			return nil, errors.Join(err, stopTimeline(), stop())
		}
		if failed, err = s.fail(ctx, job, j.workload); err != nil {
			return nil, errors.Join(err, stopTimeline(), stop())
		}
	}
	if err := until(s.Duration - s.FailAt); err != nil {
		return nil, errors.Join(err, stopTimeline(), stop())
	}
	rescaled, err := rescales.end()
	if err != nil {
		return nil, errors.Join(err, stopTimeline(), stop())
	}
	took := time.Since(measured).Seconds()
	if err := stopTimeline(); err != nil {
		return nil, errors.Join(err, stop())
	}
	effects(rescaled, timeline, measured)
	ended, after := job.Status(), log.Stats()
	to := max(from, s.consumed(ended))
	runtime.ReadMemStats(&heapAfter)
	r := &Report{
		Workload: j.workload.Name, Query: j.workload.Query, Protocol: j.options.Protocol, Seconds: took, Emit: emit.quantiles(), Visible: visible.quantiles(),
		Achieved: float64(to-from) / took, Outputs: visible.quantiles().Count,
		Version: Version(), Go: runtime.Version(), Cores: runtime.GOMAXPROCS(0), Settings: s,
		Measured: "final: window or auction end", Source: "chained", Clocks: j.clocks(),
	}
	if s.Eager {
		r.Measured = "eager: newest event of the row"
	}
	if s.Logged {
		r.Source = "log"
	}
	r.Rescaled, r.Autoscaled = rescaled, autoscaled()
	r.Balanced = balanced.read()
	if failed != nil {
		r.Recovery = failed.report()
	}
	r.Exchange = exchange(exchanged(j.plan, s.Logged), before, ended).per(to-from, int64(after.Written-stats.Written))
	r.Exchange.RemoteShare = new(float64) // one process
	r.BacklogBytes = backlog(job)
	for _, t := range job.Status() {
		r.Late += t.Late
		if r.Clocks != nil {
			r.Clocks.add(&t)
		}
	}
	if r.Clocks != nil {
		r.Chosen = grains()
	}
	now, rss := usage()
	r.CPU, r.RSS = now-cpu, rss
	if n := float64(to - from); n > 0 {
		r.CPUPerEvent = r.CPU / n * 1e9
		r.BytesPerEvent = float64(after.Written-stats.Written) / n
		r.AppendsPer1k = float64(after.Groups-stats.Groups) / n * 1000
		r.AllocsPer1k = float64(heapAfter.Mallocs-heap.Mallocs) / n * 1000
		r.AllocBytes = float64(heapAfter.TotalAlloc-heap.TotalAlloc) / n
	}
	if !s.Max {
		r.Offered = float64(s.Generator.Rate)
		// The query keeps up if it consumes what is offered and the backlog is less than a second's
		// worth of events.
		perEvent := 141.0
		r.Sustained = s.keepsUp(to-from, took) && float64(r.BacklogBytes) < r.Offered*perEvent
	} else {
		r.Sustained = true // the source waits for the query, so all that is read is consumed
	}
	if err := stop(); err != nil {
		return nil, err
	}
	job.Stop()
	return r, nil
}

// consumed returns how many events the query's first stages have processed since the job began,
// counted over all instances of their tasks. A restart lowers it by what the old instance had not
// committed; until the new instance has read how much was committed, it is lower by everything the
// old one did.
func (s *BenchSettings) consumed(all []tasks.Status) int64 {
	stage := s.firstStage()
	n := uint64(0)
	for _, t := range all {
		if t.Stage == stage {
			n += t.Items()
		}
	}
	return int64(n)
}

// Version returns the build of the program.
func Version() string { return build.Version() }
