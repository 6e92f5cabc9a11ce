//go:build !nokeyed

package workload

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// bridge watches the heights of the points of a bridge's crown (Trilink, section 6): a row says that a
// point's mean height fell by too much from a window to the next one, or since the beginning.
var bridge = &Workload{
	Name: "bridge", Title: "points of a bridge's crown that sink",
	Options: []*Option{sensors, window, keyIDs, partitionBy, lag, lagFrom, grain, keyDelay, byProducer, partitioner},
	Plan:    bridgePlan, Answer: bridgeAnswer,
	Delay: func(p *Params, events generator.Config) time.Duration { return p.duration(lag, 0) + events.Disorder },
}

const (
	bridgePoints = 200
	bridgeWindow = 10 * time.Second
	bridgeSlides = 10 // windows that begin in a window's time
	bridgeStep   = 500
	bridgeAll    = 5000 // µm
)

// bridgeHeight is the height of a point.
type bridgeHeight struct{ Point, Micrometres int64 }

var bridgeSerde = serde.New("bridge height", func(dst []byte, v *bridgeHeight) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, v.Point), v.Micrometres)
}, func(d *serde.Reader, v *bridgeHeight) { v.Point, v.Micrometres = d.Int64(), d.Int64() })

// bridgeByPoint encodes heights of a stream that is partitioned by points.
var bridgeByPoint = serde.New("bridge height by point", func(dst []byte, v *bridgeHeight) []byte { return serde.AppendInt64(dst, v.Micrometres) },
	func(d *serde.Reader, v *bridgeHeight) { *v = bridgeHeight{Micrometres: d.Int64()} })

// bridgeMean is the heights of a window.
type bridgeMean struct{ Sum, N int64 }

var bridgeMeanSerde = serde.New("bridge mean", func(dst []byte, m *bridgeMean) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, m.Sum), m.N)
}, func(d *serde.Reader, m *bridgeMean) { m.Sum, m.N = d.Int64(), d.Int64() })

// bridgePast is a point's mean height in its first window and in the newest one.
type bridgePast struct{ First, Newest int64 }

var bridgePastSerde = serde.New("bridge past", func(dst []byte, v *bridgePast) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, v.First), v.Newest)
}, func(d *serde.Reader, v *bridgePast) { v.First, v.Newest = d.Int64(), d.Int64() })

// bridgeRow is a point's mean height in a window, and by how much less that is than in the one before.
type bridgeRow struct{ Point, Window, Mean, Rate int64 }

var bridgeRowSerde = serde.New("bridge row", func(dst []byte, r *bridgeRow) []byte {
	return serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, r.Point), r.Window), r.Mean), r.Rate)
}, func(d *serde.Reader, r *bridgeRow) {
	r.Point, r.Window, r.Mean, r.Rate = d.Int64(), d.Int64(), d.Int64(), d.Int64()
})

func appendBridge(dst []byte, r *bridgeRow) []byte {
	dst = strconv.AppendInt(append(dst, `{"point":`...), r.Point, 10)
	dst = strconv.AppendInt(append(dst, `,"window":`...), r.Window, 10)
	dst = strconv.AppendInt(append(dst, `,"mean":`...), r.Mean, 10)
	dst = strconv.AppendInt(append(dst, `,"rate":`...), r.Rate, 10)
	return append(dst, "}\n"...)
}

// bridgeItems makes the heights: point after point, round after round. Half of the points do not sink,
// a quarter sinks all the time, a quarter falls within a second in each minute; all are lifted at the
// end of a minute.
type bridgeItems struct {
	*schedule
	keys   *Keys
	points int64
}

func newBridgeItems(p *Params, events generator.Config) (*bridgeItems, error) {
	s, err := newSchedule(p, events)
	n := p.count(sensors, bridgePoints)
	return &bridgeItems{schedule: s, keys: NewKeys(p.keyConfig(n, events)), points: n}, err
}

// Make implements source.Items.
func (g *bridgeItems) Make(k int64, v *bridgeHeight) (time int64) {
	const minute = 60_000
	h := g.draw(k)
	i := k % g.points
	at := g.Due(k)
	v.Point, v.Micrometres = g.keys.ID(i), 100_000+below(h, 400)
	since := at % minute
	kind := generator.Mix(g.seed ^ uint64(i))
	switch kind & 3 {
	case 0:
		v.Micrometres -= since * 450 / 1000
	case 1:
		fall := below(generator.Mix(kind+uint64(at/minute)), minute)
		v.Micrometres -= min(max(since-fall, 0), 1000) * 8
	}
	return g.lagging(i, g.at(k, h))
}

func bridgePlan(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	items, err := newBridgeItems(p, in.Generator)
	if err != nil {
		return nil, err
	}
	src, err := made(p, in, items, rounds(items.points, items.keys.ID))
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("bridge")
	events := query.Begin(job, src, bridgeSerde, p.Logged)
	byPoint := operators.KeyBy(events.With(bridgeByPoint), "points", serde.Int64, func(v *bridgeHeight) int64 { return v.Point }, p.route(in)...)
	size := p.duration(window, bridgeWindow)
	means := operators.AggregateWindows(byPoint, operators.Sliding(size, size/bridgeSlides), operators.Aggregator[bridgeHeight, bridgeMean]{
		Add:   func(acc *bridgeMean, v *bridgeHeight, _ int64) { acc.Sum, acc.N = acc.Sum+v.Micrometres, acc.N+1 },
		Merge: func(acc, other *bridgeMean) { acc.Sum, acc.N = acc.Sum+other.Sum, acc.N+other.N },
		Acc:   bridgeMeanSerde,
	})
	sinking := operators.Process(means, "sinking", func(c *operators.Context[int64, bridgeRow]) operators.Handler[operators.Windowed[bridgeMean]] {
		past := operators.NewValue(c, "past", bridgePastSerde)
		return operators.Handler[operators.Windowed[bridgeMean]]{Item: func(w *operators.Windowed[bridgeMean]) {
			mean := w.Value.Sum / w.Value.N
			v := past.Get()
			if v == nil {
				past.Put(&bridgePast{mean, mean})
				return
			}
			if v.Newest-mean > bridgeStep || v.First-mean > bridgeAll {
				c.Emit(bridgeRow{c.Key(), w.Start, mean, v.Newest - mean}, c.Time())
			}
			past.Update().Newest = mean
		}}
	})
	rows := operators.Map(sinking, func(kv *operators.KV[int64, bridgeRow]) bridgeRow { return kv.Value }).With(bridgeRowSerde)
	query.Emit(rows, out, appendBridge)
	return job.Plan()
}

func bridgeAnswer(p *Params, events generator.Config) ([]string, error) {
	items, err := newBridgeItems(p, events)
	if err != nil {
		return nil, err
	}
	size := p.duration(window, bridgeWindow).Milliseconds()
	slide := size / bridgeSlides
	type height struct{ point, time, um int64 }
	var all []height
	for k := range events.Events {
		var v bridgeHeight
		t := items.Make(k, &v)
		all = append(all, height{v.Point, t, v.Micrometres})
	}
	slices.SortFunc(all, func(a, b height) int { return cmp.Or(cmp.Compare(a.point, b.point), cmp.Compare(a.time, b.time)) })
	var rows []string
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].point == all[0].point {
			n++
		}
		of := all[:n]
		all = all[n:]
		first, newest, windows := int64(0), int64(0), 0
		for from := start(of[0].time-size, slide) + slide; from <= of[n-1].time; from += slide {
			sum, count := int64(0), int64(0)
			i, _ := slices.BinarySearchFunc(of, from, func(v height, t int64) int { return cmp.Compare(v.time, t) })
			for ; i < n && of[i].time < from+size; i++ {
				sum += of[i].um
				count++
			}
			if count == 0 {
				continue
			}
			mean := sum / count
			if windows++; windows == 1 {
				first = mean
			} else if newest-mean > bridgeStep || first-mean > bridgeAll {
				rows = append(rows, string(appendBridge(nil, &bridgeRow{of[0].point, from, mean, newest - mean})))
			}
			newest = mean
		}
	}
	slices.Sort(rows)
	return rows, nil
}
