package operators_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// mapRows is a function that does something to maps by an item's N, and emits all that
// they hold.
func mapRows(in operators.KeyedStream[string, hit], opts ...operators.StateOption) operators.KeyedStream[string, string] {
	return operators.Process(in, "maps", func(c *operators.Context[string, string]) operators.Handler[hit] {
		numbers := operators.NewMap(c, "numbers", serde.Int64, serde.String, opts...)
		names := operators.NewMap(c, "names", serde.String, serde.Int64)
		last := operators.NewValue(c, "last", serde.Int64, opts...)
		return operators.Handler[hit]{Item: func(h *hit) {
			k, v := (h.N*7+c.Time())%5, fmt.Sprint(h.N, c.Time())
			switch h.N {
			case -3:
				numbers.Clear()
				last.Delete()
			case -2:
				for _, k := range numbers.Keys() {
					if k > 0 {
						numbers.Delete(k)
					}
				}
			case -1:
				numbers.Delete(k)
				names.Delete(v)
			case 0:
				if s := numbers.Update(k); s != nil {
					*s += "!"
				}
			case 1:
				*numbers.Upsert(k) += v
			default:
				numbers.Put(k, &v)
				*names.Upsert(v) += h.N
				last.Put(&h.N)
			}
			var row strings.Builder
			fmt.Fprint(&row, c.Key(), c.Time(), ":")
			for _, k := range numbers.Keys() {
				fmt.Fprint(&row, " ", k, *numbers.Get(k))
			}
			for _, k := range names.Keys() {
				fmt.Fprint(&row, " ", k, *names.Get(k))
			}
			if n := last.Get(); n != nil {
				fmt.Fprint(&row, " last ", *n)
			}
			c.Emit(row.String(), c.Time())
		}}
	}, operators.InOrder()).With(serde.String)
}

// mapRowsOf does the same with Go's maps, for items in order; ttl 0: for ever.
func mapRowsOf(items []optest.Timed[hit], ttl int64) (rows []string) {
	type value struct {
		text    string
		written int64
	}
	type keyed struct {
		numbers map[int64]value
		names   map[string]int64
		last    *value
	}
	all := map[string]*keyed{}
	for _, x := range items {
		s := all[x.Value.Key]
		if s == nil {
			s = &keyed{numbers: map[int64]value{}, names: map[string]int64{}}
			all[x.Value.Key] = s
		}
		if ttl > 0 {
			maps.DeleteFunc(s.numbers, func(_ int64, v value) bool { return x.Time >= v.written+ttl })
			if s.last != nil && x.Time >= s.last.written+ttl {
				s.last = nil
			}
		}
		k, v := (x.Value.N*7+x.Time)%5, fmt.Sprint(x.Value.N, x.Time)
		switch x.Value.N {
		case -3:
			clear(s.numbers)
			s.last = nil
		case -2:
			maps.DeleteFunc(s.numbers, func(k int64, _ value) bool { return k > 0 })
		case -1:
			delete(s.numbers, k)
			delete(s.names, v)
		case 0:
			if old, ok := s.numbers[k]; ok {
				s.numbers[k] = value{old.text + "!", x.Time}
			}
		case 1:
			s.numbers[k] = value{s.numbers[k].text + v, x.Time}
		default:
			s.numbers[k] = value{v, x.Time}
			s.names[v] += x.Value.N
			s.last = &value{fmt.Sprint(x.Value.N), x.Time}
		}
		row := fmt.Sprint(x.Value.Key, x.Time, ":")
		for _, k := range slices.Sorted(maps.Keys(s.numbers)) {
			row += fmt.Sprint(" ", k, s.numbers[k].text)
		}
		for _, k := range slices.Sorted(maps.Keys(s.names)) {
			row += fmt.Sprint(" ", k, s.names[k])
		}
		if s.last != nil {
			row += fmt.Sprint(" last ", s.last.text)
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}

// TestMaps: maps, and values with a TTL, hold what Go's maps hold, with crashes; in homes they
// make the same outputs and changes as in memory.
func TestMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 60)
		ttl := rapid.SampledFrom([]int64{0, 1, 3, 10, 50}).Draw(t, "ttl")
		var opts []operators.StateOption
		if ttl > 0 {
			opts = append(opts, operators.TTL(time.Duration(ttl)*time.Millisecond))
		}
		o := drawOptions(t)
		run := func(where optest.Place) ([]string, optest.Report) {
			job := operators.NewJob("maps")
			in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
			o := o
			o.State = where
			return runRows(t, job, values(mapRows(in, opts...)), o)
		}
		rows, report := run(optest.InMemory)
		again, disk := run(optest.OnDisk)
		ordered := slices.Clone(items)
		slices.SortStableFunc(ordered, func(a, b optest.Timed[hit]) int { return int(a.Time - b.Time) })
		require.Equal(t, mapRowsOf(ordered, ttl), rows)
		require.Equal(t, rows, again)
		disk.InHomes, disk.Moved, report.Moved, disk.InParts, report.InParts = 0, 0, 0, 0, 0
		require.Equal(t, report, disk)
		if ttl > 0 {
			require.Zero(t, report.State["maps.numbers"]+report.State["maps.last"]+report.State["maps.numbers.ends"]+report.State["maps.last.ends"], "%v", report.State)
		}
	})
}

// A late item does not find what the watermark has ended, and a timer of the wall clock
// sees event time.
func TestTTLLate(t *testing.T) {
	build := func(in operators.KeyedStream[string, hit]) operators.Flow[string] {
		return values(operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
			v := operators.NewValue(c, "v", serde.Int64, operators.TTL(10*time.Second))
			return operators.Handler[hit]{Item: func(h *hit) {
				if old := v.Get(); old != nil {
					c.Emit(fmt.Sprint(c.Time(), " finds ", *old), c.Time())
				}
				if h.N > 0 {
					v.Put(&h.N)
				}
			}}
		}))
	}
	rows, _ := oneAfterTheOther(t, []optest.Timed[hit]{
		sec(10, 1), sec(19, 0), sec(15, 2), sec(24, 0), sec(23, 3), sec(3, 0),
		sec(31, 0, "other"), sec(4, 0), sec(34, 0), sec(5, 0),
	}, build)
	require.Equal(t, []string{"15000 finds 1", "19000 finds 1", "23000 finds 2", "24000 finds 2", "3000 finds 3", "4000 finds 3"}, rows)
}

func TestTTLErrors(t *testing.T) {
	job := operators.NewJob("ttl")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	p := operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
		operators.NewValue(c, "v", serde.Int64, operators.TTL(time.Microsecond))
		return operators.Handler[hit]{}
	})
	operators.ToSink(p, "out", nothing[operators.KV[string, string]]())
	_, err := job.Plan()
	require.ErrorContains(t, err, `"p", state "v": its TTL is not a positive whole number of milliseconds`)
}

// Maps and TTL allocate nothing when their keys are known and nothing grows.
func BenchmarkMapState(b *testing.B) {
	for name, opts := range map[string][]operators.StateOption{"for ever": nil, "ttl": {operators.TTL(50 * time.Millisecond)}} {
		b.Run(name, func(b *testing.B) {
			benchStage(b, func(in operators.KeyedStream[int64, bid]) {
				out := operators.Process(in, "maps", func(c *operators.Context[int64, int64]) operators.Handler[bid] {
					m := operators.NewMap(c, "m", serde.Int64, serde.Int64, opts...)
					return operators.Handler[bid]{Item: func(x *bid) {
						*m.Upsert(x.Bidder % 16)++
						m.Delete((x.Bidder + 8) % 16)
						n := int64(0)
						for _, k := range m.Keys() {
							n += *m.Get(k)
						}
						c.Emit(n, c.Time())
					}}
				})
				operators.ToSink(out, "out", nothing[operators.KV[int64, int64]]())
			})
		})
	}
}

func ExampleNewMap() {
	job := operators.NewJob("map")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	seen := operators.Process(byName, "seen", func(c *operators.Context[string, string]) operators.Handler[hit] {
		times := operators.NewMap(c, "times", serde.Int64, serde.Int64) // what was clicked on → when
		return operators.Handler[hit]{Item: func(h *hit) {
			t := c.Time()
			times.Put(h.N, &t)
			row := ""
			for _, n := range times.Keys() {
				row += fmt.Sprint(" ", n, " at ", *times.Get(n))
			}
			c.Emit(row, t)
		}}
	}, operators.InOrder())
	show(job, operators.Map(seen, showKV), same)
	// Output:
	// ann:  1 at 1
	// ann:  1 at 1 3 at 4
	// ann:  1 at 1 3 at 4 4 at 12
	// bob:  2 at 2
	// bob:  2 at 2 5 at 31
}

func ExampleTTL() {
	job := operators.NewJob("ttl")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	first := operators.Process(byName, "first", func(c *operators.Context[string, string]) operators.Handler[hit] {
		seen := operators.NewValue(c, "seen", serde.Bool, operators.TTL(5*time.Millisecond))
		return operators.Handler[hit]{Item: func(h *hit) {
			if seen.Get() == nil {
				c.Emit(fmt.Sprint("begins to click at ", c.Time()), c.Time())
			}
			*seen.Upsert() = true
		}}
	})
	show(job, operators.Map(first, showKV), same)
	// Output:
	// ann: begins to click at 1
	// ann: begins to click at 12
	// bob: begins to click at 2
	// bob: begins to click at 31
}
