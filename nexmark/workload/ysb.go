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

// ysb counts the views of the ads of each campaign (the Yahoo Streaming Benchmark). Which ads a
// campaign has is a table that the seed makes.
var ysb = &Workload{
	Name: "ysb", Title: "views of campaigns by window (Yahoo Streaming Benchmark)",
	Options: []*Option{sensors, window, keyWeights, drift, partitionBy, lag, lagFrom, grain, keyDelay, byProducer, exchange, mergeItems, partitioner},
	Plan:    ysbPlan, Answer: ysbAnswer,
	Revises: true,
	Delay:   func(p *Params, events generator.Config) time.Duration { return p.duration(lag, 0) + events.Disorder },
}

const (
	ysbCampaigns = 100
	ysbAds       = 10 // of a campaign
	ysbUsers     = 100_000
	ysbWindow    = 10 * time.Second
)

// The types of events.
const (
	ysbView = iota
	ysbClick
	ysbPurchase
	ysbTypes
)

// ysbEvent is what a user did with an ad.
type ysbEvent struct{ Ad, Type, User int64 }

var ysbSerde = serde.New("ysb event", func(dst []byte, v *ysbEvent) []byte {
	return serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, v.Ad), v.Type), v.User)
}, func(d *serde.Reader, v *ysbEvent) { v.Ad, v.Type, v.User = d.Int64(), d.Int64(), d.Int64() })

// ysbSeen is a view, in a stream that is partitioned by campaigns.
type ysbSeen struct{ Campaign int64 }

var ysbSeenSerde = serde.New("ysb view by campaign", func(dst []byte, _ *ysbSeen) []byte { return dst },
	func(_ *serde.Reader, v *ysbSeen) { *v = ysbSeen{} })

// ysbRow is a window's result.
type ysbRow struct{ Campaign, Window, Views int64 }

var ysbRowSerde = serde.New("ysb row", func(dst []byte, r *ysbRow) []byte {
	return serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, r.Campaign), r.Window), r.Views)
}, func(d *serde.Reader, r *ysbRow) { r.Campaign, r.Window, r.Views = d.Int64(), d.Int64(), d.Int64() })

func appendYsb(dst []byte, r *ysbRow) []byte {
	dst = strconv.AppendInt(append(dst, `{"campaign":`...), r.Campaign, 10)
	dst = strconv.AppendInt(append(dst, `,"window":`...), r.Window, 10)
	dst = strconv.AppendInt(append(dst, `,"views":`...), r.Views, 10)
	return append(dst, "}\n"...)
}

// ysbItems makes the events.
type ysbItems struct {
	*schedule
	ads *Keys
	// campaigns has the campaign of each ad.
	campaigns []int64
}

func newYsbItems(p *Params, events generator.Config) (*ysbItems, error) {
	s, err := newSchedule(p, events)
	if err != nil {
		return nil, err
	}
	n := p.count(sensors, ysbCampaigns) * ysbAds
	g := &ysbItems{schedule: s, ads: NewKeys(p.keyConfig(n, events)), campaigns: make([]int64, n)}
	for ad := range g.campaigns {
		g.campaigns[ad] = int64(generator.Permute(uint64(ad), uint64(n), s.seed)) / ysbAds
	}
	return g, nil
}

// ad returns the ad of item k; h are its random bits.
func (g *ysbItems) ad(k int64, h uint64) int64 { return g.ads.Draw(h, g.Due(k)) }

// byCampaign finds the items of partitions by their campaigns.
func (g *ysbItems) byCampaign() func(p, parts int) source.Finder {
	return each(func(k int64) int64 { return g.campaigns[g.ad(k, g.draw(k))] })
}

// Make implements source.Items.
func (g *ysbItems) Make(k int64, v *ysbEvent) (time int64) {
	h := g.draw(k)
	r := generator.Mix(h + 2)
	*v = ysbEvent{Ad: g.ad(k, h), Type: below(r, ysbTypes), User: below(generator.Mix(r), ysbUsers)}
	return g.lagging(g.campaigns[v.Ad], g.at(k, h))
}

func ysbPlan(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	items, err := newYsbItems(p, in.Generator)
	if err != nil {
		return nil, err
	}
	src, err := made(p, in, items, items.byCampaign())
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("ysb")
	events := query.Begin(job, src, ysbSerde, p.Logged)
	views := operators.FilterMap(events, func(v *ysbEvent) (ysbSeen, bool) {
		return ysbSeen{items.campaigns[v.Ad]}, v.Type == ysbView
	}).With(ysbSeenSerde)
	counts := windowed(p, in, views, "campaigns", func(v *ysbSeen) int64 { return v.Campaign }, operators.Tumbling(p.duration(window, ysbWindow)),
		operators.Counting[ysbSeen](), operators.Emit(p.Emission))
	rows := operators.Map(counts, func(w *operators.KV[int64, operators.Windowed[int64]]) ysbRow {
		return ysbRow{w.Key, w.Value.Start, w.Value.Value}
	}).With(ysbRowSerde)
	query.Emit(rows, out, appendYsb)
	return job.Plan()
}

func ysbAnswer(p *Params, events generator.Config) ([]string, error) {
	items, err := newYsbItems(p, events)
	if err != nil {
		return nil, err
	}
	size := p.duration(window, ysbWindow).Milliseconds()
	type view struct{ campaign, window int64 }
	var views []view
	for k := range events.Events {
		var v ysbEvent
		if t := items.Make(k, &v); v.Type == ysbView {
			views = append(views, view{items.campaigns[v.Ad], start(t, size)})
		}
	}
	slices.SortFunc(views, func(a, b view) int {
		if a.campaign != b.campaign {
			return int(a.campaign - b.campaign)
		}
		return int((a.window - b.window) / size)
	})
	var rows []string
	for i := 0; i < len(views); {
		from := i
		for i < len(views) && views[i] == views[from] {
			i++
		}
		rows = append(rows, string(appendYsb(nil, &ysbRow{views[from].campaign, views[from].window, int64(i - from)})))
	}
	slices.Sort(rows)
	return rows, nil
}
