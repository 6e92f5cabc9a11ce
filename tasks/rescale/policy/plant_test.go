package policy

import (
	"math/rand/v2"

	"tailrace.dev/tailrace/tasks/rescale"
)

// plant is a stage in virtual time: items arrive in key groups, tasks process them in the order of
// arrival, a rescale stops the stage for a while.
type plant struct {
	now      int64     // ms
	rate     float64   // items that arrive a second
	weights  []float64 // of the key groups, together 1
	speed    []float64 // items that each task processes a second
	owners   []int
	share    []float64 // of all that arrives, by task
	arrived  []float64 // items since the start, at each step
	at       []float64 // by task: how many of all that has arrived lies before its position
	cost     int64     // ms of a rescale
	from     int64     // when the present rescale began
	until    int64     // until when the stage stands still
	took     int64
	ended    int64
	rescales []int64 // when each began
	speeds   func(n int) []float64
	stands   int // a task that processes nothing; -1: none
	// since the newest sample
	busy, in []float64
	sampled  int64
}

const stepMS = 100

// newPlant returns a plant with n tasks; speeds returns the speeds of a number of tasks.
func newPlant(n, groups int, cost int64, speeds func(n int) []float64) *plant {
	p := &plant{cost: cost, speeds: speeds, stands: -1, arrived: []float64{0}}
	for range groups {
		p.weights = append(p.weights, 1/float64(groups))
	}
	p.owners = rescale.Range(rescale.Stage{Owners: make([]int, groups), Tasks: n})
	p.at = make([]float64, n)
	p.begin(n)
	return p
}

// begin sets what depends on the number of tasks.
func (p *plant) begin(n int) {
	p.speed, p.busy, p.in, p.share = p.speeds(n), make([]float64, n), make([]float64, n), make([]float64, n)
	p.weigh()
	p.sampled = p.now
}

// weigh adds up the weights of the tasks' key groups.
func (p *plant) weigh() {
	clear(p.share)
	for g, owner := range p.owners {
		p.share[owner] += p.weights[g]
	}
}

// rescale gives the stage n tasks; it stands still until that is done.
func (p *plant) rescale(n int) {
	at := make([]float64, n)
	owners := rescale.Sticky(rescale.Stage{Owners: p.owners, Tasks: n})
	share := make([]float64, n)
	for g, to := range owners { // a receiver that has its groups from several givers begins in between
		at[to] += p.weights[g] * p.at[p.owners[g]]
		share[to] += p.weights[g]
	}
	for i := range at {
		at[i] /= share[i]
	}
	p.at, p.owners = at, owners
	p.rescales = append(p.rescales, p.now)
	p.from, p.until = p.now, p.now+p.cost
	p.begin(n)
}

// second lets a second pass and returns its sample.
func (p *plant) second() *Sample {
	for range 1000 / stepMS {
		p.now += stepMS
		all := p.arrived[len(p.arrived)-1] + p.rate*stepMS/1000
		p.arrived = append(p.arrived, all)
		if p.until > 0 {
			if p.now >= p.until {
				p.ended, p.took, p.until = p.now, p.now-p.from, 0
			}
			continue
		}
		for i := range p.at {
			can := p.speed[i] * stepMS / 1000
			did := min(can, (all-p.at[i])*p.share[i])
			if i == p.stands {
				did, can = 0, 1
				p.busy[i] += stepMS // it is in a call that does not return
			}
			p.at[i] += did / p.share[i]
			p.in[i] += did
			p.busy[i] += did / can * stepMS
		}
	}
	s := &Sample{At: p.now, Groups: len(p.weights), Owners: p.owners, Rescaling: p.until > 0, Ended: p.ended, Took: p.took}
	span := float64(p.now - p.sampled)
	for g, i := range p.owners {
		s.Load = append(s.Load, int64(p.in[i]*p.weights[g]/p.share[i]))
	}
	for i := range p.at {
		s.Tasks = append(s.Tasks, Task{In: p.in[i] / span * 1000, Busy: p.busy[i] / span, Lag: p.lag(i)})
		p.in[i], p.busy[i] = 0, 0
	}
	p.sampled = p.now
	return s
}

// lag returns how long ago the last item arrived that a task has processed, in s.
func (p *plant) lag(i int) float64 {
	k := len(p.arrived)
	for k > 0 && p.arrived[k-1] > p.at[i]+1e-6 {
		k--
	}
	return float64(len(p.arrived)-k) * stepMS / 1000
}

// drawn returns speeds around one that differ by up to a fifth from task to task.
func drawn(rng *rand.Rand, speed float64) func(n int) []float64 {
	var all []float64
	return func(n int) []float64 {
		for len(all) < n {
			all = append(all, speed*(0.8+0.4*rng.Float64()))
		}
		return all[:n]
	}
}
