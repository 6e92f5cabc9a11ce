// Package lead measures how far the producers of each stream are ahead of its consumers, in bytes of
// items, so that sources can wait. All tasks of the job must run in one process.
//
// A producer knows the LSNs of its output, and compares them with the positions of the consumers.
// It does not matter whether a consumer has processed the output, or dropped it because the
// instance that appended it has failed; nor whether a consumer that failed processes it again. The
// output of an instance counts only while the instance produces.
package lead

import (
	"sync/atomic"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
)

// Lead is that of a job.
type Lead struct {
	streams []stream
	low     [][]atomic.Uint64 // by stage, task: it needs nothing below this LSN any more
}

// stream is the lead of one stream.
type stream struct {
	ahead  atomic.Int64 // of all producers
	stages []int        // its consumers
}

// New returns the lead of a job whose tasks have not started.
func New(l *layout.Layout) *Lead {
	d := &Lead{streams: make([]stream, len(l.Streams)), low: make([][]atomic.Uint64, len(l.Stages))}
	for i, st := range l.Plan.Stages {
		d.low[i] = make([]atomic.Uint64, max(l.Stages[i].Groups, l.Stages[i].Tasks)) // as many tasks as it can have
		for task := l.Stages[i].Tasks; task < len(d.low[i]); task++ {
			d.Left(i, task)
		}
		for _, in := range st.Inputs {
			d.streams[in].stages = append(d.streams[in].stages, i)
		}
	}
	return d
}

// Consumed records that a task needs nothing below an LSN any more.
func (d *Lead) Consumed(stage, task int, low sharedlog.LSN) { d.low[stage][task].Store(uint64(low)) }

// Left records that a stage does not have a task, or no longer has it.
func (d *Lead) Left(stage, task int) { d.low[stage][task].Store(^uint64(0)) }

// Ahead returns by how many bytes the producers of a stream are ahead.
func (d *Lead) Ahead(stream int) int64 { return d.streams[stream].ahead.Load() }

// Of returns the lead of an output of an instance. If d is nil, the output has no bound.
func Of(d *Lead, stream int) Output {
	if d != nil && len(d.streams[stream].stages) == 0 { // a stream of dead letters has no consumer
		d = nil
	}
	return Output{lead: d, stream: stream}
}

// consumed returns the LSN below which no consumer of a stream needs anything any more.
func (d *Lead) consumed(stream int) sharedlog.LSN {
	low := ^uint64(0)
	for _, st := range d.streams[stream].stages {
		for i := range d.low[st] {
			low = min(low, d.low[st][i].Load())
		}
	}
	return sharedlog.LSN(low)
}

// Output is the part of one instance's output that its consumers have not consumed. The
// instance's task owns it.
type Output struct {
	lead   *Lead // nil: no bound
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

// Produced adds bytes that an append contains.
func (o *Output) Produced(bytes int, group uint64) {
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

// Landed records that an append is in the log, up to and including an LSN.
func (o *Output) Landed(group uint64, at sharedlog.LSN) {
	for o.landed < len(o.sent) && o.sent[o.landed].group <= group {
		o.sent[o.landed].at = at
		o.landed++
	}
}

// Ahead returns the lead of all producers, as far as it is known.
func (o *Output) Ahead() int64 {
	if o.lead == nil {
		return 0
	}
	o.Look()
	return o.lead.streams[o.stream].ahead.Load()
}

// Look subtracts what has been consumed from the lead.
func (o *Output) Look() {
	if o.consumed == o.landed {
		return
	}
	below, bytes := o.lead.consumed(o.stream), int64(0)
	for ; o.consumed < o.landed && o.sent[o.consumed].at < below; o.consumed++ {
		bytes += o.sent[o.consumed].bytes
	}
	o.lead.streams[o.stream].ahead.Add(-bytes)
}

// End subtracts all of it from the lead, when the instance has ended.
func (o *Output) End() {
	if o.lead == nil {
		return
	}
	for _, s := range o.sent[o.consumed:] {
		o.lead.streams[o.stream].ahead.Add(-s.bytes)
	}
	o.sent, o.consumed, o.landed = nil, 0, 0
}
