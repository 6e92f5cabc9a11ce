package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// mover implements runtime.Mover: it carries out what the task's rescale.Task decides.
type mover struct {
	h     *Handover
	e     *runtime.Engine
	stage int
	index int
	// source: the stage reads a source, so its input has no plans.
	source bool
	ready  chan struct{}
	told   []rescale.Plan // guarded by h.mu

	core    *rescale.Task
	effects []rescale.Effect // of Begin: they follow the instance's first commit
	givers  givers
	// releases are those that the task takes groups by, by their LSN.
	releases map[sharedlog.LSN]*envelope.Marker
	plans    map[uint64]rescale.Plan // by number
	learned  *envelope.Plan          // by which the task routes, or is to
	arrivals []*arrival              // in the order of their releases
	at       sharedlog.LSN           // the task holds at this plan; 0: it does not
	// What the marker that is being made says.
	release *rescale.Release
	left    bool
	giving  release // the name of the release whose state is promised

	sections envelope.Sections
	marker   envelope.Marker
	wanted   []int // the groups that a record waits for
	// waiting is the record that waits, since this time, need has the parts of groups that it needs, and unasked those of the
	// wanted groups that did not come part by part.
	waiting sharedlog.LSN
	since   time.Time
	unasked []int
	need    map[int][]int
}

func (m *mover) config() *runtime.Config { return m.e.Config() }

// Begin implements runtime.Mover.
func (m *mover) Begin(ctx context.Context, last *envelope.Marker, at, place sharedlog.LSN) (entered bool, err error) {
	m.h.join(m)
	cfg := m.config()
	if m.source { // it is told of plans behind the tail, and reads no others
		if place, err = cfg.Log.Tail(ctx); err != nil {
			return false, err
		}
	}
	all, lsns, err := records.Plans(ctx, cfg.Log, cfg.Layout.Job, place)
	if err != nil {
		return false, err
	}
	var plans []rescale.Plan
	for i, p := range all {
		plans = append(plans, m.plan(planOf(p, lsns[i], m.stage, m.source)))
	}
	mark, _ := markerOf(last, at)
	_, groups := m.e.Owned()
	begin := rescale.New
	if m.source {
		begin = rescale.NewSource
	}
	m.core, m.effects, err = begin(m.e.Index(), groups, mark, plans)
	if err != nil {
		return false, fmt.Errorf("stage %q: %w", m.name(), err)
	}
	if err := m.own(); err != nil {
		return false, err
	}
	if r := m.e.Routes(); r != nil && !m.core.Silent() {
		err = r.Resume(ctx, cfg.Log, cfg.Layout.Job, last)
	}
	if err != nil || !m.core.Silent() {
		return false, err
	}
	if !m.core.Open() && !m.e.Newcomer() { // it has left, and no plan names it again
		m.e.End(true)
		return true, nil
	}
	m.e.Reached(observe.RescaleSilent)
	if err := m.await(ctx, place); err != nil {
		return false, err
	}
	m.e.Reached(observe.RecoveryAnnounced)
	return true, nil
}

func (m *mover) name() string {
	spec, _ := m.e.Stage()
	return spec.Name
}

// await waits until a task that is new in its stage can start, and starts it. Plans are read from
// place on.
func (m *mover) await(ctx context.Context, place sharedlog.LSN) (err error) {
	cfg := m.config()
	plans, err := cfg.Log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Control(cfg.Layout.Job)}, From: place, BelowFloor: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plans.Close()) }()
	for {
		effects := m.effects
		m.effects = nil
		if err := m.carry(ctx, effects); err != nil || !m.core.Silent() {
			return err
		}
		batch, err := plans.TryNext()
		if err != nil {
			return fmt.Errorf("read the plans: %w", err)
		}
		for i := range batch.Entries {
			var p envelope.Plan
			if err := p.Parse(batch.Entries[i].Data); err != nil {
				return err
			}
			plan := m.plan(planOf(&p, batch.Entries[i].LSN, m.stage, m.source))
			m.effects = append(m.effects, m.core.Told(&plan)...)
		}
		if len(m.effects) > 0 {
			continue
		}
		if did, err := m.follow(ctx); err != nil {
			return err
		} else if !m.core.Silent() {
			return nil
		} else if did {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.e.Stopping():
			return runtime.ErrStopped
		case <-plans.Ready():
		case <-m.givers.ready():
		}
	}
}

// own tells the task what it owns, and whether records may have to wait.
func (m *mover) own() error {
	wait := m.core.Blocked() || m.core.Holds()
	if !wait {
		m.waited()
	}
	m.e.Wait(wait)
	return m.e.Own(m.core.Owned(nil), m.core.From)
}

// Turn implements runtime.Mover.
func (m *mover) Turn(ctx context.Context) error {
	if p := m.h.newest.Load(); p != m.learned {
		m.learned = p
		if err := m.learn(ctx, p); err != nil {
			return err
		}
	}
	effects := m.effects
	m.effects = nil
	for _, p := range m.h.next(m) {
		p = m.plan(p)
		if m.source {
			effects = append(effects, m.core.Reached(&p, m.e.Time())...)
			continue
		}
		effects = append(effects, m.core.Told(&p)...)
	}
	did := len(effects) > 0
	if err := m.carry(ctx, effects); err != nil {
		return err
	}
	saw, err := m.follow(ctx)
	if err != nil {
		return err
	}
	if !m.e.Ended() {
		took, err := m.take(ctx)
		if err != nil {
			return err
		}
		did = did || took
	}
	for !m.e.Ended() && m.e.Clean() {
		effects := m.core.Clean(m.e.Time())
		if len(effects) == 0 {
			break
		}
		did = true
		if err := m.carry(ctx, effects); err != nil {
			return err
		}
	}
	if m.at > 0 && !m.core.Holds() && !m.e.Ended() {
		m.e.Passed(m.at)
		m.at, did = 0, true
		if err := m.own(); err != nil {
			return err
		}
	}
	if !m.core.Open() {
		clear(m.releases)
	}
	if (did || saw) && !m.e.Ended() {
		return m.e.Advance(ctx)
	}
	return nil
}

// Ready implements runtime.Mover.
func (m *mover) Ready() (a, b <-chan struct{}) {
	if m.takes() {
		return always, nil
	}
	return m.ready, m.givers.ready()
}

// Waits implements runtime.Mover.
func (m *mover) Waits(e *sharedlog.Entry) (bool, error) {
	if m.core.Holds() {
		return true, nil
	}
	kind, err := envelope.KindOf(e.Data)
	if err != nil {
		return false, err
	}
	switch kind {
	case envelope.Data:
		h, err := m.sections.Open(e.Data)
		if err != nil {
			return false, err
		}
		if h.Part || m.config().Protocol.Capabilities().Flushes || e.LSN < m.e.Position() {
			return false, nil // it counts at its marker, if at all
		}
		return m.waitsForParts(e)
	case envelope.KindMarker:
		if err := m.marker.Parse(e.Data); err != nil || !m.e.Fresh(&m.marker) {
			return false, err
		}
		// If only parts are missing, event time stands: the marker waits for them only if records count at it,
		// those of a commit that was too large for one group of the log.
		return !m.onlyParts() || m.e.HoldsFor(&m.marker), nil
	case envelope.KindPlan:
		// Another table may move state between groups of which not all has come.
		var p envelope.Plan
		if err := p.Parse(e.Data); err != nil {
			return false, err
		}
		return m.core.Blocked() && e.LSN >= m.e.Position() && m.e.Routes() != nil && m.e.Routes().Begins(&p), nil
	}
	return false, nil
}

// Reached implements runtime.Mover.
func (m *mover) Reached(ctx context.Context, at sharedlog.LSN, p *envelope.Plan) error {
	first := at >= m.e.Position() // else it is read again
	plan := m.plan(planOf(p, at, m.stage, m.source))
	effects := m.core.Reached(&plan, m.e.Watermark())
	if m.core.Holds() {
		m.at = at
	} else {
		m.e.Passed(at)
	}
	if err := m.own(); err != nil {
		return err
	}
	if first {
		if err := m.reroute(ctx, p); err != nil {
			return err
		}
	}
	return m.carry(ctx, effects)
}

// Cap implements runtime.Mover.
func (m *mover) Cap(time int64, idle bool) (int64, bool) { return m.core.Cap(time, idle) }

// Open implements runtime.Mover.
func (m *mover) Open() bool { return m.core.Open() }

// Marker implements runtime.Mover.
func (m *mover) Marker(to *envelope.Marker) {
	if n := m.core.Plan(); n > 1 {
		to.Plan = n
	}
	if m.release != nil {
		to.Released = envelope.Release{Plan: m.release.Plan, Groups: m.release.Groups}
		if m.mode(m.release.Plan).Memory {
			m.giving = nameOf(to)
			if peers := m.config().Peers; peers != nil {
				to.Released.Served = peers.Address()
			}
			m.h.states.promise(m.giving, m.release.Plan)
		}
	}
	to.Left = m.left
}

// Close implements runtime.Mover.
func (m *mover) Close() error {
	m.h.leave(m)
	m.h.states.keep(m.giving, nil)
	for _, a := range m.arrivals {
		if a.fetch != nil {
			a.fetch.close()
		}
		if a.copy != nil {
			a.copy.cancel()
		}
	}
	return m.givers.close()
}

// carry carries out effects, in their order, until the task has ended.
func (m *mover) carry(ctx context.Context, effects []rescale.Effect) error {
	for i := range effects {
		if err := m.one(ctx, &effects[i], effects[i+1:], i > 0 && effects[i-1].Do == rescale.Enter); err != nil {
			return err
		}
		if err := m.own(); err != nil {
			return err
		}
		if m.e.Ended() {
			return nil
		}
	}
	return nil
}

// one carries out an effect; others follow it. fresh says that the task has just entered.
func (m *mover) one(ctx context.Context, e *rescale.Effect, others []rescale.Effect, fresh bool) error {
	switch e.Do {
	case rescale.Commit:
		if err := m.own(); err != nil {
			return err
		}
		if e.Release != nil {
			return m.give(ctx, e)
		}
		return m.receive(ctx, others, fresh)
	case rescale.Follow:
		return m.start(ctx, e.From, e.At)
	case rescale.Unfollow:
		return m.givers.drop(e.From)
	case rescale.Take:
		delete(m.releases, e.At)
		_, err := m.take(ctx)
		return err
	case rescale.Back:
		return m.e.Reread(e.Back.Low)
	case rescale.Enter:
		return m.enter(ctx, e.Start)
	case rescale.End:
		tail, err := m.config().Log.Tail(ctx)
		if err != nil {
			return err
		}
		if err := m.enterRoutes(ctx); err != nil {
			return err
		}
		if err := m.e.Enter(ctx, &runtime.Entry{Position: tail, Low: tail, Watermark: exec.MaxTime}); err != nil {
			return err
		}
		m.e.End(true)
		return m.e.Commit(ctx)
	}
	return fmt.Errorf("effect %d is not known", e.Do)
}

// give makes the commit that gives groups away, or with which the task leaves.
func (m *mover) give(ctx context.Context, e *rescale.Effect) error {
	m.release, m.left = e.Release, e.Leave
	defer func() { m.release = nil }()
	if e.Leave {
		m.e.End(true)
	}
	m.e.Reached(observe.RescaleReleasing)
	state, err := m.e.Release(ctx, e.Release.Groups)
	if err != nil {
		return err // Close tells the receivers that there is none
	}
	if m.config().Peers == nil {
		m.h.elsewhere(m, m.plans[e.Release.Plan].Moves, state)
	}
	m.h.states.keep(m.giving, state)
	m.e.Landed(func(sharedlog.LSN) { m.e.Reached(observe.RescaleReleased) })
	return nil
}

// receive makes the commit by which the task owns the groups that it then takes.
func (m *mover) receive(ctx context.Context, takes []rescale.Effect, fresh bool) error {
	var all []runtime.Received
	for i := range takes {
		if take := &takes[i]; take.Do == rescale.Take {
			a := m.arrives(take)
			all = append(all, runtime.Received{Groups: take.Groups, Snapshot: a.marker.Snapshot, Kept: a.marker.Kept, Whole: a.whole, Positions: a.marker.Positions, Clock: a.marker.Clock})
		}
	}
	return m.e.Receive(ctx, all, fresh)
}

// enter starts the input of a task that is new in its stage.
func (m *mover) enter(ctx context.Context, s *rescale.Start) error {
	n := &runtime.Entry{Marker: m.releases[s.Release], Position: s.Position, Low: s.Low, Watermark: s.Watermark}
	for _, r := range m.releases {
		n.Clock = max(n.Clock, r.Clock)
	}
	if err := m.own(); err != nil {
		return err
	}
	if err := m.enterRoutes(ctx); err != nil {
		return err
	}
	return m.e.Enter(ctx, n)
}

// start begins to follow a giver: its newest marker below an LSN, and all from there on.
func (m *mover) start(ctx context.Context, giver int, at sharedlog.LSN) error {
	cfg := m.config()
	last, lsn, err := records.LastMarker(ctx, cfg.Log, cfg.Layout.Job, m.name(), giver, at)
	if errors.Is(err, sharedlog.ErrTrimmed) {
		if did, failed := m.ended(ctx, giver); did || failed != nil {
			return failed
		}
	}
	if err != nil {
		return err
	}
	if err := m.givers.add(cfg.Log, tags.Task(cfg.Layout.Job, m.name(), giver), giver, at); err != nil || last == nil {
		return err
	}
	return m.saw(ctx, giver, last, lsn)
}

// ended continues behind the last marker of a task that it follows, and reports whether there is one: the task had ended
// before it knew of the plan, so the step is done, and the task's log is trimmed, although this task has not seen it.
func (m *mover) ended(ctx context.Context, giver int) (bool, error) {
	cfg := m.config()
	tail, err := cfg.Log.Tail(ctx)
	if err != nil {
		return false, err
	}
	last, at, err := records.LastMarker(ctx, cfg.Log, cfg.Layout.Job, m.name(), giver, tail)
	if err != nil || last == nil || !last.Ended || last.Left {
		return false, err
	}
	if err := m.givers.add(cfg.Log, tags.Task(cfg.Layout.Job, m.name(), giver), giver, at+1); err != nil {
		return false, err
	}
	return true, m.saw(ctx, giver, last, at)
}

// trimmed handles that records are trimmed that the task would follow; why is the error.
func (m *mover) trimmed(ctx context.Context, why error) error {
	some := false
	for _, giver := range slices.Sorted(maps.Keys(m.givers.from)) {
		did, err := m.ended(ctx, giver)
		if err != nil {
			return err
		}
		some = some || did
	}
	if !some {
		return why
	}
	return nil
}

// follow handles the givers' new markers, and reports whether there were any.
func (m *mover) follow(ctx context.Context) (did bool, err error) {
	for {
		giver, mark, at, err := m.givers.next()
		if errors.Is(err, sharedlog.ErrTrimmed) {
			return true, m.trimmed(ctx, err)
		}
		if err != nil || mark == nil {
			return did, err
		}
		did = true
		if err := m.saw(ctx, giver, mark, at); err != nil || m.e.Ended() {
			return did, err
		}
	}
}

// saw passes a giver's marker to the core.
func (m *mover) saw(ctx context.Context, giver int, mark *envelope.Marker, at sharedlog.LSN) error {
	k, r := markerOf(mark, at)
	if r != nil {
		m.releases[at] = mark
	}
	return m.carry(ctx, m.core.Saw(giver, k, r))
}
