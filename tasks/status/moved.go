package status

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Moved says how the state of key groups came to a task, since its instance began. Groups are those of
// which all has come; what was on its way when the instance ended is in none of them.
type Moved struct {
	Given    uint64 `json:"given"`    // groups from a task of the same process
	Copied   uint64 `json:"copied"`   // groups from a standby's copy
	Fetched  uint64 `json:"fetched"`  // groups from the process of the task that had released them
	Restored uint64 `json:"restored"` // groups from snapshots and the log
	Bytes    uint64 `json:"bytes"`    // of the groups, or parts of them, that were fetched
	// Demand are the requests to other processes for what records waited for, Background the others.
	Demand     Fetches `json:"demand"`
	Background Fetches `json:"background"`
	// Waits are the records that waited for the state of their keys. Under marker, where the records of
	// many commits count at once, none does (Snapshot.WaitingMS has that time).
	Waits Waits `json:"waits"`
}

// Waits counts waits by length: WaitBounds says how long those of an element were at most.
type Waits [16]uint64

// WaitBounds has the longest wait of each element of Waits, in ms; those of the last are longer than that.
var WaitBounds = [len(Waits{})]float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 60_000, math.Inf(1)}

// Total returns the number of waits.
func (w *Waits) Total() (n uint64) {
	for _, k := range w {
		n += k
	}
	return n
}

// Quantile returns the bound in ms of the waits that a share of all does not exceed, 0 if there are none.
func (w *Waits) Quantile(share float64) float64 {
	all, n := w.Total(), uint64(0)
	for i, k := range w {
		if n += k; k > 0 && float64(n) >= share*float64(all) {
			return WaitBounds[i]
		}
	}
	return 0
}

// Add adds to the counts what another task's Moved has, or, of the same instance of a task, what it
// had, if sign is -1.
func (m *Moved) Add(of *Moved, sign int) {
	by := func(to *uint64, n uint64) { *to += uint64(sign) * n }
	by(&m.Given, of.Given)
	by(&m.Copied, of.Copied)
	by(&m.Fetched, of.Fetched)
	by(&m.Restored, of.Restored)
	by(&m.Bytes, of.Bytes)
	by(&m.Demand.Requests, of.Demand.Requests)
	by(&m.Demand.SubGroups, of.Demand.SubGroups)
	by(&m.Background.Requests, of.Background.Requests)
	by(&m.Background.SubGroups, of.Background.SubGroups)
	for i := range m.Waits {
		by(&m.Waits[i], of.Waits[i])
	}
}

// Fetches counts requests for the state of key groups.
type Fetches struct {
	Requests  uint64 `json:"requests"`
	SubGroups uint64 `json:"sub_groups"` // that they ask for; a request for a whole group asks for none
}

// Way is how the state of a key group came.
type Way int

// The ways.
const (
	Given Way = iota
	Copied
	Fetched
	Restored
)

// Moves counts what Moved says. Its methods may be called by any goroutine.
type Moves struct {
	mu   sync.Mutex
	n    Moved
	took time.Duration
}

// Took adds to the time in which the task was getting the state of key groups.
func (m *Moves) Took(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took += d
}

// Came counts key groups whose state has come.
func (m *Moves) Came(by Way, groups int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*[]*uint64{&m.n.Given, &m.n.Copied, &m.n.Fetched, &m.n.Restored}[by] += uint64(groups)
}

// Asked counts a request to another process for some sub-groups, 0 for a whole group. demand says that
// a record waits for it.
func (m *Moves) Asked(demand bool, subGroups int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := &m.n.Background
	if demand {
		to = &m.n.Demand
	}
	to.Requests++
	to.SubGroups += uint64(subGroups)
}

// Received counts bytes of an answer.
func (m *Moves) Received(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n.Bytes += uint64(bytes)
}

// Waited counts a record that has waited for the state of its keys.
func (m *Moves) Waited(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms := float64(d) / 1e6
	m.n.Waits[slices.IndexFunc(WaitBounds[:], func(most float64) bool { return ms <= most })]++
}

func (m *Moves) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n, m.took = Moved{}, 0
}

// read returns what has come, nil if nothing did, and the time of Took in ms.
func (m *Moves) read() (*Moved, float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := float64(m.took) / 1e6
	if m.n == (Moved{}) {
		return nil, took
	}
	n := m.n
	return &n, took
}
