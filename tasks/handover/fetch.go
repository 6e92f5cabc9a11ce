package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

const (
	// patience is how long a receiver waits for the next frame before it restores the groups.
	patience = time.Second
	// askAhead is how many key groups a receiver has asked for whose answers have not ended.
	askAhead = 2
	// framesAhead bounds the frames that the task has not applied.
	framesAhead = 4
)

// fetch gets the key groups of one release from the process of their giver. Its goroutine asks and
// receives; the task applies what has come, between two batches of its input.
type fetch struct {
	peers   copies.Peers
	address string
	job     string
	name    release
	poke    func()
	moves   *status.Moves
	frames  chan frame // closed at the end, behind err
	err     error
	cancel  context.CancelFunc

	parts bool // groups come part by part

	mu   sync.Mutex
	asks asks

	// Of the task.
	items  uint64        // applied of the group that is not complete
	within bool          // there is such a group
	come   map[int]*come // by group, of which parts have come
	before []byte        // items of the next part
}

// frame is a frame of the answer to the request for a group.
type frame struct {
	group int
	copies.Frame
}

// begin starts to fetch. The fetch lives until close, or until frames ends.
func (f *fetch) begin(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.frames = make(chan frame, framesAhead)
	go func() {
		defer f.poke()
		defer close(f.frames)
		defer f.cancel()
		f.err = f.run(ctx)
	}()
}

// close ends the fetch and waits for its goroutine.
func (f *fetch) close() {
	f.cancel()
	for range f.frames { // until it is closed
	}
}

// first makes the fetch ask for some groups before others.
func (f *fetch) first(groups []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks.first(groups)
}

// demand makes the fetch ask for parts of a group before others.
func (f *fetch) demand(group int, parts []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks.demand(group, parts)
}

// next returns what to ask for now.
func (f *fetch) next() (ask, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of, urgent, ok := f.asks.next()
	if ok {
		f.moves.Asked(urgent, len(of.parts))
	}
	return of, ok
}

// has is called when all of a group was received.
func (f *fetch) has(group int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks.has(group)
}

var errSilent = fmt.Errorf("it has sent nothing for %v", patience)

// run asks for all groups and passes on what it receives.
func (f *fetch) run(ctx context.Context) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silent := time.AfterFunc(patience, func() { giveUp(errSilent) })
	defer silent.Stop()
	because := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	st, err := f.peers.Open(ctx, f.address, f.job)
	if err != nil {
		return because(err)
	}
	var asked []ask
	for {
		for len(asked) < askAhead {
			of, ok := f.next()
			if !ok {
				break
			}
			r := copies.Request{Stage: f.name.stage, Task: f.name.task, Nonce: f.name.nonce, Commit: f.name.commit, Group: of.group, Parts: of.parts}
			if f.parts {
				r.Of = exec.Parts
			}
			b, err := r.Bytes()
			if err == nil {
				err = st.Send(b)
			}
			if err != nil && !errors.Is(err, io.EOF) { // then Recv says why
				return because(err)
			}
			asked = append(asked, of)
		}
		if len(asked) == 0 {
			return nil
		}
		b, err := st.Recv()
		if err != nil {
			return because(err)
		}
		silent.Stop() // the task decides how long the next lines take
		fr, err := copies.Parse(b)
		if err != nil {
			return err
		}
		select {
		case f.frames <- frame{asked[0].group, fr}:
			f.poke()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch fr.Kind {
		case copies.Some:
		case copies.Parts:
			if asked[0].parts = asked[0].parts[min(len(fr.Parts), len(asked[0].parts)):]; len(asked[0].parts) == 0 {
				asked = asked[1:]
			}
		case copies.Whole:
			f.has(asked[0].group)
			asked = asked[1:]
		default:
			asked = asked[1:]
		}
		silent.Reset(patience)
	}
}

// fetches reports whether the key groups of a release may come from the process that has released them.
func (m *mover) fetches(a *arrival) bool {
	r, peers := &a.marker.Released, m.config().Peers
	return !a.restores && m.config().State == nil && peers != nil && r.Served != "" && r.Served != peers.Address() && m.mode(r.Plan).Memory
}

// ask starts to fetch the missing key groups of a release.
func (m *mover) ask(ctx context.Context, a *arrival) {
	m.e.Reached(observe.RescaleAsking)
	cfg := m.config()
	a.fetch = &fetch{
		peers: cfg.Peers, address: a.marker.Released.Served, job: cfg.Layout.Job, name: nameOf(a.marker), poke: m.poke, moves: m.e.Moves(),
		parts: m.inParts(), come: map[int]*come{},
	}
	a.fetch.asks = newAsks(a.missing, a.fetch.parts)
	a.fetch.begin(ctx)
}

// demand makes the groups that a record waits for come before others.
func (m *mover) demand(groups []int) {
	for _, a := range m.arrivals {
		if a.fetch != nil {
			a.fetch.first(groups)
		}
	}
}

// fetched applies one frame of each fetch, and reports whether there was any.
func (m *mover) fetched(ctx context.Context) (did bool, err error) {
	for _, a := range slices.Clone(m.arrivals) {
		if a.fetch == nil {
			continue
		}
		select {
		case fr, ok := <-a.fetch.frames:
			did = true
			if ok {
				err = m.frame(ctx, a, &fr)
			} else {
				err = m.unfetched(ctx, a, a.fetch.err)
			}
			m.poke() // there may be another one
		default:
		}
		if err != nil {
			return did, err
		}
	}
	return did, nil
}

// frame applies a frame of a release's key groups. Only what also ends the task's rebuilding of the groups
// is an error; what else is wrong with a frame ends the fetch.
func (m *mover) frame(ctx context.Context, a *arrival, fr *frame) error {
	began := m.config().Clock()
	defer func() { m.e.Moves().Took(m.config().Clock().Sub(began)) }()
	f := a.fetch
	f.moves.Received(len(fr.Items))
	for i := range fr.Parts {
		f.moves.Received(len(fr.Parts[i].Items))
	}
	corrupt := func(format string, args ...any) error {
		return m.unfetched(ctx, a, sharedlog.Errorf(sharedlog.KindCorrupt, format, args...))
	}
	switch fr.Kind {
	case copies.Some:
		if f.parts {
			f.before = append(f.before, fr.Items...) // a part, or a group, is added when all of it has come
			return nil
		}
		return m.apply(ctx, a, fr.group, fr.Items)
	case copies.Parts:
		if !f.parts || !slices.Contains(a.missing, fr.group) {
			return corrupt("parts come of key group %d", fr.group)
		}
		whole, err := m.arrived(a, fr.group, fr.Parts)
		if err != nil {
			return m.unfetched(ctx, a, err)
		}
		if !whole {
			return nil
		}
		delete(f.come, fr.group)
		m.e.Whole()
		return m.has(a, []int{fr.group}, status.Fetched)
	case copies.Whole:
		if f.parts {
			if f.come[fr.group] != nil {
				return corrupt("a whole key group comes behind parts of it")
			}
			items := f.before
			f.before = nil
			if err := m.apply(ctx, a, fr.group, items); err != nil || a.fetch == nil {
				return err
			}
		}
		if f.items != fr.Total {
			return corrupt("%d items of %d have come", f.items, fr.Total)
		}
		f.items, f.within = 0, false
		if err := m.e.Restored([]int{fr.group}); err != nil {
			return err
		}
		return m.has(a, []int{fr.group}, status.Fetched)
	case copies.None: // what is missing stays so until the fetch ends
		if f.within || len(f.before) > 0 {
			return corrupt("a copy ends with a refusal")
		}
	}
	return nil
}

// apply applies items of a key group that comes as a whole.
func (m *mover) apply(ctx context.Context, a *arrival, group int, items []byte) error {
	f := a.fetch
	f.within = true
	n, err := m.e.ApplyCopy(group, items)
	f.items += uint64(n)
	if err != nil {
		return m.unfetched(ctx, a, err)
	}
	m.e.Reached(observe.RescaleCopied)
	return nil
}

// unfetched ends the fetch of a release, of which groups are missing: the task restores them. err is nil if the
// giver's process does not have them.
func (m *mover) unfetched(ctx context.Context, a *arrival, err error) error {
	f := a.fetch
	f.close()
	a.fetch, a.restores = nil, true
	m.config().Logger.Warn("the process of a task that has released key groups does not send all of them; they are restored",
		"stage", m.name(), "task", m.index, "from", f.address, "groups", len(a.missing), "error", err)
	if f.within {
		for _, g := range a.missing {
			if f.come[g] == nil {
				m.e.Drop(g) // of one of them a part has come
			}
		}
	}
	if len(f.come) == 0 {
		return nil
	}
	return m.again(ctx, a, slices.Sorted(maps.Keys(f.come)))
}
