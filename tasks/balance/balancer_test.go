package balance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// uneven is a job whose stage "sums" has two tasks: the first one owns three of four key groups of equal
// loads, 1000 items a second each. A rescale of it takes until it is told that it is done.
type uneven struct {
	begin time.Time
	asked chan struct{} // receives when a rescale begins
	done  chan struct{}

	mu    sync.Mutex
	owner []int
	loads []uint64 // of the key groups; nil: equal ones
}

func (j *uneven) Layout() *layout.Layout {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &layout.Layout{
		Plan:    &exec.Plan{Streams: []exec.StreamSpec{{Name: "keys"}}, Stages: []exec.StageSpec{{Name: "source"}, {Name: "sums", Inputs: []int{0}}}},
		Streams: []layout.Stream{{Groups: len(j.owner)}}, Stages: []layout.Stage{{Tasks: 1, Groups: 1}, {Tasks: 2, Groups: len(j.owner), Owner: j.owner}},
	}
}

func (j *uneven) Status() []status.Snapshot {
	n := uint64(time.Since(j.begin).Milliseconds())
	if j.loads != nil {
		var by []uint64
		for _, l := range j.loads {
			by = append(by, n*l)
		}
		return []status.Snapshot{{Stage: "source", Instance: 1, Sent: []status.Sent{{Stream: "keys", ByGroup: by}}}}
	}
	return []status.Snapshot{{Stage: "source", Instance: 1, Sent: []status.Sent{{Stream: "keys", ByGroup: []uint64{n, n, n, n}}}}}
}

func (j *uneven) Busy() bool { return false }

func (j *uneven) Rescale(ctx context.Context, r rescale.Request) (*rescale.Result, error) {
	j.asked <- struct{}{}
	select {
	case <-j.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	moved := route.Moved(j.owner, r.Owners)
	j.owner = r.Owners
	return &rescale.Result{Stage: r.Stage, GroupsMoved: moved}, nil
}

// A balancer that is told to stop amid a step ends the step first; one whose context ends does not.
func TestStopsBehindItsStep(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := &uneven{begin: time.Now(), asked: make(chan struct{}), done: make(chan struct{}), owner: []int{0, 0, 0, 1}}
			b, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "least-count", When: When{Below: 0.9}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			stop, over := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(over)
				b.Run(ctx, stop)
			}()
			<-j.asked
			require.InDelta(t, 4, time.Since(j.begin).Seconds(), 0.1, "the first sample has no items, three more are of them")
			close(stop)
			if crash {
				cancel()
				<-over
				require.Equal(t, []int{0, 0, 0, 1}, j.owner)
				require.Zero(t, b.State().Switches)
				return
			}
			time.Sleep(time.Minute)
			select {
			case <-over:
				t.Fatal("it has stopped, and its step has not ended")
			default:
			}
			close(j.done)
			<-over
			st := b.State()
			require.Equal(t, 1, st.Switches)
			require.Equal(t, 1, st.MovedGroups)
			require.InDelta(t, 1.0/3, st.Newest.Degree, 1e-9)
			require.Equal(t, []int64{9000, 3000}, st.ByTask)
			cancel()
		})
	}
}

// A rescale of a stage that is balanced gets owners by the loads, once they are known; not of one that is measured only, or has its
// owners by the hash.
func TestOwnersForARescale(t *testing.T) {
	for _, c := range []struct {
		dispatch string
		when     When
		shares   []float64
		planner  Planner
		want     []int64 // loads of 3 tasks; nil: they are not for this Balancer to say
	}{
		{dispatch: "least-count", when: When{Below: 0.1}, want: []int64{4, 4, 4}},
		{dispatch: "weight", when: When{Below: 0.1}, shares: []float64{2, 1, 1}, want: []int64{6, 3, 3}},
		{dispatch: "weight", when: When{Below: 0.1}, shares: []float64{1, 1}, want: []int64{4, 4, 4}},
		{dispatch: "hash", when: When{Below: 0.1}},
		{dispatch: "least-count", when: When{Quiet: 5}},
		{dispatch: "least-key", when: When{Below: 0.1}},
		{dispatch: Own, when: When{Below: 0.1}, planner: func(l *Load) ([]int, error) {
			if l.Tasks == 3 {
				return []int{0, 1, 2, 0, 1, 2}, nil
			}
			return l.Owners, nil
		}, want: []int64{7, 3, 2}},
		{dispatch: Own, when: When{Below: 0.1}, planner: func(l *Load) ([]int, error) {
			if l.Tasks == 3 {
				return nil, errors.New("not for three")
			}
			return l.Owners, nil
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			loads := []uint64{4, 2, 1, 3, 1, 1}
			j := &uneven{begin: time.Now(), owner: []int{0, 0, 1, 1, 1, 1}, loads: loads}
			b, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: c.dispatch, When: c.when, Shares: c.shares, Planner: c.planner})
			require.NoError(t, err)
			require.Nil(t, b.For(3), "nothing is known yet")
			stop := make(chan struct{})
			defer close(stop)
			go b.Run(t.Context(), stop)
			<-time.After(1500 * time.Millisecond)
			require.Nil(t, b.For(3), "the first sample has no items")
			<-time.After(3 * time.Second)
			synctest.Wait()
			owners := b.For(3)
			if c.want == nil {
				require.Nil(t, owners, "%+v", c)
				return
			}
			of := make([]int64, 3)
			for g, owner := range owners {
				of[owner] += int64(loads[g])
			}
			require.Equal(t, c.want, of, "%+v: %v", c, owners)
			require.Nil(t, b.For(7), "there are 6 key groups")
			require.Nil(t, b.For(0))
		})
	}
}

// A preview has the loads between two readings, and the moves that a step would make; it asks the job for
// nothing.
func TestLook(t *testing.T) {
	j := &uneven{begin: time.Now(), owner: []int{0, 0, 0, 1}}
	at := func(n uint64) []status.Snapshot {
		return []status.Snapshot{{Stage: "source", Instance: 1, Sent: []status.Sent{{Stream: "keys", ByGroup: []uint64{n, 2 * n, 3 * n, 4 * n}}}}}
	}
	p, err := Look(Request{Stage: "sums", Dispatch: "least-count"}, j.Layout(), 1, nil, at(100), at(110))
	require.NoError(t, err)
	require.Equal(t, &Preview{
		Stage: "sums", Dispatch: "least-count", Tasks: 2, KeyGroups: 4, Of: "items", Items: []int64{60, 40}, Planned: []int64{50, 50},
		Degree: 2.0 / 3, Extra: p.Extra, PlannedDegree: 1, Moves: []Move{{0, 0, 1, 10}},
	}, p)
	require.InDelta(t, 0.2, p.Extra, 1e-9)
	for n, shares := range map[int][]float64{3: {1, 2, 3}, 1: {1}} {
		_, err = Look(Request{Stage: "sums", Dispatch: "weight", Shares: shares}, j.Layout(), 1, nil, at(100), at(110))
		require.EqualError(t, err, fmt.Sprintf(`stage "sums" has 2 tasks, and there are %d task weights`, n))
	}
	p, err = Look(Request{Stage: "sums", Dispatch: "weight", Shares: []float64{3, 1}}, j.Layout(), 1, nil, at(100), at(110))
	require.NoError(t, err)
	require.InDelta(t, 0.5, p.Degree, 1e-9, "a third of 60 is 20, and the other one has 40")
	require.InDelta(t, 0.6, p.Extra, 1e-9)
	require.Greater(t, p.PlannedDegree, 0.7)
	require.Less(t, p.PlannedExtra, 0.25)
}

// By keys a preview has those of the second reading, which their key groups' owners tell. It needs all of them.
func TestLookAtKeys(t *testing.T) {
	j := &uneven{begin: time.Now(), owner: []int{0, 0, 0, 1}}
	sums := func(keys ...[]int64) (all []status.Snapshot) {
		for task, k := range keys {
			all = append(all, status.Snapshot{Stage: "sums", Task: task, Keys: k, StateBytes: 100})
		}
		return append(all, status.Snapshot{Stage: "source", Keys: []int64{9, 9, 9, 9}, StateBytes: 1})
	}
	all := sums([]int64{10, 20, 30, 77}, []int64{-1, 50, -1, 40})
	keys, bytes := state("sums", j.owner, all)
	require.Equal(t, []int64{10, 20, 30, 40}, keys)
	require.EqualValues(t, 200, bytes)
	r := Request{Stage: "sums", Dispatch: "least-key"}
	require.NoError(t, r.Check())
	p, err := Look(r, j.Layout(), 1, nil, sums(), all)
	require.NoError(t, err)
	p.Seconds = 3
	require.Equal(t, &Preview{
		Stage: "sums", Dispatch: "least-key", Tasks: 2, KeyGroups: 4, Of: "keys", Items: []int64{60, 40}, Planned: []int64{50, 50},
		Degree: 2.0 / 3, Extra: p.Extra, PlannedDegree: 1, Moves: []Move{{0, 0, 1, 10}}, Seconds: 3,
	}, p)
	unit, one := p.Unit()
	require.Equal(t, "keys", unit)
	require.EqualValues(t, 1, one)
	for _, all := range [][]status.Snapshot{
		sums([]int64{10, 20, 30, 77}), sums([]int64{10, 20, 30, 77}, []int64{-1, 50, -1, -1}), sums([]int64{10, 20}, []int64{1, 1, 1, 1}),
	} {
		_, err = Look(r, j.Layout(), 1, nil, sums(), all)
		require.ErrorContains(t, err, "the keys of some key groups were not counted")
	}
}

// With slots a preview has the parts that another table would place, and those that it would take out: by the samples of the second
// reading.
func TestLookAtSlots(t *testing.T) {
	l := &layout.Layout{
		Plan:    &exec.Plan{Streams: []exec.StreamSpec{{Name: "keys"}}, Stages: []exec.StageSpec{{Name: "source"}, {Name: "sums", Inputs: []int{0}}}},
		Streams: []layout.Stream{{Groups: 4, Slots: 2}}, Stages: []layout.Stage{{Tasks: 1, Groups: 1}, {Tasks: 2, Groups: 4, Slots: 2, Owner: []int{0, 1, 1, 0}}},
	}
	var keys [][]byte // of key group 0
	for i := 0; len(keys) < 3; i++ {
		if k := fmt.Append(nil, i); exec.GroupOf(exec.HashKey(k), 2) == 0 {
			keys = append(keys, k)
		}
	}
	table, err := route.NewTable(5, 2, 2, []route.Place{{Part: route.Single([]byte("cold")), Slot: 2}})
	require.NoError(t, err)
	at := func(n uint64, times int) []status.Snapshot {
		s := status.New(time.Now, 1)
		s.Output("keys", 4)
		for _, k := range keys {
			for range times {
				s.Sampler(0, 2).Add(exec.HashKey(k), k)
			}
		}
		all := s.Read("source", 0)
		all.Sent[0].ByGroup = []uint64{4 * n, 2 * n, 0, 0}
		return []status.Snapshot{all}
	}
	home := route.Single([]byte("cold")).Home(2)
	p, err := Look(Request{Stage: "sums", Dispatch: "least-count"}, l, 1, table, at(0, 1), at(3000, 100))
	require.NoError(t, err)
	require.Equal(t, []int64{12_000, 6000}, p.Items)
	require.Equal(t, []any{2, 1, uint32(5)}, []any{p.Slots, p.SlotsUsed, p.Epoch})
	require.NotEmpty(t, p.Placed)
	placed := p.Placed[0]
	require.Equal(t, Placed{Part: placed.Part, Group: 0, Slot: 3, From: 0, To: 1, Items: 4000}, placed, "one of three keys, with what is around it")
	planned := slices.Clone(p.Items)
	for _, q := range p.Placed {
		planned[q.From], planned[q.To] = planned[q.From]-q.Items, planned[q.To]+q.Items
	}
	require.Equal(t, planned, p.Planned)
	require.Equal(t, []Placed{{Part: `key "cold"`, Key: []byte("cold"), Group: home, Slot: 2, From: 1, To: []int{0, 1}[home]}}, p.Back)
	require.Empty(t, p.Moves, "a slot is filled where it is to be")
	require.Equal(t, 0.5, p.Degree)
	require.Greater(t, p.PlannedDegree, 0.75)

	p, err = Look(Request{Stage: "sums", Dispatch: "hash"}, l, 1, table, at(0, 1), at(3000, 100))
	require.NoError(t, err)
	require.Empty(t, p.Placed)
	require.Empty(t, p.Back)
	require.Equal(t, 2, p.Slots)
}

// Samples are taken each second, however seldom there is to be a step, and task weights count while there are
// as many tasks.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &uneven{begin: time.Now(), owner: []int{0, 0, 0, 1}}
		b, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "weight", When: When{Every: 20_000}, Shares: []float64{1, 2, 3}})
		require.NoError(t, err)
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			b.Run(t.Context(), stop)
		}()
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		st := b.State()
		require.Equal(t, "its time has not come", st.Why)
		require.InDelta(t, 1.0/3, st.Degree, 1e-9)
		require.InDelta(t, 1.0/3, st.Mean, 1e-9)
		require.Equal(t, []int64{6000, 2000}, st.ByTask)
		close(stop)
		<-over
	})
}

// answering is a job whose rescales end at once, as they are told to.
type answering struct {
	uneven
	result *rescale.Result
	err    error
	asked  []rescale.Request
}

func (j *answering) Rescale(_ context.Context, r rescale.Request) (*rescale.Result, error) {
	j.asked = append(j.asked, r)
	return j.result, j.err
}

// A state has each step with what became of it, and a sample without items says nothing about the degree.
func TestStepsAreCounted(t *testing.T) {
	j := &answering{uneven: uneven{owner: []int{0, 0, 0, 1}}}
	b, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "least-count"})
	require.NoError(t, err)
	b.decided(&route.Decision{Degree: 0, Why: "too few items"}, []int64{0, 0}, nil)
	b.decided(&route.Decision{Degree: 0.5, Measured: true}, []int64{7, 1}, nil)
	b.decided(&route.Decision{Degree: 0.25, Measured: true}, []int64{1, 1}, nil)
	before := b.State()
	require.Equal(t, 0.375, before.Mean)
	s, d := &route.Sample{Tasks: 2, Owners: []int{0, 0, 0, 1}}, &route.Decision{Owners: []int{0, 0, 1, 1}, Degree: 0.5, Planned: 1}
	for _, c := range []struct {
		ms     float64
		err    error
		closed bool
	}{{ms: 30}, {ms: 10}, {err: fmt.Errorf("no: %w", rescale.ErrChanged)}, {err: runtime.ErrEnded}, {err: rescale.ErrStageEnded}, {ms: 90, closed: true}, {err: errors.New("the log is full")}} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.closed {
			cancel()
		}
		j.result, j.err = &rescale.Result{GroupsMoved: 3, SettledMS: c.ms}, c.err
		b.step(ctx, s, d)
		cancel()
	}
	require.Equal(t, rescale.Request{Stage: "sums", Tasks: 2, Owners: d.Owners, Have: s.Owners, ID: "balance"}, j.asked[0])
	b.decided(&route.Decision{Degree: 1, Measured: true}, []int64{2, 2}, nil)
	st := b.State()
	require.Equal(t, 2, st.Switches)
	require.Equal(t, 6, st.MovedGroups)
	require.Equal(t, 40.0, st.SettledMS)
	require.Equal(t, 30.0, st.SlowestMS)
	require.Equal(t, 1, st.Void)
	require.Equal(t, "the log is full", st.Error)
	require.Equal(t, &Step{rescale.Result{GroupsMoved: 3, SettledMS: 10}, 0.5, 1, 0, 0}, st.Newest)

	b.step(t.Context(), s, d) // another error
	since := b.State().Since(&before)
	require.Equal(t, 1.0, since.Mean)
	require.Equal(t, []int64{2, 2}, since.ByTask)
	require.Equal(t, []int64{10, 4}, b.State().ByTask)
	require.Equal(t, 2, since.Switches)
	require.Zero(t, b.State().Since(&st).Switches+b.State().Since(&st).MovedGroups+b.State().Since(&st).Void)
	require.Zero(t, b.State().Since(&st).SettledMS)
}

// slotted is a job that has slots, and answers at once.
type slotted struct {
	answering
	routed []routing.Reroute
}

func (j *slotted) Table(int) (*routing.Table, error) {
	return route.NewTable(7, 3, 1, []route.Place{{Part: route.Single([]byte("k")), Slot: 3}})
}

func (j *slotted) Reroute(_ context.Context, r routing.Reroute) error {
	j.routed = append(j.routed, r)
	return j.err
}

// A step with places is one request for a table and owners, which is void if there are others by then; without places it is a
// rescale.
func TestRoutes(t *testing.T) {
	j := &slotted{answering: answering{uneven: uneven{owner: []int{0, 0, 0, 1}}, result: &rescale.Result{GroupsMoved: 1}}}
	b, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "least-count"})
	require.NoError(t, err)
	table := b.table()
	require.EqualValues(t, 7, table.Epoch)
	require.EqualValues(t, 7, b.State().Epoch)
	require.Equal(t, 1, b.State().SlotsUsed)
	before := b.State()
	s := &route.Sample{Tasks: 2, Owners: []int{0, 0, 0, 1}, Slots: 1, Table: table}
	d := &route.Decision{Owners: []int{0, 1, 0, 1}, Places: []route.Place{}, Back: 1, Degree: 0.5, Planned: 1}
	b.step(t.Context(), s, d)
	require.Equal(t, []routing.Reroute{{Stage: "sums", Places: d.Places, Owners: d.Owners, Have: s.Owners, Epoch: 7, Was: table.Places()}}, j.routed)
	require.Empty(t, j.asked)
	j.err = fmt.Errorf("no: %w", rescale.ErrChanged)
	b.step(t.Context(), s, d)
	j.err = nil
	b.step(t.Context(), s, &route.Decision{Owners: d.Owners})
	require.Len(t, j.routed, 2)
	require.Len(t, j.asked, 1)
	st := b.State().Since(&before)
	require.Equal(t, []int{2, 1, 1, 0, 1, 2}, []int{st.Switches, st.Void, st.Tables, st.PartsPlaced, st.PartsBack, st.MovedGroups})

	whole, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "hash"})
	require.NoError(t, err)
	require.Nil(t, whole.table(), "hash has the owners of a new job")
	only, err := New(&j.answering, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "least-count"})
	require.NoError(t, err)
	require.Nil(t, only.table(), "nothing routes")
}

// The degree that came of a step is that of the items behind it: those of the sample in which it fell count nowhere.
func TestDegreeSinceTheStep(t *testing.T) {
	j := &answering{uneven: uneven{owner: []int{0, 0, 0, 1}}, result: &rescale.Result{GroupsMoved: 1}}
	b, err := New(j, slog.New(slog.DiscardHandler), 1, Request{Stage: "sums", Dispatch: "least-count"})
	require.NoError(t, err)
	none := &route.Decision{}
	b.decided(none, []int64{5, 5}, nil) // since an unknown time
	b.decided(none, []int64{8, 2}, nil)
	b.decided(none, []int64{8, 2}, nil)
	require.Equal(t, 0.25, b.State().Became)
	require.EqualValues(t, 20, b.State().BecameOf)
	b.step(t.Context(), &route.Sample{Tasks: 2, Owners: []int{0, 0, 0, 1}}, &route.Decision{Owners: []int{0, 0, 1, 1}})
	require.Zero(t, b.State().BecameOf)
	b.decided(none, []int64{9, 1}, nil)
	b.decided(none, []int64{4, 5}, nil)
	require.Equal(t, 0.8, b.State().Became)
	b.decided(none, []int64{4, 8}, []float64{1, 2})
	require.InDelta(t, 6.5/8, b.State().Became, 1e-9)
}

// What the tasks have sampled of the stage's inputs counts, and of no other stream.
func TestSampledOfInputs(t *testing.T) {
	of := func(stream, key string) status.Snapshot {
		s := status.New(time.Now, 1)
		s.Output(stream, 5)
		s.Sampler(0, 4).Add(exec.HashKey([]byte(key)), []byte(key))
		return s.Read("source", 0)
	}
	all := sampled([]string{"a", "b"}, []status.Snapshot{of("a", "x"), of("b", "x"), of("c", "y"), {Sent: []status.Sent{{Stream: "a"}}}})
	require.Len(t, all.Keys, 1)
	require.Equal(t, "x", all.Keys[0].Key)
	require.InDelta(t, 2, all.Keys[0].Count, 0.01)
}
