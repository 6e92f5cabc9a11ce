package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
)

// Deltas keeps the state of one task of a job whose tasks commit together, in numbered checkpoints
// (docs/protocol-aligned.md). In a Store it is
//
//	the task's key groups   the base: the state as of the group's position
//	its home                deltas: the changes of each later checkpoint
//
// A delta is written before its checkpoint is complete, and has no meaning until then: Restore
// takes the deltas up to the complete checkpoint and removes the others. Only complete ones are
// folded into the base. Base and deltas have one writer, identified by its token.
//
// Only one goroutine may use it.
type Deltas struct {
	store Store
	home  Group // of the deltas; the key groups are those of its Job and stage
	stage string
	token sharedlog.LSN

	// at is the home's position: the newest checkpoint whose delta was written. base are the
	// positions of the key groups. Both are unknown after a write that failed (unsure).
	at     sharedlog.LSN
	base   []sharedlog.LSN
	unsure bool

	pending []delta // written, not known to be complete; by number
	folds   map[int]*fold
	bytes   int
	folded  sharedlog.LSN // the newest in folds
	count   int           // how many are in folds
	gone    []Entry       // their keys, to be removed behind the fold
	reached func(observe.Step)
}

type delta struct {
	number sharedlog.LSN
	keys   []Entry
	items  []Items
}

// Items are changes of one key group, encoded as in a section of a Changes record.
type Items struct {
	Group int
	Data  []byte
}

// foldEvery is how many deltas are folded at once; foldBytes is a total size at which fewer are
// folded.
const (
	foldEvery = 8
	foldBytes = 32 << 20
)

// OpenDeltas returns the deltas of a task, and makes token their only writer. base are the
// positions of its key groups, by group, as Begin returned them for the same token; OpenDeltas does
// not keep the slice.
func OpenDeltas(ctx context.Context, store Store, job, stage string, task int, token sharedlog.LSN, base []sharedlog.LSN) (*Deltas, error) {
	d := &Deltas{
		store: store, stage: stage, token: token, base: slices.Clone(base), folds: map[int]*fold{}, reached: func(observe.Step) {},
		// The name of a stage never contains a slash.
		home: Group{Job: job, Stage: stage + "/deltas", Group: task},
	}
	var err error
	d.at, err = store.Begin(ctx, d.home, token)
	return d, err
}

// Observe makes the deltas call reached at each step of restoring and folding them.
func (d *Deltas) Observe(reached func(observe.Step)) { d.reached = reached }

// A delta's entries are: checkpoint (u64), key group (u32), part (u32), all big endian →
// items.
func deltaKey(number sharedlog.LSN, group, part int) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(number))
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(group)), uint32(part))
}

// Restore calls apply with the items of the deltas that are not in the base, in their order, up to
// a complete checkpoint. It removes all later ones: their checkpoints were not complete, and never
// will be. apply may keep what it receives.
func (d *Deltas) Restore(ctx context.Context, complete uint64, apply func(Items) error) error {
	last := sharedlog.LSN(complete)
	for g, at := range d.base {
		if at > last {
			return fmt.Errorf("%w: it holds key group %d of stage %q as of checkpoint %d, the newest complete one of this log is %d: it is the store of another log, or the log's directory was replaced by an older copy", ErrOther, g, d.stage, at, last)
		}
	}
	if d.at < last {
		return fmt.Errorf("%w: it holds the state of stage %q, task %d up to checkpoint %d, but checkpoint %d is complete: it is not the store that the job ran with, or has lost what it had acknowledged", ErrOther, d.stage, d.home.Group, d.at, last)
	}
	d.pending = nil
	all := map[sharedlog.LSN]*delta{}
	var void []Entry
	if _, err := d.store.Load(ctx, d.home, func(es []Entry) error {
		for _, e := range es {
			if len(e.Key) != 16 {
				return fmt.Errorf("checkpoint store: a delta of %v has a key of %d bytes", d.home, len(e.Key))
			}
			number, key := sharedlog.LSN(binary.BigEndian.Uint64(e.Key)), slices.Clone(e.Key)
			if number > last {
				void = append(void, Entry{Key: key})
				continue
			}
			if all[number] == nil {
				all[number] = &delta{number: number}
			}
			x := all[number]
			x.keys = append(x.keys, Entry{Key: key})
			x.items = append(x.items, Items{Group: int(binary.BigEndian.Uint32(e.Key[8:])), Data: slices.Clone(e.Value)})
		}
		return nil
	}); err != nil {
		return err
	}
	for _, x := range all {
		d.pending = append(d.pending, *x)
	}
	slices.SortFunc(d.pending, func(a, b delta) int { return int(a.number) - int(b.number) })
	for _, x := range d.pending {
		for _, it := range x.items {
			if it.Group >= len(d.base) || x.number <= d.base[it.Group] {
				continue
			}
			if err := apply(it); err != nil {
				return fmt.Errorf("delta %d, key group %d: %w", x.number, it.Group, err)
			}
		}
	}
	d.reached(observe.CheckpointRestored)
	if len(void) > 0 || d.at > last {
		if err := d.write(ctx, Write{From: d.at, To: last, Entries: void}); err != nil {
			return err
		}
	}
	return d.Complete(complete)
}

// write writes to the home.
func (d *Deltas) write(ctx context.Context, w Write) error {
	w.Group, w.Token = d.home, d.token
	err := d.store.Write(ctx, []Write{w})
	if d.unsure = err != nil; !d.unsure {
		d.at = w.To
	}
	return err
}

// ask reads the positions again after a write with an unknown outcome.
func (d *Deltas) ask(ctx context.Context) (err error) {
	if !d.unsure {
		return nil
	}
	if d.at, err = d.store.Begin(ctx, d.home, d.token); err != nil {
		return err
	}
	for g := range d.folds {
		if d.base[g], err = d.store.Begin(ctx, d.group(g), d.token); err != nil {
			return err
		}
	}
	d.unsure = false
	return nil
}

func (d *Deltas) group(g int) Group { return Group{Job: d.home.Job, Stage: d.stage, Group: g} }

// Put makes the delta of a checkpoint durable, even an empty one, because it proves that none is
// missing. After an error the caller can try again. Put keeps the items.
func (d *Deltas) Put(ctx context.Context, checkpoint uint64, items []Items) error {
	if err := d.ask(ctx); err != nil {
		return err
	}
	x := delta{number: sharedlog.LSN(checkpoint), items: items}
	var es []Entry
	for _, it := range items {
		rest := it.Data
		for part := 0; len(rest) > 0; part++ {
			n, err := head(rest, batchBytes)
			if err != nil {
				return err
			}
			key := deltaKey(x.number, it.Group, part)
			es = append(es, Entry{Key: key, Value: rest[:n:n]})
			x.keys = append(x.keys, Entry{Key: key})
			rest = rest[n:]
		}
	}
	if err := d.write(ctx, Write{From: d.at, To: x.number, Entries: es}); err != nil {
		return err
	}
	d.pending = append(d.pending, x)
	return nil
}

// head returns the length of the first whole items of b that make up about size bytes.
func head(b []byte, size int) (int, error) {
	rest := b
	for len(rest) > 0 && len(b)-len(rest) < size {
		var err error
		if _, rest, err = envelope.NextItem(rest); err != nil {
			return 0, err
		}
	}
	return len(b) - len(rest), nil
}

// Complete records that a checkpoint is complete and durable.
func (d *Deltas) Complete(checkpoint uint64) error {
	for len(d.pending) > 0 && d.pending[0].number <= sharedlog.LSN(checkpoint) {
		x := d.pending[0]
		for _, it := range x.items {
			if it.Group >= len(d.base) || x.number <= d.base[it.Group] {
				continue
			}
			f := d.folds[it.Group]
			if f == nil {
				f = &fold{}
				d.folds[it.Group] = f
			}
			var key []byte
			for b := it.Data; len(b) > 0; {
				item, rest, err := envelope.NextItem(b)
				if err != nil {
					return err
				}
				key = item.AppendKey(key[:0])
				f.change(key, item.Value, item.Op, false)
				b = rest
			}
			d.bytes += len(it.Data)
		}
		d.gone = append(d.gone, x.keys...)
		d.folded = x.number
		d.count++
		d.pending[0] = delta{}
		d.pending = d.pending[1:]
	}
	return nil
}

// Due reports whether there is enough to fold.
func (d *Deltas) Due() bool { return d.count >= foldEvery || d.bytes >= foldBytes }

// Fold merges complete deltas into the base, and removes them. After an error the caller can try
// again.
func (d *Deltas) Fold(ctx context.Context) error {
	if err := d.ask(ctx); err != nil {
		return err
	}
	var ws []Write
	for g, f := range d.folds {
		if d.base[g] < d.folded {
			ws = append(ws, Write{Group: d.group(g), Token: d.token, From: d.base[g], To: d.folded, Entries: f.entries(nil)})
		}
	}
	slices.SortFunc(ws, func(a, b Write) int { return a.Group.Group - b.Group.Group })
	// Remove the deltas last: they are needed as long as some group has the old position.
	ws = append(ws, Write{Group: d.home, Token: d.token, From: d.at, To: d.at, Entries: d.gone})
	d.reached(observe.CheckpointFolding)
	if err := d.store.Write(ctx, ws); err != nil {
		d.unsure = true
		return err
	}
	d.reached(observe.CheckpointFolded)
	for g := range d.folds {
		d.base[g] = d.folded
	}
	clear(d.folds)
	d.bytes, d.count, d.gone = 0, 0, nil
	return nil
}
