package fold

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Last has the last items of the current key, in panes of so many.
type Last[K comparable, T, A any] struct {
	Size, Slide int64
	Add         func(acc *A, v *T, time int64)
	Merge       func(acc, other *A)
	Clone       func(*T) (*T, error)
	Plain       bool // accumulators hold no memory

	c     *process.Call[K, item.Counted[A]]
	pane  int64
	count *process.Value[K, item.Counted[A], int64] // of items that have come
	panes *process.Map[K, item.Counted[A], int64, countPane[A]]
}

// Start makes the state; acc may be nil while the plan is made.
func (x *Last[K, T, A]) Start(c *process.Call[K, item.Counted[A]], acc serde.Serde[A]) {
	x.c, x.pane = c, GCD(x.Size, x.Slide)
	x.count = process.NewValue(c, "count", serde.Int64)
	var sd serde.Serde[countPane[A]]
	if acc != nil {
		sd = countPaneSerde(acc)
	}
	x.panes = process.NewMap(c, fmt.Sprintf("panes-of-%d", x.pane), serde.Int64, sd, 0)
}

// Item adds an item, and emits the window that it completes.
func (x *Last[K, T, A]) Item(v *T) {
	c := x.c
	if x.Clone != nil {
		own, err := x.Clone(v)
		if err != nil {
			c.Fail(err)
			return
		}
		v = own
	}
	n := x.count.Upsert()
	if *n++; x.skipped(*n) {
		return
	}
	p := x.panes.Upsert((*n - 1) / x.pane)
	if (*n-1)%x.pane == 0 {
		p.time = c.Time
	}
	x.Add(&p.acc, v, c.Time)
	if p.time = max(p.time, c.Time); *n%x.Slide == 0 {
		x.emit(*n)
	}
}

// countPane is a run of items in the order in which they came; time is that of the newest.
type countPane[A any] struct {
	time int64
	acc  A
}

func countPaneSerde[A any](acc serde.Serde[A]) serde.Serde[countPane[A]] {
	return serde.New("count pane of "+serde.NameOf(acc),
		func(dst []byte, v *countPane[A]) []byte {
			return acc.Append(serde.AppendInt64(dst, v.time), &v.acc)
		},
		func(r *serde.Reader, v *countPane[A]) {
			v.time = r.Int64()
			serde.Take(r, acc, &v.acc)
		})
}

// skipped reports whether the n-th item is in no window: with slide > size there are gaps.
func (x *Last[K, T, A]) skipped(n int64) bool {
	end := (n + x.Slide - 1) / x.Slide * x.Slide
	return n <= end-x.Size
}

// emit emits the window that ends with the n-th item, and forgets the panes that the next
// one does not have.
func (x *Last[K, T, A]) emit(n int64) {
	c := x.c
	var all A
	t := exec.MinTime
	first := max(n-x.Size, 0)
	for i := first / x.pane; i < n/x.pane; i++ {
		if p := x.panes.Get(i); p != nil { // nil: the job had other windows before
			x.Merge(&all, &p.acc)
			t = max(t, p.time)
		}
	}
	if c.Emit(item.Counted[A]{First: first, Value: all}, t); !x.Plain && c.Failed == nil {
		c.Failed = c.Out.Flush() // the result may share memory with a pane
	}
	for i, next := first/x.pane, n+x.Slide-x.Size; (i+1)*x.pane <= min(next, n); i++ {
		x.panes.Delete(i)
	}
}

// GCD returns the greatest common divisor.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
