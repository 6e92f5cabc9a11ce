package shard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
)

// twin computes by plain loops what a turn must answer and publish.
type twin struct {
	meta    string
	sublog  []*attempt // written, in the order of positions
	decided int        // groups with an outcome
	next    sharedlog.LSN
	writers map[string]*history

	answers   map[int]string // by caller
	published []string
	indexed   []string
}

// history is what the twin knows of a writer.
type history struct {
	attempts []*attempt // by number - 1; those that have been admitted
	void     bool
}

type attempt struct {
	writer  string
	number  uint64
	records int
	want    string // value of the key that it is conditional on; "": not conditional
	callers []int
	answer  string // "" while there is none
}

func describe(first sharedlog.LSN, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(first)
}

// send returns the attempt that is to be written, nil if there is none.
func (w *twin) send(caller int, a *attempt) *attempt {
	h := w.writers[a.writer]
	if h == nil {
		h = &history{}
		w.writers[a.writer] = h
	}
	n := uint64(len(h.attempts))
	switch {
	case a.number <= n:
		first := h.attempts[a.number-1]
		if first.answer != "" {
			w.answers[caller] = first.answer
		} else if h.void {
			w.answers[caller] = describe(0, sharedlog.Void(a.writer, a.number))
		} else {
			first.callers = append(first.callers, caller)
		}
	case n == 0 && a.number != 1:
		w.answers[caller] = describe(0, sharedlog.OutOfOrder(a.writer, a.number, 1))
	case h.void:
		w.answers[caller] = describe(0, sharedlog.Void(a.writer, a.number))
	case a.number != n+1:
		w.answers[caller] = describe(0, sharedlog.OutOfOrder(a.writer, a.number, n+1))
	default:
		a.callers = []int{caller}
		h.attempts = append(h.attempts, a)
		return a
	}
	return nil
}

func (w *twin) refuse(a *attempt, err error) {
	for _, c := range a.callers {
		w.answers[c] = describe(0, err)
	}
	h := w.writers[a.writer]
	h.attempts = h.attempts[:len(h.attempts)-1]
}

// decide determines the outcomes of the next groups, as a cut that ends after them.
func (w *twin) decide(groups int) (records int) {
	for _, a := range w.sublog[w.decided : w.decided+groups] {
		h := w.writers[a.writer]
		if a.want != "" && a.want != w.meta {
			h.void = true
		}
		position := 0
		for _, b := range w.sublog[:w.decided] {
			position += b.records
		}
		a.answer = describe(w.next, nil)
		if h.void {
			a.answer = describe(0, sharedlog.Void(a.writer, a.number))
		} else {
			w.published = append(w.published, fmt.Sprint(w.next, " ", a.records))
		}
		w.indexed = append(w.indexed, fmt.Sprint(position, " ", w.next, " ", !h.void))
		for _, c := range a.callers {
			w.answers[c] = a.answer
		}
		w.next += sharedlog.LSN(a.records)
		records += a.records
		w.decided++
	}
	return records
}

func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := storage.NewReplica(map[string][]byte{"k": []byte("v0")}, true, 0)
		turn := New[int](core, 7, nil)
		w := &twin{meta: "v0", next: 1, writers: map[string]*history{}, answers: map[int]string{}}
		answers := map[int]string{}
		var published, indexed []string
		collect := func() {
			for _, a := range turn.Answers {
				require.NotContains(t, answers, a.Caller, "it has been answered already")
				answers[a.Caller] = describe(a.First, a.Err)
			}
			for _, g := range turn.Groups {
				published = append(published, fmt.Sprint(g.First, " ", len(g.Records)))
			}
			for _, a := range turn.Added {
				indexed = append(indexed, fmt.Sprint(a.Group.Position, " ", a.Group.First, " ", a.Group.Effect))
			}
			turn.Clear()
		}
		callers, changes, length := 0, 0, uint64(0)
		group := func(a *attempt) *sharedlog.Group {
			g := &sharedlog.Group{Writer: a.writer, Number: a.number, Records: make([]sharedlog.Record, a.records)}
			if a.want != "" {
				g.If = sharedlog.Condition{Key: "k", Value: []byte(a.want)}
			}
			return g
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			var admitted []*attempt
			for range rapid.IntRange(0, 5).Draw(t, "groups") {
				a := &attempt{writer: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "writer"), records: rapid.IntRange(1, 3).Draw(t, "records")}
				last := 0
				if h := w.writers[a.writer]; h != nil {
					last = len(h.attempts)
				}
				a.number = uint64(max(1, last+rapid.IntRange(-2, 2).Draw(t, "number")))
				if rapid.IntRange(0, 3).Draw(t, "conditional") == 0 {
					a.want = fmt.Sprint("v", max(0, changes-rapid.IntRange(0, 1).Draw(t, "old")))
				}
				callers++
				real := turn.Admit(group(a), a.number == 1, callers)
				mine := w.send(callers, a)
				require.Equal(t, mine != nil, real)
				if real {
					admitted = append(admitted, a)
				}
			}
			fits := rapid.IntRange(0, len(admitted)).Draw(t, "fits")
			if rapid.Bool().Draw(t, "room") {
				fits = len(admitted)
			}
			for _, a := range admitted[:fits] {
				g := group(a)
				turn.Hold(g, Written[int]{Records: g.Records, Caller: a.callers[0]})
				w.sublog = append(w.sublog, a)
			}
			full := sharedlog.Errorf(sharedlog.KindFull, "disk")
			for i := len(admitted) - 1; i >= fits; i-- {
				turn.Refuse(group(admitted[i]), admitted[i].callers[0], full)
				w.refuse(admitted[i], full)
			}
			if rapid.Bool().Draw(t, "change") {
				changes++
				w.meta = fmt.Sprint("v", changes)
				core.Change("k", []byte(w.meta))
			}
			if n := rapid.IntRange(0, len(w.sublog)-w.decided).Draw(t, "ordered"); n > 0 {
				first := w.next
				length += uint64(w.decide(n))
				core.Cut(length, first)
			}
			_, err := turn.Apply()
			require.NoError(t, err)
			collect()
			require.Equal(t, w.answers, answers)
			require.Equal(t, w.published, published)
			require.Equal(t, w.indexed, indexed)
			require.Equal(t, len(w.sublog)-w.decided, turn.Waiting())
		}
		turn.End(sharedlog.Errorf(sharedlog.KindUnknown, "closed"))
		collect()
		require.Len(t, answers, callers, "each caller gets one answer")
	})
}
