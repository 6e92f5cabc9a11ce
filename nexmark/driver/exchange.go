package driver

import (
	"slices"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/layout"
)

// Exchange is what the stages of a job have sent each other in the measured time: what their tasks
// have appended to the streams between them. The change logs of state, the rows, dead letters, and the
// events of a source "log" are not part of it.
type Exchange struct {
	Items uint64 `json:"items"`
	// Bytes is the size of the records' data: of keys, times and values, and of what a record has around
	// them.
	Bytes uint64 `json:"bytes"`
	// BytesPerEvent is Bytes divided by the events that were consumed.
	BytesPerEvent float64 `json:"bytes_per_event"`
	// Share is the part of all that was written to the log; nil: that is not known.
	Share *float64 `json:"share,omitempty"`
	// RemoteShare is the part of the items whose sender and receiver are in different processes; nil:
	// it is not known.
	RemoteShare *float64 `json:"remote_share,omitempty"`
	// Streams are the streams that anything was appended to, in the order of the plan.
	Streams []Stream `json:"streams,omitempty"`
}

// Stream is the part of an Exchange that is of one stream.
type Stream struct {
	Name  string `json:"stream"`
	Items uint64 `json:"items"`
	Bytes uint64 `json:"bytes"`
}

// exchanged returns the names of the streams between the stages of a plan, in its order.
func exchanged(plan *operators.Plan, logged bool) (names []string) {
	for i := range plan.Streams {
		if logged && plan.Streams[i].Name == "input" {
			continue
		}
		for s := range plan.Stages {
			if st := &plan.Stages[s]; !st.Sink && slices.Contains(st.Inputs, i) {
				names = append(names, plan.Streams[i].Name)
				break
			}
		}
	}
	return names
}

// exchange returns what was appended to some streams between two readings of the same job's tasks.
// A task that was restarted in between counts with what its new instance has appended.
func exchange(streams []string, from, to []tasks.Status) *Exchange {
	type task struct {
		stage string
		index int
	}
	before := map[task]*tasks.Status{}
	for i := range from {
		before[task{from[i].Stage, from[i].Task}] = &from[i]
	}
	x := &Exchange{}
	for _, name := range streams {
		st := Stream{Name: name}
		for i := range to {
			t := &to[i]
			was := before[task{t.Stage, t.Task}]
			if was != nil && was.Instance != t.Instance {
				was = nil
			}
			items, bytes := sent(t, name)
			if was != nil {
				i, b := sent(was, name)
				items, bytes = items-i, bytes-b
			}
			st.Items += items
			st.Bytes += bytes
		}
		if st.Items > 0 {
			x.Streams = append(x.Streams, st)
		}
		x.Items += st.Items
		x.Bytes += st.Bytes
	}
	return x
}

// sent returns what a task has appended to a stream.
func sent(t *tasks.Status, stream string) (items, bytes uint64) {
	for i := range t.Sent {
		if t.Sent[i].Stream == stream {
			return t.Sent[i].Items, t.Sent[i].Bytes
		}
	}
	return 0, 0
}

// per fills in what the exchange is in relation to: the events that were consumed, and all bytes that
// were written to the log meanwhile, -1: not known.
func (x *Exchange) per(events, written int64) *Exchange {
	if events > 0 {
		x.BytesPerEvent = float64(x.Bytes) / float64(events)
	}
	if written > 0 {
		share := float64(x.Bytes) / float64(written)
		x.Share = &share
	}
	return x
}

// Placed fills in RemoteShare from where the tasks of a job are: byWorker has those of each worker with what
// they have sent by key group, l the owners of the groups. All that the tasks have sent counts.
func (x *Exchange) Placed(l *layout.Layout, byWorker [][]tasks.Status) {
	type task struct {
		stage string
		index int
	}
	at := map[task]int{}
	for w, all := range byWorker {
		for i := range all {
			at[task{all[i].Stage, all[i].Task}] = w
		}
	}
	var all, remote uint64
	for i := range l.Plan.Streams {
		if !x.has(l.Plan.Streams[i].Name) {
			continue
		}
		for s := range l.Plan.Stages {
			st := &l.Plan.Stages[s]
			if !slices.Contains(st.Inputs, i) {
				continue
			}
			for w, senders := range byWorker {
				for k := range senders {
					for g, n := range byGroup(&senders[k], l.Plan.Streams[i].Name) {
						all += n
						if to, ok := at[task{st.Name, l.Stages[s].Owner[g]}]; !ok || to != w {
							remote += n
						}
					}
				}
			}
		}
	}
	if all > 0 {
		share := float64(remote) / float64(all)
		x.RemoteShare = &share
	}
}

func (x *Exchange) has(stream string) bool {
	return slices.ContainsFunc(x.Streams, func(s Stream) bool { return s.Name == stream })
}

func byGroup(t *tasks.Status, stream string) []uint64 {
	for i := range t.Sent {
		if t.Sent[i].Stream == stream {
			return t.Sent[i].ByGroup
		}
	}
	return nil
}
