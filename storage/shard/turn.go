package shard

import (
	"errors"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Written is a group that has been written and has no outcome yet.
type Written[C comparable] struct {
	Position uint64
	Records  []sharedlog.Record // nil if the group was found on disk at a restart
	Sums     []byte             // checksums of the records (wire.SumOf)
	Bytes    int64              // of the records
	Location segment.Location
	Indexed  bool // found in a closed segment, with its outcome in the index
	Caller   C    // receives the answer; the zero value: none
}

// Answer is the answer to a group.
type Answer[C comparable] struct {
	Caller C
	First  sharedlog.LSN
	Err    error
	Bytes  int64 // of the group's records, if it was held; 0 for a repetition
}

// Turn is the state of a replica's turns. C identifies the caller that waits for an answer. It is not
// safe for concurrent use.
type Turn[C comparable] struct {
	core    *storage.Replica
	id      uint32
	written []Written[C]
	repeats map[repeat][]C
	load    func(*Written[C]) error

	// The results of Apply, and the answers of all methods. The caller uses them and calls Clear.
	Groups  []delivery.Group // to be published
	Added   []tagindex.Added // to be entered in the tag index
	Answers []Answer[C]
}

// repeat identifies a group that was sent again before the first attempt had an outcome.
type repeat struct {
	writer string
	number uint64
}

// New returns the turn of a replica of a shard. load reads the records of a group that was passed to
// Restore.
func New[C comparable](core *storage.Replica, id uint32, load func(*Written[C]) error) *Turn[C] {
	return &Turn[C]{core: core, id: id, load: load, repeats: map[repeat][]C{}}
}

// Clear forgets the results that the caller has used.
func (t *Turn[C]) Clear() {
	clear(t.Groups)
	clear(t.Added)
	clear(t.Answers)
	t.Groups, t.Added, t.Answers = t.Groups[:0], t.Added[:0], t.Answers[:0]
}

// Admit decides about a group that a client sends. It returns true if the caller is to write the
// group and to pass it to Hold or Refuse.
func (t *Turn[C]) Admit(g *sharedlog.Group, opens bool, from C) bool {
	v := t.core.Admit(g.Writer, g.Number, opens)
	switch v.Decision {
	case storage.Append:
		return true
	case storage.Pending:
		k := repeat{g.Writer, g.Number}
		t.repeats[k] = append(t.repeats[k], from)
	case storage.Taken:
		t.answer(from, v.First, nil, 0)
	case storage.Void:
		t.answer(from, 0, sharedlog.Void(g.Writer, g.Number), 0)
	case storage.Forgotten:
		t.answer(from, 0, sharedlog.TakenLongAgo(g.Writer, g.Number), 0)
	case storage.OutOfOrder:
		t.answer(from, 0, sharedlog.OutOfOrder(g.Writer, g.Number, v.Want), 0)
	default:
		t.answer(from, 0, t.errSealed(), 0)
	}
	return false
}

func (t *Turn[C]) errSealed() error { return sharedlog.Errorf(sharedlog.KindSealed, "shard %d", t.id) }

// Refuse answers an admitted group that was not written, and releases its number. The caller refuses
// the groups of a turn in reverse order.
func (t *Turn[C]) Refuse(g *sharedlog.Group, from C, err error) {
	t.core.Retract(g.Writer, g.Number)
	t.answer(from, 0, err, 0)
	t.answerRepeats(g.Writer, g.Number, 0, err)
}

// Hold enters a group that has been written at the replica's length.
func (t *Turn[C]) Hold(g *sharedlog.Group, w Written[C]) {
	w.Position = t.core.Length()
	t.core.Wrote(storage.Head{Position: w.Position, Records: uint64(len(g.Records)), Writer: g.Writer, Number: g.Number, If: g.If})
	t.written = append(t.written, w)
}

// Restore enters a group that a restart has found on disk. A group that the seal has dropped is
// ignored.
func (t *Turn[C]) Restore(h storage.Head, loc segment.Location, indexed bool) {
	if _, sealed := t.core.Order().Sealed(); sealed && h.Position >= t.core.Order().Ordered() {
		return
	}
	t.core.Wrote(h)
	t.written = append(t.written, Written[C]{Location: loc, Position: h.Position, Indexed: indexed})
}

// Waiting returns the number of groups that have no outcome yet.
func (t *Turn[C]) Waiting() int { return len(t.written) }

// Applied says what Apply has done.
type Applied struct {
	Groups  int
	Records uint64
	Bytes   int64
	End     sharedlog.LSN // the LSN after the last group; 0 if there was none
}

// Apply applies the outcomes that are known now. An error means that the replica cannot continue.
func (t *Turn[C]) Apply() (done Applied, _ error) {
	for {
		o, ok, err := t.core.Next()
		if err != nil {
			return done, err
		}
		if !ok {
			break
		}
		if done.Groups == len(t.written) || t.written[done.Groups].Position != o.Position {
			return done, errors.New("the order and the sublog disagree") // a bug; continuing would do more damage
		}
		w := &t.written[done.Groups]
		if !w.Indexed {
			if w.Records == nil {
				if err := t.load(w); err != nil {
					return done, err
				}
			}
			t.apply(&o, w)
		}
		done.Groups++
		done.Records += o.Records
		done.Bytes += w.Bytes
		done.End = o.First + sharedlog.LSN(o.Records)
	}
	rest := copy(t.written, t.written[done.Groups:])
	clear(t.written[rest:])
	t.written = t.written[:rest]
	return done, nil
}

// apply applies the outcome of one group.
func (t *Turn[C]) apply(o *storage.Outcome, w *Written[C]) {
	first, err := o.First, error(nil)
	if o.Effect {
		t.Groups = append(t.Groups, delivery.Group{First: first, Records: w.Records, Sums: w.Sums, Bytes: w.Bytes})
	} else {
		first, err = 0, sharedlog.Void(o.Writer, o.Number)
	}
	t.answer(w.Caller, first, err, w.Bytes)
	t.answerRepeats(o.Writer, o.Number, first, err)
	t.Added = append(t.Added, Added(o, w.Location, w.Records))
}

// Added returns the entry of the tag index for a group with its outcome.
func Added(o *storage.Outcome, loc segment.Location, records []sharedlog.Record) tagindex.Added {
	return tagindex.Added{Segment: loc.ID, Records: records, Group: tagindex.Group{
		Offset: loc.Offset, Size: loc.Size, Records: uint32(o.Records), Effect: o.Effect, Position: o.Position, First: o.First,
	}}
}

// Drop drops the groups from a position on, which never get an outcome because the shard was sealed,
// and answers them.
func (t *Turn[C]) Drop(from uint64) {
	n := len(t.written)
	for n > 0 && t.written[n-1].Position >= from {
		n--
		t.answer(t.written[n].Caller, 0, t.errSealed(), 0)
	}
	clear(t.written[n:])
	t.written = t.written[:n]
}

// Seal answers all groups that have no outcome: the shard is sealed, and every outcome is known.
func (t *Turn[C]) Seal() { t.End(t.errSealed()) }

// End answers all groups that have no outcome with an error.
func (t *Turn[C]) End(err error) {
	for i := range t.written {
		t.answer(t.written[i].Caller, 0, err, 0)
	}
	t.written = nil
	for k := range t.repeats {
		t.answerRepeats(k.writer, k.number, 0, err)
	}
}

func (t *Turn[C]) answer(to C, first sharedlog.LSN, err error, bytes int64) {
	var none C
	if to != none {
		t.Answers = append(t.Answers, Answer[C]{to, first, err, bytes})
	}
}

func (t *Turn[C]) answerRepeats(writer string, number uint64, first sharedlog.LSN, err error) {
	if len(t.repeats) == 0 {
		return
	}
	k := repeat{writer, number}
	for _, from := range t.repeats[k] {
		t.answer(from, first, err, 0)
	}
	delete(t.repeats, k)
}
