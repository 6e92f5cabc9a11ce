//go:build !nokeyed

package workload

import (
	"slices"
	"strconv"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// ride finds the rides that last too long (Trilink, section 3.1; Flink's training exercise): those
// whose end is missing, or whose start and end are not less than the limit apart. Each ride is a key
// with two items, so it shows whether the state of keys that are silent is released.
var ride = &Workload{
	Name: "ride", Title: "rides that last too long",
	Options: []*Option{window, partitionBy, lag, lagFrom, grain, keyDelay, byProducer, partitioner},
	Plan:    ridePlan, Answer: rideAnswer,
	Delay: func(p *Params, events generator.Config) time.Duration { return p.duration(lag, 0) + events.Disorder },
}

const rideLimit = 2 * time.Hour

// rideEvent is the start or the end of a ride.
type rideEvent struct {
	Ride int64
	End  bool
}

var rideSerde = serde.New("ride event", func(dst []byte, v *rideEvent) []byte {
	return serde.AppendBool(serde.AppendInt64(dst, v.Ride), v.End)
}, func(d *serde.Reader, v *rideEvent) { v.Ride, v.End = d.Int64(), d.Bool() })

// rideByRide encodes events of a stream that is partitioned by rides.
var rideByRide = serde.New("ride event by ride", func(dst []byte, v *rideEvent) []byte { return serde.AppendBool(dst, v.End) },
	func(d *serde.Reader, v *rideEvent) { *v = rideEvent{End: d.Bool()} })

// rideOpen is one of the two events of a ride, while the other is missing.
type rideOpen struct {
	Time int64
	End  bool
}

var rideOpenSerde = serde.New("open ride", func(dst []byte, v *rideOpen) []byte {
	return serde.AppendBool(serde.AppendInt64(dst, v.Time), v.End)
}, func(d *serde.Reader, v *rideOpen) { v.Time, v.End = d.Int64(), d.Bool() })

// rideRow is a ride that lasts too long.
type rideRow struct{ Ride, Started int64 }

var rideRowSerde = serde.New("ride row", func(dst []byte, r *rideRow) []byte {
	return serde.AppendInt64(serde.AppendInt64(dst, r.Ride), r.Started)
}, func(d *serde.Reader, r *rideRow) { r.Ride, r.Started = d.Int64(), d.Int64() })

func appendRide(dst []byte, r *rideRow) []byte {
	dst = strconv.AppendInt(append(dst, `{"ride":`...), r.Ride, 10)
	dst = strconv.AppendInt(append(dst, `,"started":`...), r.Started, 10)
	return append(dst, "}\n"...)
}

// rideItems makes the events: item 2r is the start of ride r. The items between them are the ends of
// rides, those of a stretch in a random order and three quarters of a stretch behind their starts: a
// ride lasts as long as the limit on average, and some end before they start. The first ends belong to
// rides that started before the first item; their numbers are negative.
type rideItems struct {
	*schedule
	stretch int64 // rides
}

func newRideItems(p *Params, events generator.Config) (*rideItems, error) {
	s, err := newSchedule(p, events)
	if err != nil {
		return nil, err
	}
	limit := p.duration(window, rideLimit).Milliseconds()
	return &rideItems{schedule: s, stretch: max(4, limit*s.events.Config().Rate/1000*2/3)}, nil
}

// ride returns which ride item k starts or ends.
func (g *rideItems) ride(k int64) (ride int64, end bool) {
	if ride = k / 2; k%2 == 0 {
		return ride, false
	}
	in := ride % g.stretch
	first := ride - in
	return first + int64(generator.Permute(uint64(in), uint64(g.stretch), g.seed^generator.Mix(uint64(first)))) - g.stretch*3/4, true
}

// byRide finds the items of partitions by their rides.
func (g *rideItems) byRide() func(p, parts int) source.Finder {
	return each(func(k int64) int64 { ride, _ := g.ride(k); return ride })
}

// Make implements source.Items.
func (g *rideItems) Make(k int64, v *rideEvent) (time int64) {
	v.Ride, v.End = g.ride(k)
	return g.lagging(v.Ride, g.at(k, g.draw(k)))
}

func ridePlan(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	items, err := newRideItems(p, in.Generator)
	if err != nil {
		return nil, err
	}
	src, err := made(p, in, items, items.byRide())
	if err != nil {
		return nil, err
	}
	limit := p.duration(window, rideLimit).Milliseconds()
	job := operators.NewJob("ride")
	events := query.Begin(job, src, rideSerde, p.Logged)
	byRide := operators.KeyBy(events.With(rideByRide), "rides", serde.Int64, func(v *rideEvent) int64 { return v.Ride }, p.route(in)...)
	long := operators.Process(byRide, "long", func(c *operators.Context[int64, rideRow]) operators.Handler[rideEvent] {
		open := operators.NewValue(c, "open", rideOpenSerde)
		return operators.Handler[rideEvent]{
			Item: func(v *rideEvent) {
				o := open.Get()
				if o != nil && o.End != v.End {
					if d := c.Time() - o.Time; d < limit && d > -limit {
						c.DeleteEventTimer(o.Time + limit)
						open.Delete()
						return
					}
					if o.End { // of no use: its start is this one
						c.DeleteEventTimer(o.Time + limit)
					} else {
						return // the timer makes the row
					}
				}
				open.Put(&rideOpen{c.Time(), v.End})
				c.SetEventTimer(c.Time() + limit)
			},
			Timers: operators.Timers{OnEvent: func(t int64) {
				if o := open.Get(); !o.End {
					c.Emit(rideRow{c.Key(), o.Time}, t)
				}
				open.Delete()
			}},
		}
	})
	rows := operators.Map(long, func(kv *operators.KV[int64, rideRow]) rideRow { return kv.Value }).With(rideRowSerde)
	query.Emit(rows, out, appendRide)
	return job.Plan()
}

func rideAnswer(p *Params, events generator.Config) ([]string, error) {
	items, err := newRideItems(p, events)
	if err != nil {
		return nil, err
	}
	limit := p.duration(window, rideLimit).Milliseconds()
	started, ended := map[int64]int64{}, map[int64]int64{}
	for k := range events.Events {
		var v rideEvent
		t := items.Make(k, &v)
		if v.End {
			ended[v.Ride] = t
		} else {
			started[v.Ride] = t
		}
	}
	var rows []string
	for ride, from := range started {
		if to, ok := ended[ride]; ok && to-from < limit && from-to < limit {
			continue
		}
		rows = append(rows, string(appendRide(nil, &rideRow{ride, from})))
	}
	slices.Sort(rows)
	return rows, nil
}
