package worker

import (
	"context"
	"fmt"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks/copies"
)

// copiesStream is the name of the streams by which workers ask each other for key groups. Its first message
// is the id of the job.
const copiesStream = "worker/copies"

// peers implements copies.Peers.
type peers struct {
	dialer  transport.Dialer
	address string
}

func (p *peers) Address() string { return p.address }

func (p *peers) Open(ctx context.Context, address, job string) (copies.Stream, error) {
	st, err := p.dialer.Open(ctx, address, copiesStream)
	if err != nil {
		return nil, err
	}
	return messages{st}, st.Hello(&transport.Raw{Parts: [][]byte{[]byte(job)}})
}

// messages implements copies.Stream.
type messages struct{ transport.Stream }

func (s messages) Send(b []byte) error {
	return s.Stream.Send(&transport.Raw{Parts: [][]byte{b}})
}

func (s messages) Recv() ([]byte, error) {
	var m transport.Raw
	err := s.Stream.Recv(&m)
	return m.Bytes, err
}

// serveCopies serves the key groups that tasks of this worker have released.
func (w *worker) serveCopies(st transport.Stream) error {
	job, err := messages{st}.Recv()
	if err != nil {
		return err
	}
	w.mu.Lock()
	c := w.executors[string(job)]
	w.mu.Unlock()
	if c != nil {
		if joined := c.tasks.Load(); joined != nil && joined.Config().Handover != nil {
			return joined.Config().Handover.Serve(messages{st})
		}
	}
	return fmt.Errorf("worker %s runs no task of job %q", w.me.Name, job)
}
