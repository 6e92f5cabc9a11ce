package handover

import (
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// givers reads the task logs of the tasks from which key groups come.
type givers struct {
	log    sharedlog.Log
	reader sharedlog.Reader // nil: there are none
	rest   []sharedlog.Entry
	from   map[int]giver
}

// giver is where a giver's task log is read.
type giver struct {
	tag  sharedlog.Tag
	next sharedlog.LSN
}

// add reads the task log of a giver from an LSN on.
func (f *givers) add(log sharedlog.Log, tag sharedlog.Tag, task int, from sharedlog.LSN) error {
	if f.from == nil {
		f.log, f.from = log, map[int]giver{}
	}
	f.from[task] = giver{tag, from}
	return f.open()
}

// drop ends that.
func (f *givers) drop(task int) error {
	delete(f.from, task)
	return f.open()
}

// open opens the reader anew.
func (f *givers) open() error {
	if err := f.close(); err != nil || len(f.from) == 0 {
		return err
	}
	o := sharedlog.ReaderOptions{From: ^sharedlog.LSN(0), BelowFloor: true}
	for _, task := range slices.Sorted(maps.Keys(f.from)) {
		g := f.from[task]
		o.Tags = append(o.Tags, g.tag)
		o.From = min(o.From, max(g.next, sharedlog.First))
	}
	var err error
	f.reader, err = f.log.NewReader(o)
	return err
}

func (f *givers) close() (err error) {
	if f.reader != nil {
		err = f.reader.Close()
	}
	f.reader, f.rest = nil, nil
	return err
}

// ready receives a token when there may be a next marker; nil if there are no givers.
func (f *givers) ready() <-chan struct{} {
	if f.reader == nil {
		return nil
	}
	return f.reader.Ready()
}

// next returns the next marker of a giver and its LSN; nil if there is none. The caller owns it.
func (f *givers) next() (task int, m *envelope.Marker, at sharedlog.LSN, err error) {
	for f.reader != nil {
		if len(f.rest) == 0 {
			b, err := f.reader.TryNext()
			if err != nil {
				return 0, nil, 0, fmt.Errorf("read the task log of a task that gives key groups away: %w", err)
			}
			if f.rest = b.Entries; len(f.rest) == 0 {
				return 0, nil, 0, nil
			}
		}
		e := f.rest[0]
		f.rest = f.rest[1:]
		m := new(envelope.Marker)
		if err := m.Parse(e.Data); err != nil {
			return 0, nil, 0, fmt.Errorf("marker at LSN %d: %w", e.LSN, err)
		}
		g, follows := f.from[int(m.Task)]
		if !follows || e.LSN < g.next {
			continue
		}
		g.next = e.LSN + 1
		f.from[int(m.Task)] = g
		return int(m.Task), m, e.LSN, nil
	}
	return 0, nil, 0, nil
}
