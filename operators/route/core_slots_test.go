package route

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route/sketch"
)

// sampledBy returns what came for keys, of which item i comes loads[i] times, and a sample of each of so many items.
func (p *population) sampledBy(t *Table, each int64) (items []int64, s sketch.Sample) {
	l := sketch.NewLoad(t.Groups, Parts)
	for i, k := range p.keys {
		hash := exec.HashKey(k)
		if t.Group(hash, k) < t.Groups {
			for range p.loads[i] / each {
				l.Add(hash, k)
			}
		}
	}
	return p.of(t), l.Sample()
}

// Whatever the loads are: slots are never worse than whole groups, no more places are made than there are slots, and under a
// load that does not change the steps end.
func TestSlotsUnderSteadyLoads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tasks := rapid.IntRange(2, 8).Draw(rt, "tasks")
		groups := rapid.IntRange(tasks, 32).Draw(rt, "groups")
		slots := rapid.IntRange(0, 16).Draw(rt, "slots")
		p := zipf(600, rapid.Float64Range(0, 1.3).Draw(rt, "zipf"), rapid.Uint64().Draw(rt, "seed"))
		total := int64(0)
		for _, l := range p.loads {
			total += l
		}
		for i := range p.loads {
			p.loads[i] = int64(float64(p.loads[i]) / float64(total) * 100_000)
		}
		degree := func(slots int) float64 {
			table, err := NewTable(0, groups, slots, nil)
			require.NoError(rt, err)
			owners := Spread(Hash(&Stage{Owners: make([]int, groups), Tasks: tasks}), slots)
			c, newest, steps := NewCore(When{Every: 1000}, LeastCount), 0, 0
			items, fine := p.sampledBy(table, 16)
			for at := range 400 {
				d := c.Next(&Sample{At: int64(at) * 2000, Items: items, Fine: fine, Owners: owners, Tasks: tasks, Slots: slots, Table: table})
				if d.Owners == nil {
					continue
				}
				newest, steps = at, steps+1
				require.True(rt, complete(d.Owners, tasks))
				if owners = d.Owners; d.Places != nil {
					require.LessOrEqual(rt, len(d.Places), slots)
					require.NotZero(rt, d.Placed+d.Back)
					table, err = NewTable(table.Epoch+1, groups, slots, d.Places)
					require.NoError(rt, err)
					items, fine = p.sampledBy(table, 16)
				}
			}
			// Few samples are not enough for a small gain, so that a step may come late. A history whose half-life is 10 s is the same to
			// the last of 53 bits after 530 s; until then a plan may be another one by the last bits of the loads.
			require.Less(rt, newest, 300, "the steps do not end")
			require.LessOrEqual(rt, steps, 10)
			return Degree(Tasks(p.of(table), owners, tasks), nil)
		}
		require.GreaterOrEqual(rt, degree(slots), degree(0)-0.02)
	})
}

// With other weights every few seconds, slots are given back and used again, and no more parts are placed than there are slots.
func TestSlotsUnderDrift(t *testing.T) {
	table, err := NewTable(0, 12, 6, nil)
	require.NoError(t, err)
	owners := Spread(Hash(&Stage{Owners: make([]int, 12), Tasks: 6}), 6)
	c := NewCore(When{Every: 1000}, LeastCount)
	placed, back, reached := 0, 0, 0
	for at := range 400 {
		p := zipf(5000, 1, uint64(at/40))
		sum := int64(0)
		for _, l := range p.loads {
			sum += l
		}
		for i := range p.loads {
			p.loads[i] = p.loads[i] * 1_000_000 / sum
		}
		s := Sample{At: int64(at) * 1000, Owners: owners, Tasks: 6, Slots: 6, Table: table}
		s.Items, s.Fine = p.sampledBy(table, 16)
		d := c.Next(&s)
		if d.Owners != nil {
			placed, back = placed+d.Placed, back+d.Back
			if owners = d.Owners; d.Places != nil {
				table, err = NewTable(table.Epoch+1, 12, 6, d.Places)
				require.NoError(t, err)
			}
		}
		if at%40 == 39 && Degree(Tasks(p.of(table), owners, 6), nil) > 0.95 {
			reached++
		}
	}
	require.Greater(t, placed, 12)
	require.Greater(t, back, 6)
	require.GreaterOrEqual(t, reached, 8, "of 10 loads")
}

// A step whose parts the next one takes back counts as one that was taken back.
func TestQuietAfterPartsReturn(t *testing.T) {
	table, err := NewTable(1, 2, 2, []Place{{Part{Group: 0, Sub: 3, N: 4}, 2}})
	require.NoError(t, err)
	c := NewCore(When{Every: 100}, LeastCount)
	s := &Sample{Owners: []int{0, 1, 0, 1}, Tasks: 2, Slots: 2, Table: table}
	c.stepped(s, s.Owners, nil)
	require.Equal(t, int64(100), c.quiet, "what a process before has placed")
	s.Table, err = table.Next(nil, []Place{{Part{Group: 1, Sub: 3, N: 4}, 3}})
	require.NoError(t, err)
	c.stepped(s, s.Owners, table.Places())
	require.Equal(t, int64(200), c.quiet)
}

// What was sampled divides what the groups have.
func TestFineOfSamples(t *testing.T) {
	heavy, light := []byte("heavy"), []byte("light")
	l := sketch.NewLoad(2, Parts)
	for i := range 64 {
		if l.Add(exec.HashKey(heavy), heavy); i%16 == 0 {
			l.Add(exec.HashKey(light), light)
		}
	}
	load := []int64{1000, 3000}
	s := l.Sample()
	f := fine(&s, load)
	of, home := make([]int64, 2), Single(heavy).Home(2)
	for i, n := range f.Parts {
		of[i/Parts] += n
	}
	for g := range load {
		require.InDelta(t, load[g], of[g], Parts)
	}
	require.Len(t, f.Keys, 1, "of few samples nothing is known")
	part := 64.0 / 64
	if Single(light).Home(2) == home {
		part = 64.0 / 68
	}
	require.InDelta(t, float64(load[home])*part, f.Keys[0].Load, 1)
	none := fine(&sketch.Sample{}, load)
	require.Nil(t, none.Parts)
}

// Slots have the owners that they have in a new job.
func TestHashWithSlots(t *testing.T) {
	owners := make([]int, 11)
	require.Equal(t, []int{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1}, Hash(&Stage{Owners: owners, Tasks: 2, Slots: 3}))
}

// A table of another epoch with the same places changes nothing: the tables of a job have one epoch together, and a stage whose table is
// replaced each second keeps no other one from a step.
func TestEpochAloneForgetsNothing(t *testing.T) {
	places := []Place{{Part{Group: 0, Sub: 3, N: 4}, 4}}
	c := NewCore(When{Below: 0.9}, LeastCount)
	for at := range 10 {
		table, err := NewTable(uint32(at), 4, 1, places)
		require.NoError(t, err)
		d := c.Next(&Sample{At: int64(at) * 1000, Items: []int64{500, 500, 500, 10, 0}, Owners: []int{0, 0, 0, 1, 0}, Tasks: 2, Slots: 1, Table: table})
		if d.Owners != nil {
			require.Equal(t, evidence-1, at)
			return
		}
	}
	t.Fatal("there is no step")
}
