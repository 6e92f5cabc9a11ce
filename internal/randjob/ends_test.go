package randjob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tailrace.dev/tailrace/internal/randjob/answer"
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// source reads a model's source: at the pace of each partition, with the stop at the job's
// hold.
type source struct {
	run  *run
	data *model.SourceData
}

func (r *run) source(data *model.SourceData) operators.Source[model.Row] { return &source{r, data} }

func (s *source) Partitions() int { return len(s.data.Parts) }

func (s *source) Open(p int) (operators.Partition[model.Row], error) {
	return &partition{s: s, index: p, data: &s.data.Parts[p], high: operators.MinTime}, nil
}

type partition struct {
	s     *source
	index int
	data  *model.Part
	at    int
	high  int64 // the watermark
	next  int64 // by the wall clock: nothing before
}

// idle reports whether the partition is idle at the job's hold. The first one of a source
// never is, or time would stand.
func (p *partition) idle() bool {
	return p.data.Idle && p.index > 0 && p.held() && !p.s.run.released.Load()
}

// held says that the partition stands at the job's hold.
func (p *partition) held() bool {
	hold := p.s.run.job.Hold
	return hold != 0 && (p.at == 0 || p.data.Events[p.at-1].T < hold) && (p.at == len(p.data.Events) || p.data.Events[p.at].T >= hold)
}

func (p *partition) Read(b *operators.Batch[model.Row], most int, now int64) (operators.Status, error) {
	if p.held() && !p.s.run.released.Load() {
		if p.idle() {
			return operators.Status{State: operators.Idle}, nil
		}
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	if (!p.data.Idle || p.index == 0) && time.Now().UnixMilli() < p.s.run.resume.Load() {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	if now < p.next {
		return operators.Status{State: operators.Waiting, Due: p.next}, nil
	}
	n := p.data.Batch
	if n == 0 {
		n = 1 + p.at%5
	}
	for i := range min(most, n) {
		if i > 0 && p.held() && !p.s.run.released.Load() {
			break
		}
		if p.at == len(p.data.Events) {
			return operators.Status{State: operators.Ended}, nil
		}
		e := &p.data.Events[p.at]
		b.Append(e.Row(), e.T)
		p.pass()
	}
	p.next = now + int64(p.data.Every)
	return operators.Status{State: operators.More}, nil
}

// pass moves behind an event.
func (p *partition) pass() {
	p.high = max(p.high, p.data.Events[p.at].T-p.s.data.Delay)
	p.at++
}

func (p *partition) Watermark() int64 {
	hold := p.s.run.job.Hold
	if p.idle() { // it does not know how late the others are
		return p.high
	}
	if p.held() || hold != 0 && p.at > 0 && p.data.Events[p.at-1].T >= hold {
		return max(p.high, hold)
	}
	return p.high
}

func (p *partition) Position(dst []byte) []byte { return binary.AppendUvarint(dst, uint64(p.at)) }

func (p *partition) Seek(position []byte) error {
	n, k := binary.Uvarint(position)
	if k <= 0 || n > uint64(len(p.data.Events)) {
		return fmt.Errorf("position %x does not fit %d events", position, len(p.data.Events))
	}
	for p.at < int(n) {
		p.pass()
	}
	return nil
}

func (p *partition) Close() error { return nil }

// sink writes lines: each of its tasks into a file.
type sink[T any] struct {
	p    *process
	path string
	line func(dst []byte, v *T) []byte
}

func sinkOf[T any](r *run, node int, n *model.Node, line func(v *T) string) operators.Sink[T] {
	return &sink[T]{
		p: r.process, path: r.sinkFile(node),
		line: func(dst []byte, v *T) []byte { return append(append(dst, line(v)...), '\n') },
	}
}

func streamLine(r *model.Row) string { return answer.Line(model.Stream, model.Key{}, r) }

func (s *sink[T]) Open(task, _ int) (operators.SinkWriter[T], error) {
	w, err := operators.FileSink(fmt.Sprintf("%s-%d", s.path, task), s.line, false).Open(0, 1)
	if err != nil {
		return nil, err
	}
	return &sinkWriter[T]{s.p, w}, nil
}

// sinkWriter writes nothing when its process is dead.
type sinkWriter[T any] struct {
	p *process
	operators.SinkWriter[T]
}

func (w *sinkWriter[T]) Write(b *operators.Batch[T]) error {
	return w.p.touch(func() error { return w.SinkWriter.Write(b) })
}

func (w *sinkWriter[T]) Position(dst []byte) (out []byte, err error) {
	err = w.p.touch(func() error {
		out, err = w.SinkWriter.Position(dst)
		return err
	})
	return out, err
}

func (w *sinkWriter[T]) Restore(position []byte) error {
	return w.p.touch(func() error { return w.SinkWriter.Restore(position) })
}

// Fence implements operators.Fenced.
func (w *sinkWriter[T]) Fence(f operators.Fence) error {
	return w.p.touch(func() error { return w.SinkWriter.(operators.Fenced).Fence(f) })
}

// sinkFile is where the sink of a node writes, before its task's number.
func (r *run) sinkFile(node int) string { return r.sinkFileOf(r.generation, node) }

func (r *run) sinkFileOf(generation, node int) string {
	return filepath.Join(r.dir, fmt.Sprintf("sink-%d-%d", generation, node))
}

// lines reads what a sink has written, whole lines only.
func (r *run) lines(node int) ([]string, error) {
	var all []string
	for task := 0; ; task++ {
		b, err := os.ReadFile(fmt.Sprintf("%s-%d", r.sinkFile(node), task))
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		b = b[:bytes.LastIndexByte(b, '\n')+1]
		if len(b) > 0 {
			all = append(all, strings.Split(string(b[:len(b)-1]), "\n")...)
		}
	}
}

// adopt copies what the sinks had written when a savepoint was made, for the job that
// resumes from there.
func (r *run) adopt(m *savepoint.Manifest) error {
	r.generation++
	for i := range r.job.Nodes {
		n := &r.job.Nodes[i]
		if n.Op != model.Sink {
			continue
		}
		st, err := m.Stage(fmt.Sprintf("n%d", i))
		if err != nil {
			return err
		}
		for task, ps := range st.Positions {
			if len(ps) != 1 {
				return fmt.Errorf("savepoint: sink n%d has %d positions", i, len(ps))
			}
			off, _ := binary.Uvarint(ps[0].Value)
			b, err := os.ReadFile(fmt.Sprintf("%s-%d", r.sinkFileOf(r.generation-1, i), task))
			if err != nil {
				return err
			}
			if off > uint64(len(b)) {
				return fmt.Errorf("savepoint: sink n%d stands at %d of %d bytes", i, off, len(b))
			}
			if err := os.WriteFile(fmt.Sprintf("%s-%d", r.sinkFile(i), task), b[:off], 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
