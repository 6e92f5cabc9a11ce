package randjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// total counts what all jobs of a test did.
type total struct {
	mu        sync.Mutex
	jobs      int
	played    Played
	ops       map[model.Op]int
	keys      map[model.KeyKind]int
	serdes    map[model.Serde]int
	protocols map[string]int
	clocks    map[string]int
	exchanged map[string]int
	slots     map[string]int
}

func newTotal() *total {
	return &total{
		played: Played{Faults: map[model.FaultKind]int{}, Points: map[string]int{}},
		ops:    map[model.Op]int{}, keys: map[model.KeyKind]int{}, serdes: map[model.Serde]int{}, protocols: map[string]int{}, clocks: map[string]int{}, exchanged: map[string]int{}, slots: map[string]int{},
	}
}

func (a *total) add(j *model.Job, p *Played) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs++
	a.played.Lives += p.Lives
	a.played.Rows += p.Rows
	a.played.Skipped += p.Skipped
	a.played.Rescaled += p.Rescaled
	a.played.Switched += p.Switched
	a.played.Rerouted += p.Rerouted
	a.played.Paused += p.Paused
	if j.Settings.Slots > 0 && p.Slots == 0 {
		a.slots["refused"]++
	} else if j.Settings.Slots > 0 {
		a.slots[fmt.Sprint(p.Slots)]++
		if j.Settings.Home != "" {
			a.slots["on disk"]++
		}
	}
	for k, n := range p.Faults {
		a.played.Faults[k] += n
	}
	for k, n := range p.Points {
		a.played.Points[k] += n
	}
	a.protocols[j.Settings.Protocol]++
	for i := range j.Nodes {
		n := &j.Nodes[i]
		a.ops[n.Op]++
		if n.Key != "" {
			a.keys[n.Key]++
		}
		a.serdes[n.Serde]++
		for what, is := range map[string]bool{
			"ahead": n.Ahead, "global": n.Global, "partials sooner": n.Op == model.PreAggregate && n.Count+n.Point > 0,
			"partials with clocks": n.Op == model.PreAggregate && n.Clocks != 0, "RouteBy": n.Routed,
		} {
			if is {
				a.exchanged[what]++
			}
		}
		if n.Clocks != 0 {
			a.clocks[fmt.Sprint(n.Clocks)]++
			if n.ByProducer {
				a.clocks["by producer"]++
			}
			for k := range j.Nodes { // what follows them
				if x := &j.Nodes[k]; slices.Contains(x.In, i) {
					a.clocks[string(x.Op)]++
				}
			}
		}
	}
}

func (a *total) log(t *testing.T) {
	t.Logf("%d jobs, %d lives of a process, %d rows compared, %d faults skipped, %d rescales at their goal, %d grains switched, %d routing tables adopted, %d pauses", a.jobs, a.played.Lives, a.played.Rows, a.played.Skipped, a.played.Rescaled, a.played.Switched, a.played.Rerouted, a.played.Paused)
	t.Log(counted("operators", a.ops))
	t.Log(counted("keys", a.keys))
	t.Log(counted("serdes", a.serdes))
	t.Log(counted("protocols", a.protocols))
	t.Log(counted("clocks", a.clocks))
	t.Log(counted("exchanged", a.exchanged))
	t.Log(counted("jobs by slots", a.slots))
	t.Log(counted("faults", a.played.Faults))
	t.Log(counted("points", a.played.Points))
}

// counted formats counts, the rarest first.
func counted[K ~string](what string, m map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b K) int { return m[a] - m[b] })
	var b strings.Builder
	b.WriteString(what + ":")
	for _, k := range keys {
		fmt.Fprintf(&b, " %q %d,", string(k), m[k])
	}
	return strings.TrimSuffix(b.String(), ",")
}
