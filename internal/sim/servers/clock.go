package servers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Clock is the rate of a process's clock: at 200 percent it takes half a second for a second. The
// package comment says what depends on it.
type Clock struct {
	Who     string
	Percent int
}

// clockPercents are the possible rates. With them heartbeats still arrive within the others'
// timeouts, so progress is required as usual.
var clockPercents = []int{50, 80, 99, 101, 125, 200}

// driftingClocks gives most processes a fast or slow clock at the start, and some another one when
// they restart.
func driftingClocks(p *Plan, rng *rand.Rand) {
	var all []string
	for i := range p.Settings.Sequencers {
		all = append(all, sequencerName(i))
	}
	for i := range p.Settings.Nodes {
		all = append(all, nodeName(i))
	}
	for i := range p.Clients {
		all = append(all, clientName(i))
	}
	for _, who := range all {
		if rng.IntN(4) > 0 {
			p.Clocks = append(p.Clocks, Clock{who, pick(rng, clockPercents...)})
		}
	}
	if p.Settings.HistoryBytes != 0 { // a node that was away counts as one that lost its data: see drawFaults
		all = slices.DeleteFunc(all, func(who string) bool { return who[0] == 'n' })
	}
	for range rng.IntN(6) {
		who := pick(rng, all...)
		if rng.IntN(2) == 0 {
			who = pick(rng, all[:p.Settings.Sequencers]...)
		}
		p.Faults = append(p.Faults, Fault{AtMs: rng.IntN(p.Length), Kind: faultClock, Who: who, ForMs: pick(rng, 20, 100, 300), N: pick(rng, clockPercents...)})
	}
}

// setClock sets the rate of a process's clock from its next start on.
func (w *World) setClock(who string, percent int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clocks[who] = percent
	w.story.printf(who, "its clock runs at %d percent", percent)
}

// local returns a function that converts a duration by a process's own clock to the real duration.
func (w *World) local(who string) func(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	percent, ok := w.clocks[who]
	if !ok {
		return func(d time.Duration) time.Duration { return d }
	}
	return func(d time.Duration) time.Duration { return d * 100 / time.Duration(percent) }
}

func (c Clock) String() string { return fmt.Sprintf("%s's clock runs at %d percent", c.Who, c.Percent) }
