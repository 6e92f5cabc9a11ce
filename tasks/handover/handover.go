package handover

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/runtime"
)

// Handover implements runtime.Handover for the tasks of a job in this process.
type Handover struct {
	cfg *runtime.Config

	states states
	// restarts is the first plan whose groups no task takes, because all are about to start again; 0:
	// there is none.
	restarts atomic.Uint64
	// newest is the newest plan that this process has learned of while the tasks ran.
	newest atomic.Pointer[envelope.Plan]

	mu     sync.Mutex
	movers map[*mover]bool
}

// New returns the Handover of a job, nil if its protocol has none.
func New(cfg *runtime.Config) runtime.Handover {
	if !cfg.Protocol.Capabilities().Rescales {
		return nil
	}
	return &Handover{cfg: cfg, states: states{apart: cfg.Peers != nil}, movers: map[*mover]bool{}}
}

// Mover implements runtime.Handover: the key groups of a stage move, or the partitions of its source, if
// it writes nothing to the outside.
func (h *Handover) Mover(e *runtime.Engine) runtime.Mover {
	spec, stage := e.Stage()
	if spec.Sink {
		return nil
	}
	return &mover{h: h, e: e, stage: stage, index: e.Index(), source: spec.Partitions > 0, ready: make(chan struct{}, 1), releases: map[sharedlog.LSN]*envelope.Marker{}, plans: map[uint64]rescale.Plan{}}
}

// tell passes a plan, which is in the log, to the tasks that have not reached it.
func (h *Handover) tell(p *envelope.Plan, at sharedlog.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was := h.newest.Load(); was == nil || was.Number < p.Number {
		h.newest.Store(p)
	}
	for m := range h.movers {
		m.told = append(m.told, planOf(p, at, m.stage, m.source))
		m.poke()
	}
}

// poke makes the task look what there is to do.
func (m *mover) poke() {
	select {
	case m.ready <- struct{}{}:
	default: // it has a token
	}
}

// elsewhere removes the state of those key groups that a task gives to tasks of other processes, which
// restore them: nothing here would take it.
func (h *Handover) elsewhere(giver *mover, moves []rescale.Move, state exec.GroupState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	here := map[int]bool{}
	for m := range h.movers {
		here[m.index] = here[m.index] || m.stage == giver.stage
	}
	for i := range moves {
		if m := &moves[i]; m.From == giver.index && !here[m.To] {
			maps.DeleteFunc(state, func(g int, _ []exec.Detached) bool { return slices.Contains(m.Groups, g) })
		}
	}
}

// resume lets the tasks take groups, if they have not started again.
func (h *Handover) resume() {
	h.restarts.Store(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.movers {
		m.poke()
	}
}

func (h *Handover) join(m *mover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.movers[m] = true
}

func (h *Handover) leave(m *mover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.movers, m)
}

// next returns the plans that a mover has been told of.
func (h *Handover) next(m *mover) []rescale.Plan {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := m.told
	m.told = nil
	return told
}

// planOf returns the part of a plan that concerns a stage, which may read a source.
func planOf(p *envelope.Plan, at sharedlog.LSN, stage int, source bool) rescale.Plan {
	r := rescale.Plan{Source: source, Number: max(p.Number, 1), LSN: at, Tasks: p.Stages[stage].Tasks, Owners: slices.Clone(p.Stages[stage].Owners)}
	for i := range p.Moves {
		if m := &p.Moves[i]; int(m.Stage) == stage {
			r.Mode = m.Mode
			r.Moves = append(r.Moves, rescale.Move{From: int(m.From), To: int(m.To), Groups: slices.Clone(m.Groups), Early: m.Early})
		}
	}
	return r
}

// markerOf returns the part of a marker that says what its task owns, and the release in it; nil if
// there is none.
func markerOf(m *envelope.Marker, at sharedlog.LSN) (*rescale.Marker, *rescale.Release) {
	if m == nil {
		return nil, nil
	}
	k := &rescale.Marker{
		LSN: at, Position: m.Position, Watermark: m.Watermark, Owned: slices.Clone(m.Owned), Plan: max(m.Plan, 1), Ended: m.Ended, Left: m.Left, Idle: m.Idle,
	}
	if len(m.Released.Groups) == 0 {
		return k, nil
	}
	return k, &rescale.Release{
		Plan: m.Released.Plan, From: int(m.Task), Groups: slices.Clone(m.Released.Groups),
		LSN: at, Position: m.Position, Low: m.Low, Watermark: m.Watermark,
	}
}
