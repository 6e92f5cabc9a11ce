//go:build !nokeyed

package workload

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// lvd detects low voltage (Trilink, section 6): a sensor whose mean voltage was too low in ten windows
// in a row raises an alarm, and the first window with enough ends it. The clock of each sensor is
// wrong by an amount of its own.
var lvd = &Workload{
	Name: "lvd", Title: "low voltage, by sensor",
	Options: []*Option{sensors, skew, window, keyIDs, partitionBy, lag, lagFrom, grain, keyDelay, byProducer, exchange, mergeItems, partitioner},
	Plan:    lvdPlan, Answer: lvdAnswer,
	Delay: func(p *Params, events generator.Config) time.Duration {
		return 2*lvdMost*p.duration(skew, lvdSkew) + p.duration(lag, 0) + events.Disorder
	},
}

const (
	lvdSensors = 10_000
	lvdWindow  = time.Second
	lvdSkew    = 2 * time.Second
	lvdMost    = 3       // clocks deviate by at most so often the skew
	lvdLow     = 198_000 // mV
	lvdInARow  = 10
	// In each lvdBlock of a sensor's time the voltage is low for a while, in every fourth of them.
	lvdBlock = 30_000 // ms
)

// lvdReading is what a sensor measures.
type lvdReading struct{ Sensor, MV int64 }

var lvdSerde = serde.New("lvd reading", func(dst []byte, v *lvdReading) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, v.Sensor), v.MV)
}, func(d *serde.Reader, v *lvdReading) { v.Sensor, v.MV = d.Int64(), d.Int64() })

// lvdBySensor encodes readings of a stream that is partitioned by sensors.
var lvdBySensor = serde.New("lvd reading by sensor", func(dst []byte, v *lvdReading) []byte { return serde.AppendInt64(dst, v.MV) },
	func(d *serde.Reader, v *lvdReading) { *v = lvdReading{MV: d.Int64()} })

// lvdMean is the readings of a window.
type lvdMean struct{ Sum, N int64 }

var lvdMeanSerde = serde.New("lvd mean", func(dst []byte, m *lvdMean) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, m.Sum), m.N)
}, func(d *serde.Reader, m *lvdMean) { m.Sum, m.N = d.Int64(), d.Int64() })

// lvdRun is the windows in a row whose mean was too low: how many up to lvdInARow, when the first began,
// and the lowest mean.
type lvdRun struct{ N, From, Lowest int64 }

var lvdRunSerde = serde.New("lvd run", func(dst []byte, r *lvdRun) []byte {
	return serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, r.N), r.From), r.Lowest)
}, func(d *serde.Reader, r *lvdRun) { r.N, r.From, r.Lowest = d.Int64(), d.Int64(), d.Int64() })

// lvdRow says that a sensor's alarm begins, or ends. From is when its voltage became too low.
type lvdRow struct {
	Sensor, From, Lowest int64
	Clear                bool
}

var lvdRowSerde = serde.New("lvd row", func(dst []byte, r *lvdRow) []byte {
	dst = serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, r.Sensor), r.From), r.Lowest)
	return serde.AppendBool(dst, r.Clear)
}, func(d *serde.Reader, r *lvdRow) {
	r.Sensor, r.From, r.Lowest, r.Clear = d.Int64(), d.Int64(), d.Int64(), d.Bool()
})

func appendLvd(dst []byte, r *lvdRow) []byte {
	dst = strconv.AppendInt(append(dst, `{"sensor":`...), r.Sensor, 10)
	what := `,"event":"alarm"`
	if r.Clear {
		what = `,"event":"clear"`
	}
	dst = strconv.AppendInt(append(append(dst, what...), `,"from":`...), r.From, 10)
	dst = strconv.AppendInt(append(dst, `,"lowest":`...), r.Lowest, 10)
	return append(dst, "}\n"...)
}

// lvdItems makes the readings: sensor after sensor, round after round.
type lvdItems struct {
	*schedule
	keys    *Keys
	sensors int64
	clocks  []int32 // by how many ms the clock of each sensor is fast
}

func newLvdItems(p *Params, events generator.Config) (*lvdItems, error) {
	s, err := newSchedule(p, events)
	if err != nil {
		return nil, err
	}
	n := p.count(sensors, lvdSensors)
	g := &lvdItems{schedule: s, keys: NewKeys(p.keyConfig(n, events)), sensors: n, clocks: make([]int32, n)}
	sigma := p.duration(skew, lvdSkew).Milliseconds()
	for i := range g.clocks {
		g.clocks[i] = int32(min(max(normal(g.draw(-1-int64(i)), sigma), -lvdMost*sigma), lvdMost*sigma))
	}
	return g, nil
}

// normal returns a number with nearly the normal distribution of mean 0 and a standard deviation: the
// number of ones in 64 random bits, whose standard deviation is 4, and a part of their mix.
func normal(h uint64, deviation int64) int64 {
	ones := int64(bits.OnesCount64(h)-32)*1024 + below(generator.Mix(h), 1024) - 512
	return ones * deviation / (4 * 1024)
}

// Make implements source.Items.
func (g *lvdItems) Make(k int64, v *lvdReading) (time int64) {
	h := g.draw(k)
	i := k % g.sensors
	v.Sensor = g.keys.ID(i)
	now := g.Due(k)
	v.MV = 212_000 + below(h, 16_000)
	// The block, the part of it in which the voltage is low, and how low it is.
	block := generator.Mix(uint64(now/lvdBlock)*golden ^ uint64(i) ^ g.seed)
	from := below(block, lvdBlock*2/3)
	if at := now % lvdBlock; block&3 == 0 && at >= from && at < from+below(generator.Mix(block), lvdBlock) {
		v.MV -= 32_000
	}
	return g.lagging(i, g.at(k, h)+int64(g.clocks[i]))
}

func lvdPlan(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	items, err := newLvdItems(p, in.Generator)
	if err != nil {
		return nil, err
	}
	src, err := made(p, in, items, rounds(items.sensors, items.keys.ID))
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("lvd")
	events := query.Begin(job, src, lvdSerde, p.Logged)
	sensor := func(v *lvdReading) int64 { return v.Sensor }
	means := windowed(p, in, events.With(lvdBySensor), "readings", sensor, operators.Tumbling(p.duration(window, lvdWindow)), operators.Aggregator[lvdReading, lvdMean]{
		Add:   func(acc *lvdMean, v *lvdReading, _ int64) { acc.Sum, acc.N = acc.Sum+v.MV, acc.N+1 },
		Merge: func(acc, other *lvdMean) { acc.Sum, acc.N = acc.Sum+other.Sum, acc.N+other.N },
		Acc:   lvdMeanSerde,
	})
	alarms := operators.Process(means, "alarms", func(c *operators.Context[int64, lvdRow]) operators.Handler[operators.Windowed[lvdMean]] {
		run := operators.NewValue(c, "run", lvdRunSerde)
		return operators.Handler[operators.Windowed[lvdMean]]{Item: func(w *operators.Windowed[lvdMean]) {
			mean := w.Value.Sum / w.Value.N
			if mean >= lvdLow {
				if r := run.Get(); r != nil {
					if r.N == lvdInARow {
						c.Emit(lvdRow{c.Key(), r.From, r.Lowest, true}, c.Time())
					}
					run.Delete()
				}
				return
			}
			r := run.Upsert()
			if r.N == 0 {
				r.From, r.Lowest = w.Start, mean
			}
			r.Lowest = min(r.Lowest, mean)
			if r.N == lvdInARow {
				return
			}
			if r.N++; r.N == lvdInARow {
				c.Emit(lvdRow{c.Key(), r.From, r.Lowest, false}, c.Time())
			}
		}}
	})
	rows := operators.Map(alarms, func(kv *operators.KV[int64, lvdRow]) lvdRow { return kv.Value }).With(lvdRowSerde)
	query.Emit(rows, out, appendLvd)
	return job.Plan()
}

func lvdAnswer(p *Params, events generator.Config) ([]string, error) {
	items, err := newLvdItems(p, events)
	if err != nil {
		return nil, err
	}
	size := p.duration(window, lvdWindow).Milliseconds()
	type reading struct{ sensor, window, mv int64 }
	var all []reading
	for k := range events.Events {
		var v lvdReading
		t := items.Make(k, &v)
		all = append(all, reading{v.Sensor, start(t, size), v.MV})
	}
	slices.SortFunc(all, func(a, b reading) int {
		return cmp.Or(cmp.Compare(a.sensor, b.sensor), cmp.Compare(a.window, b.window))
	})
	type mean struct{ window, mv int64 }
	var rows []string
	for i := 0; i < len(all); {
		sensor := all[i].sensor
		var means []mean
		for i < len(all) && all[i].sensor == sensor {
			m, n := mean{window: all[i].window}, int64(0)
			for ; i < len(all) && all[i].sensor == sensor && all[i].window == m.window; i++ {
				m.mv += all[i].mv
				n++
			}
			m.mv /= n
			means = append(means, m)
		}
		for j := 0; j < len(means); {
			low := j // the end of the windows from j on that are too low
			for low < len(means) && means[low].mv < lvdLow {
				low++
			}
			if low-j >= lvdInARow {
				lowest := slices.MinFunc(means[j:j+lvdInARow], func(a, b mean) int { return cmp.Compare(a.mv, b.mv) })
				rows = append(rows, string(appendLvd(nil, &lvdRow{Sensor: sensor, From: means[j].window, Lowest: lowest.mv})))
				if low < len(means) {
					lowest = slices.MinFunc(means[j:low], func(a, b mean) int { return cmp.Compare(a.mv, b.mv) })
					rows = append(rows, string(appendLvd(nil, &lvdRow{Sensor: sensor, From: means[j].window, Lowest: lowest.mv, Clear: true})))
				}
			}
			j = low + 1
		}
	}
	slices.Sort(rows)
	return rows, nil
}
