package grains

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/watermark/chooser"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// plant is a job whose stage "sums" has a task that has measured 4000 items since the last reading, whose disorder is apart; a
// key's is 3 ms.
type plant struct {
	mu       sync.Mutex // orders what the test does before it waits, and the calls that follow
	measured chooser.Measured
	apart    int64
	busy     bool
	grain    envelope.Grain
	err      error
	asked    []runtime.Switch
	instance uint64
}

func (p *plant) Status() []status.Snapshot {
	p.order()
	for range 4000 {
		p.measured.Task.Add(p.apart)
		p.measured.Key.Add(3)
	}
	p.measured.Keys = 10
	m := p.measured
	return []status.Snapshot{{Stage: "sums", Instance: p.instance, Measured: &m}, {Stage: "sums", Task: 1}, {Stage: "others", Measured: &m}}
}

func (p *plant) order() {
	p.mu.Lock()
	defer p.mu.Unlock()
}

func (p *plant) Busy() bool {
	p.order()
	return p.busy
}

func (p *plant) Grain(string) envelope.Grain {
	p.order()
	return p.grain
}

func (p *plant) task() envelope.Grain           { return envelope.Grain{} }
func (p *plant) key(delay int64) envelope.Grain { return envelope.Grain{PerKey: true, Delay: delay} }

func (p *plant) wait(s int) {
	p.order()
	time.Sleep(time.Duration(s) * time.Second)
	synctest.Wait()
}

func (p *plant) SwitchGrain(_ context.Context, s runtime.Switch) error {
	p.order()
	p.asked = append(p.asked, s)
	if p.err == nil {
		p.grain = s.Grain
	}
	return p.err
}

// run chooses a plant's grain with a clock that goes when all wait.
func run(t *testing.T, p *plant, f func(c *Chooser)) {
	synctest.Test(t, func(t *testing.T) {
		c := New(p, slog.New(slog.DiscardHandler), "sums", 5)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.Run(ctx, time.Second)
		}()
		time.Sleep(time.Millisecond)
		f(c)
		cancel()
		<-over
	})
}

// A stage has the grain that its data demand, and a state says since when, and why.
func TestFollows(t *testing.T) {
	p := &plant{apart: 2}
	run(t, p, func(c *Chooser) {
		require.Equal(t, State{Stage: "sums", Grain: "task", Why: "there is no sample yet", Switches: []Switch{}}, c.State())
		p.wait(5)
		require.Empty(t, p.asked)
		require.Equal(t, "the task's items are 4 ms out of order, those of a key 4 ms", c.State().Why)
		p.apart = 4000
		begin := time.Now()
		p.wait(3)
		require.Equal(t, []runtime.Switch{{Stage: "sums", Grain: p.key(8), Why: c.State().Why}}, p.asked)
		st := c.State()
		require.Equal(t, "key", st.Grain)
		require.EqualValues(t, 8, st.Delay)
		require.Equal(t, 1, st.Count)
		require.Less(t, st.Switches[0].At.Sub(begin), 2*time.Second)
		require.Equal(t, Switch{st.Switches[0].At, "key", 8, "the task's items are 4096 ms out of order, those of a key 4 ms"}, st.Switches[0])
		p.apart = 2
		p.wait(27)
		require.Len(t, p.asked, 1)
		require.Contains(t, c.State().Why, "to see the effect of the newest")
		p.wait(60)
		require.Equal(t, p.task(), p.grain)
		require.Equal(t, 2, c.State().Count)
	})
}

// Nothing is decided while key groups move; what is measured meanwhile counts.
func TestWaits(t *testing.T) {
	p := &plant{apart: 4000, busy: true}
	run(t, p, func(c *Chooser) {
		p.wait(100)
		require.Empty(t, p.asked)
		require.Zero(t, p.measured.Keys, "it has not been read")
		p.busy = false
		p.wait(1)
		require.Len(t, p.asked, 1)
	})
}

// Two switches that another asks for are respected, and the grain of an earlier process is known.
func TestOthers(t *testing.T) {
	p := &plant{apart: 4000, grain: (*plant)(nil).key(8)}
	run(t, p, func(c *Chooser) {
		require.Equal(t, "key", c.State().Grain)
		p.wait(50)
		require.Empty(t, p.asked)
		p.grain = p.task()
		p.wait(29)
		require.Empty(t, p.asked)
		require.Equal(t, "task", c.State().Grain)
		p.wait(3)
		require.Len(t, p.asked, 1)
	})
}

// A switch that fails is made again, not at once; the end of the job is no failure.
func TestFails(t *testing.T) {
	p := &plant{apart: 4000, err: errors.New("the log is full")}
	run(t, p, func(c *Chooser) {
		p.wait(20)
		require.Len(t, p.asked, 1)
		require.Equal(t, "the log is full", c.State().Error)
		require.Equal(t, "task", c.State().Grain)
		require.Zero(t, c.State().Count)
		p.err = fmt.Errorf("no: %w", runtime.ErrEnded)
		p.wait(20)
		require.Len(t, p.asked, 2)
		require.Equal(t, "the log is full", c.State().Error)
	})
}

// The newest 100 switches are kept.
func TestKept(t *testing.T) {
	p := &plant{}
	c := New(p, slog.New(slog.DiscardHandler), "sums", 0)
	for i := range int64(250) {
		c.switched(chooser.Choice{PerKey: true, Delay: i}, "")
	}
	st := c.State()
	require.Equal(t, 250, st.Count)
	require.Len(t, st.Switches, kept)
	require.EqualValues(t, 249, st.Switches[kept-1].Delay)
}

// A reading has what each task of the stage has measured since the one before, and all of an instance that is new.
func TestMeter(t *testing.T) {
	var m meter
	p := &plant{apart: 10, instance: 1}
	items := func() (n []uint64) {
		for _, x := range m.sample("sums", p.Status()) {
			n = append(n, x.Task.Items(), x.Key.Items())
		}
		return n
	}
	require.Equal(t, []uint64{4000, 4000}, items())
	require.Equal(t, []uint64{4000, 4000}, items())
	p.measured, p.instance = chooser.Measured{}, 2
	p.Status()
	require.Equal(t, []uint64{8000, 8000}, items())
	require.Empty(t, m.sample("nothing", p.Status()))
	require.Less(t, uint64(budget/clock), uint64(math.MaxInt32))
}
