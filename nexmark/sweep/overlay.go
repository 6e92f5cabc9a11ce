package sweep

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Overlay holds the results of another system on the same queries, the Kafka Streams peer, or on the
// workload kw, the Flink peer.
type Overlay struct {
	Name   string
	Steps  []PeerStep
	Logs   []PeerLog
	Clocks []PeerClocks
}

// PeerStep is the peer's result for one query at one rate.
type PeerStep struct {
	Query    int
	Rate     float64
	OK       bool     // sustained
	Commit   Duration // its commit interval
	Replicas int
	// Emit and Visible are latencies in ms; nil: not measured.
	Emit, Visible *peerQuantiles
}

type peerQuantiles struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Count float64 `json:"n"`
}

// PeerLog is the latency of the peer's log at one rate, in µs.
type PeerLog struct {
	Replicas int
	Rate     float64
	P50, P99 float64
}

// Add reads one file of JSON lines: the steps of a sweep with its summary, or of a
// measurement of the log's latency.
func (o *Overlay) Add(file string, text []byte) error {
	type line struct {
		Summary  bool           `json:"summary"`
		Query    int            `json:"q"`
		Step     string         `json:"step"`
		Rate     float64        `json:"rate"`
		OK       bool           `json:"ok"`
		Commit   float64        `json:"commit_ms"`
		RF       int            `json:"rf"`
		Latency  *peerQuantiles `json:"latency_ms"`
		Visible  *peerQuantiles `json:"visible_ms"`
		Bench    string         `json:"bench"`
		Appends  float64        `json:"aps"`
		Consumed *peerQuantiles `json:"append_to_consume_us"`
		Mode     string         `json:"mode"`
		Disorder json.Number    `json:"disorder"`
		Bound    json.Number    `json:"bound_ms"`
		In       float64        `json:"in_per_s"`
	}
	var steps []PeerStep
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
			o.Logs = append(o.Logs, PeerLog{Replicas: max(1, l.RF), Rate: l.Appends, P50: l.Consumed.P50, P99: l.Consumed.P99})
			found = true
		case l.Bench == "kw" && l.In > 0:
			p := PeerClocks{Mode: l.Mode, Rate: l.In}
			if p.Mode == "aggregate" {
				p.Mode = ""
			}
			p.Disorder, _ = l.Disorder.Float64()
			p.Bound, _ = l.Bound.Float64()
			o.Clocks, o.Name, found = append(o.Clocks, p), "Flink", true
		case l.Step != "" && l.Query > 0 && l.Latency != nil:
			steps = append(steps, PeerStep{Query: l.Query, Rate: l.Rate, OK: l.OK, Emit: l.Latency, Visible: l.Visible})
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s: no steps of a sweep, no loglat and no kw lines in it; want the JSON lines of the Kafka Streams peer, or of the Flink peer's kw", file)
	}
	for _, s := range steps {
		s.Commit, s.Replicas = Duration(commit*1e6), replicas
		o.Steps = append(o.Steps, s)
	}
	if o.Name == "" {
		o.Name = "Kafka Streams"
	}
	return nil
}
