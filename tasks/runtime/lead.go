package runtime

import (
	"sync/atomic"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
)

// lead measures how far the producers of each stream are ahead of its consumers, in bytes of items,
// so that sources can wait. All tasks of the job must run in this process.
//
// A producer knows the LSNs of its output, and compares them with the positions of the consumers.
// It does not matter whether a consumer has processed the output, or dropped it because the
// instance that appended it has failed; nor whether a consumer that failed processes it again. The
// output of an instance counts only while the instance produces.
type lead struct {
	streams []streamLead
	low     [][]atomic.Uint64 // by stage, task: it needs nothing below this LSN any more
}

type streamLead struct {
	ahead  atomic.Int64 // of all producers
	stages []int        // its consumers
}

func newLead(l *layout.Layout) *lead {
	d := &lead{streams: make([]streamLead, len(l.Streams)), low: make([][]atomic.Uint64, len(l.Stages))}
	for i, st := range l.Plan.Stages {
		d.low[i] = make([]atomic.Uint64, l.Stages[i].Tasks)
		for _, in := range st.Inputs {
			d.streams[in].stages = append(d.streams[in].stages, i)
		}
	}
	return d
}

// consumed returns the LSN below which no consumer of a stream needs anything any more.
func (d *lead) consumed(stream int) sharedlog.LSN {
	low := ^uint64(0)
	for _, st := range d.streams[stream].stages {
		for i := range d.low[st] {
			low = min(low, d.low[st][i].Load())
		}
	}
	return sharedlog.LSN(low)
}

// outputLead is the part of one instance's output that its consumers have not consumed. The
// instance's task owns it.
type outputLead struct {
	lead   *lead // nil: nobody uses it
	stream int
	sent   []sent // in the order of the log
	// This many of sent have been consumed, and this many are in the log.
	consumed, landed int
}

type sent struct {
	bytes int64
	group uint64 // the number of its append
	at    sharedlog.LSN
}

// produced adds bytes that an append contains.
func (o *outputLead) produced(bytes int, group uint64) {
	if o.lead == nil || bytes == 0 {
		return
	}
	if o.consumed > len(o.sent)/2 {
		n := copy(o.sent, o.sent[o.consumed:])
		o.sent, o.landed, o.consumed = o.sent[:n], o.landed-o.consumed, 0
	}
	o.lead.streams[o.stream].ahead.Add(int64(bytes))
	o.sent = append(o.sent, sent{bytes: int64(bytes), group: group})
}

// isAt records that an append is in the log, up to and including an LSN.
func (o *outputLead) isAt(group uint64, at sharedlog.LSN) {
	for o.landed < len(o.sent) && o.sent[o.landed].group <= group {
		o.sent[o.landed].at = at
		o.landed++
	}
}

// ahead returns the lead of all producers, as far as it is known.
func (o *outputLead) ahead() int64 {
	if o.lead == nil {
		return 0
	}
	o.look()
	return o.lead.streams[o.stream].ahead.Load()
}

// look subtracts what has been consumed from the lead.
func (o *outputLead) look() {
	if o.consumed == o.landed {
		return
	}
	below, bytes := o.lead.consumed(o.stream), int64(0)
	for ; o.consumed < o.landed && o.sent[o.consumed].at < below; o.consumed++ {
		bytes += o.sent[o.consumed].bytes
	}
	o.lead.streams[o.stream].ahead.Add(-bytes)
}

// end subtracts all of it from the lead, when the instance has ended.
func (o *outputLead) end() {
	if o.lead == nil {
		return
	}
	for _, s := range o.sent[o.consumed:] {
		o.lead.streams[o.stream].ahead.Add(-s.bytes)
	}
	o.sent, o.consumed, o.landed = nil, 0, 0
}

// producesNoMore subtracts the instance's output from the lead.
func (t *task) producesNoMore() {
	for i := range t.ahead {
		t.ahead[i].end()
	}
}

// measure adds an instance to its job's lead.
func (t *task) measure(d *lead) {
	if d == nil {
		return
	}
	t.lead = d
	for i := range t.ahead {
		if o := &t.ahead[i]; len(d.streams[o.stream].stages) > 0 { // a stream of dead letters has no consumer
			o.lead = d
		}
	}
}
