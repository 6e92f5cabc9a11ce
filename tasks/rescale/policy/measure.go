package policy

// measured is what a window of samples says.
type measured struct {
	load     float64   // tasks that would be busy all the time
	need     float64   // tasks that would be enough, also for the backlog
	capacity float64   // items a second that the stage can process
	busiest  float64   // share of time, of the busiest task
	busy     []float64 // of each task
	items    []float64 // a second, of each task
	lag      float64   // of the task that is furthest behind, s
	// over counts the samples in which a task has too much to do, hotOver those in which only hotTask
	// has, because of its key group hot, which takes hotBusy of its time. behind counts the samples in
	// which a task is behind. falls: each task that has too much to do gets less of it. stuck is a task
	// that processes nothing, -1: there is none.
	over, hotOver, behind, stuck int
	falls                        bool
	hot, hotTask                 int
	hotBusy                      float64
}

// measure evaluates a window of samples of one number of tasks.
func measure(w []Sample) (m measured) {
	newest := w[len(w)-evidence:]
	first, last := &newest[0], &w[len(w)-1]
	took := float64(last.At-first.At) / 1000
	m.stuck, m.falls = -1, true
	m.busy, m.items = make([]float64, len(last.Tasks)), make([]float64, len(last.Tasks))
	for i := range last.Tasks {
		var now, work float64
		for k := range w {
			m.items[i] += w[k].Tasks[i].In / float64(len(w))
			m.busy[i] += w[k].Tasks[i].Busy / float64(len(w))
		}
		for k := range newest {
			now += newest[k].Tasks[i].In
			work += newest[k].Tasks[i].Busy / evidence
		}
		lag := last.Tasks[i].Lag
		growth := 0.0 // s a second: 1 - processed / arrived
		if took > 0 {
			growth = min(max((lag-first.Tasks[i].Lag)/took, -9), 0.9)
		}
		load := work / (1 - growth)
		m.load += load
		m.need += load * (outFactor + lag/catchUp)
		m.busiest = max(m.busiest, m.busy[i])
		m.falls = m.falls && (growth < 0 || !last.Tasks[i].over())
		if now == 0 && lag > outLag && growth > 0 {
			m.stuck = i
		}
		m.lag = max(m.lag, lag)
	}
	if in, busy := sum(m.items), sum(m.busy); busy > 0 {
		m.capacity = in / busy * float64(len(last.Tasks))
	}
	m.findHot(w)
	for k := range w {
		over, hot, behind := false, false, false
		for i, t := range w[k].Tasks {
			over = over || t.over() && i != m.hotTask
			hot = hot || t.over() && i == m.hotTask
			behind = behind || t.Lag >= inLag
		}
		m.over += count(over)
		m.hotOver += count(hot)
		m.behind += count(behind)
	}
	return m
}

// over reports whether a task has too much to do.
func (t *Task) over() bool { return t.Busy > outBusy || t.Lag > outLag && t.Busy > outLagged }

// findHot finds the key group that takes most of a task's time. Items are taken to cost the same.
func (m *measured) findHot(w []Sample) {
	m.hot, m.hotTask = -1, -1
	last := &w[len(w)-1]
	load, byTask := make([]int64, len(last.Load)), make([]int64, len(m.busy))
	for k := range w {
		if len(w[k].Load) != len(load) {
			return
		}
		for g, n := range w[k].Load {
			load[g] += n
		}
	}
	for g, n := range load {
		byTask[last.Owners[g]] += n
	}
	for g, n := range load {
		i := last.Owners[g]
		if n == 0 {
			continue
		}
		if b := m.busy[i] * float64(n) / float64(byTask[i]); b > hotShare && b > m.hotBusy {
			m.hot, m.hotTask, m.hotBusy = g, i, b
		}
	}
}

// with returns how busy the busiest task would be if the stage had k tasks, fewer than it has: those
// that stay process the items of the others, too, each at its own speed. A task that has few items
// does not show it.
func (m *measured) with(k int) (busiest float64) {
	all := sum(m.items)
	if all == 0 {
		return m.busiest
	}
	n := float64(len(m.items))
	more := all * (n - float64(k)) / n / float64(k) // items a second, for each
	for i, b := range m.busy {
		cost := slow * sum(m.busy) / all
		if m.items[i] > 0 {
			cost = min(cost, b/m.items[i])
		}
		busiest = max(busiest, b+more*cost)
	}
	return busiest
}

func sum(of []float64) (all float64) {
	for _, v := range of {
		all += v
	}
	return all
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
