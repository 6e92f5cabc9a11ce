package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
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
	frames  chan frame // closed at the end, behind err
	err     error
	cancel  context.CancelFunc

	mu   sync.Mutex
	rest []int // the groups that were not asked for, the next one first

	items  uint64 // applied of the group that is not complete
	within bool   // there is such a group
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
	slices.SortStableFunc(f.rest, func(a, b int) int { return rank(groups, a) - rank(groups, b) })
}

func rank(groups []int, g int) int {
	if slices.Contains(groups, g) {
		return 0
	}
	return 1
}

// next returns the group to ask for now.
func (f *fetch) next() (group int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rest) == 0 {
		return 0, false
	}
	group, f.rest = f.rest[0], f.rest[1:]
	return group, true
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
	var asked []int
	for {
		for len(asked) < askAhead {
			g, ok := f.next()
			if !ok {
				break
			}
			r := copies.Request{Stage: f.name.stage, Task: f.name.task, Nonce: f.name.nonce, Commit: f.name.commit, Group: g}
			b, err := r.Bytes()
			if err == nil {
				err = st.Send(b)
			}
			if err != nil && !errors.Is(err, io.EOF) { // then Recv says why
				return because(err)
			}
			asked = append(asked, g)
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
		case f.frames <- frame{asked[0], fr}:
			f.poke()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if fr.Kind != copies.Some {
			asked = asked[1:]
		}
		silent.Reset(patience)
	}
}

// fetches reports whether the key groups of a release may come from the process that has released them.
func (m *mover) fetches(a *arrival) bool {
	r, peers := &a.marker.Released, m.config().Peers
	return !a.restores && peers != nil && r.Served != "" && r.Served != peers.Address() && m.mode(r.Plan).Memory
}

// ask starts to fetch the missing key groups of a release.
func (m *mover) ask(ctx context.Context, a *arrival) {
	m.e.Reached(observe.RescaleAsking)
	cfg := m.config()
	a.fetch = &fetch{
		peers: cfg.Peers, address: a.marker.Released.Served, job: cfg.Layout.Job, name: nameOf(a.marker), poke: m.poke,
		rest: slices.Clone(a.missing),
	}
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
func (m *mover) fetched() (did bool, err error) {
	for _, a := range slices.Clone(m.arrivals) {
		if a.fetch == nil {
			continue
		}
		select {
		case fr, ok := <-a.fetch.frames:
			did = true
			if ok {
				err = m.frame(a, &fr)
			} else {
				m.unfetched(a, a.fetch.err)
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
func (m *mover) frame(a *arrival, fr *frame) error {
	began := m.config().Clock()
	defer func() { m.e.Moved(m.config().Clock().Sub(began)) }()
	f := a.fetch
	switch fr.Kind {
	case copies.Some:
		f.within = true
		n, err := m.e.ApplyCopy(fr.group, fr.Items)
		f.items += uint64(n)
		if err != nil {
			m.unfetched(a, err)
			return nil
		}
		m.e.Reached(observe.RescaleCopied)
	case copies.Whole:
		if f.items != fr.Total {
			m.unfetched(a, sharedlog.Errorf(sharedlog.KindCorrupt, "%d items of %d have come", f.items, fr.Total))
			return nil
		}
		f.items, f.within = 0, false
		if err := m.e.Restored([]int{fr.group}); err != nil {
			return err
		}
		return m.has(a, []int{fr.group})
	case copies.None: // it stays missing until the fetch ends
		if f.within {
			m.unfetched(a, sharedlog.Errorf(sharedlog.KindCorrupt, "a copy ends with a refusal"))
		}
	}
	return nil
}

// unfetched ends the fetch of a release, of which groups are missing: the task restores them. err is nil if the
// giver's process does not have them.
func (m *mover) unfetched(a *arrival, err error) {
	f := a.fetch
	f.close()
	a.fetch, a.restores = nil, true
	m.config().Logger.Warn("the process of a task that has released key groups does not send all of them; they are restored",
		"stage", m.name(), "task", m.index, "from", f.address, "groups", len(a.missing), "error", err)
	if f.within {
		for _, g := range a.missing {
			m.e.Drop(g) // of one of them a part has come
		}
	}
}
