package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Results holds the results of another system on the same queries, the Kafka Streams peer, or on the
// workload kw, the Flink peer.
type Results struct {
	Name   string
	Steps  []Step
	Logs   []Log
	Clocks []Clocks
}

// Step is the peer's result for one query at one rate.
type Step struct {
	Query    int
	Rate     float64
	OK       bool          // sustained
	Commit   time.Duration // its commit interval
	Replicas int
	// Emit and Visible are latencies in ms; nil: not measured.
	Emit, Visible *Quantiles
}

// Quantiles are of a latency.
type Quantiles struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Count float64 `json:"n"`
}

// Log is the latency of the peer's log at one rate, in µs.
type Log struct {
	Replicas int
	Rate     float64
	P50, P99 float64
}

// Clocks is the peer's result for the workload kw: sums over windows, with late items.
type Clocks struct {
	// Mode is "" for sums, list, or perkey: sums with a clock for each key that is written by hand.
	Mode     string
	Disorder float64 // per cent of the items that are behind
	Bound    float64 // of the watermark, in ms
	Rate     float64 // events a second
}

// Add reads one file of JSON lines: the steps of a sweep with its summary, or of a
// measurement of the log's latency.
func (o *Results) Add(file string, text []byte) error {
	type line struct {
		Summary  bool        `json:"summary"`
		Query    int         `json:"q"`
		Step     string      `json:"step"`
		Rate     float64     `json:"rate"`
		OK       bool        `json:"ok"`
		Commit   float64     `json:"commit_ms"`
		RF       int         `json:"rf"`
		Latency  *Quantiles  `json:"latency_ms"`
		Visible  *Quantiles  `json:"visible_ms"`
		Bench    string      `json:"bench"`
		Appends  float64     `json:"aps"`
		Consumed *Quantiles  `json:"append_to_consume_us"`
		Mode     string      `json:"mode"`
		Disorder json.Number `json:"disorder"`
		Bound    json.Number `json:"bound_ms"`
		In       float64     `json:"in_per_s"`
	}
	var steps []Step
	commit, replicas, found := 100.0, 1, false
	for i, text := range bytes.Split(text, []byte("\n")) {
		if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
			continue
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		switch {
		case l.Summary:
			if l.Commit > 0 {
				commit = l.Commit
			}
			replicas, found = max(1, l.RF), true
		case l.Bench == "loglat" && l.Consumed != nil:
			o.Logs = append(o.Logs, Log{Replicas: max(1, l.RF), Rate: l.Appends, P50: l.Consumed.P50, P99: l.Consumed.P99})
			found = true
		case l.Bench == "kw" && l.In > 0:
			p := Clocks{Mode: l.Mode, Rate: l.In}
			if p.Mode == "aggregate" {
				p.Mode = ""
			}
			p.Disorder, _ = l.Disorder.Float64()
			p.Bound, _ = l.Bound.Float64()
			o.Clocks, o.Name, found = append(o.Clocks, p), "Flink", true
		case l.Step != "" && l.Query > 0 && l.Latency != nil:
			steps = append(steps, Step{Query: l.Query, Rate: l.Rate, OK: l.OK, Emit: l.Latency, Visible: l.Visible})
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s: no steps of a sweep, no loglat and no kw lines in it; want the JSON lines of the Kafka Streams peer, or of the Flink peer's kw", file)
	}
	for _, s := range steps {
		s.Commit, s.Replicas = time.Duration(commit*1e6), replicas
		o.Steps = append(o.Steps, s)
	}
	if o.Name == "" {
		o.Name = "Kafka Streams"
	}
	return nil
}
