package coordinator

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/tags"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// Service coordinates the transactions of all tasks that send it requests. Safe for concurrent use.
type Service struct {
	// Observer is told the steps of transactions; nil: it is not. It is set before the first call.
	Observer observe.Observer

	open   func(context.Context) (sharedlog.Log, error)
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	tasks  map[txn.Task]*running
}

// New returns a service on a log that open returns. The service calls open when it needs the log,
// once, or again after an error.
func New(open func(context.Context) (sharedlog.Log, error), logger *slog.Logger) *Service {
	s := &Service{open: open, logger: logger, tasks: map[txn.Task]*running{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// On returns a service on a log.
func On(log sharedlog.Log, logger *slog.Logger) *Service {
	return New(func(context.Context) (sharedlog.Log, error) { return log, nil }, logger)
}

// Close ends the service; callers that wait for it receive the outcome Lost.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// errClosed is the error of a call after Close.
var errClosed = errors.New("this coordinator has ended")

// running is one task's transactions, as long as this service coordinates them.
type running struct {
	id    txn.Task
	ready chan struct{} // closed when it has taken over, or failed to
	lost  chan struct{} // closed when it cannot continue
	log   sharedlog.Log
	mine  []byte    // the value of the task's coordinator key, as long as this service owns it
	used  time.Time // guarded by Service.mu

	mu      sync.Mutex
	machine *txn.Machine
	writer  *sharedlog.Writer
	last    uint64
	waiting map[uint64]chan *txnpb.Reply
	why     error
}

// Call executes a request and waits for its answer, or until ctx ends. After an error the request
// may be repeated (txn.Again): the log knows its outcome.
func (s *Service) Call(ctx context.Context, r *txnpb.Request) (*txnpb.Reply, error) {
	for _, name := range []string{r.Job, r.Stage} {
		if err := tags.CheckName(name); err != nil {
			return &txnpb.Reply{Outcome: txn.Refused, Text: err.Error()}, nil
		}
	}
	t, err := s.task(ctx, txn.Task{Job: r.Job, Stage: r.Stage, Index: r.StageIndex, Task: r.Task})
	if err != nil {
		return nil, err
	}
	reply := make(chan *txnpb.Reply, 1)
	t.mu.Lock()
	if t.why == nil {
		t.last++
		t.waiting[t.last] = reply
		s.effects(t, t.machine.Request(t.last, r))
	}
	t.mu.Unlock()
	select {
	case m := <-reply:
		if m.Outcome == txn.Refused {
			if err := s.current(ctx, t); err != nil {
				return nil, err
			}
		}
		return m, nil
	case <-t.lost:
		return nil, t.why
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// task returns a task's transactions. It takes them over if another service may own them.
func (s *Service) task(ctx context.Context, id txn.Task) (*running, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	t, now := s.tasks[id], time.Now()
	if t == nil {
		// Tasks without recent requests are over, or of a deleted job; any other one is taken over
		// again.
		maps.DeleteFunc(s.tasks, func(_ txn.Task, t *running) bool { return now.Sub(t.used) > idle })
		t = &running{id: id, ready: make(chan struct{}), lost: make(chan struct{}), waiting: map[uint64]chan *txnpb.Reply{}}
		s.tasks[id] = t
		s.wg.Go(func() {
			defer close(t.ready)
			t.mu.Lock()
			defer t.mu.Unlock()
			if err := s.takeOver(t); err != nil {
				s.lose(t, fmt.Errorf("take over the transactions of %s: %w", id.Tag(), err))
			}
		})
	}
	t.used = now
	s.mu.Unlock()
	select {
	case <-t.ready:
		return t, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// current returns an error if another coordinator has taken over since, because this one's state is
// then out of date. Answers that follow an append need no such check, and what is done stays done;
// only a refusal may be based on outdated state.
func (s *Service) current(ctx context.Context, t *running) error {
	c, err := t.log.Get(ctx, tags.CoordinatorKey(t.id.Job, t.id.Stage, int(t.id.Task)))
	if err != nil || bytes.Equal(c.Value, t.mine) {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.lose(t, fmt.Errorf("another coordinator has taken the transactions of %s over", t.id.Tag()))
	return t.why
}

// idle is how long a task's transactions are kept without a request.
const idle = 10 * time.Minute

// takeOver makes this service the task's coordinator: appends of another coordinator have no effect
// from the new place on, and the newest record of the stream below it has the state.
func (s *Service) takeOver(t *running) error {
	var err error
	if t.log, err = s.open(s.ctx); err != nil {
		return err
	}
	key := tags.CoordinatorKey(t.id.Job, t.id.Stage, int(t.id.Task))
	mine := make([]byte, 8)
	t.mine = mine
	rand.Read(mine) // never fails (crypto/rand)
	c, err := t.log.Get(s.ctx, key)
	for err == nil {
		c, err = t.log.CompareAndSet(s.ctx, key, c.Value, mine)
		if err == nil || string(c.Value) == string(mine) {
			err = nil
			break
		}
		if errors.Is(err, sharedlog.ErrConflict) || errors.Is(err, sharedlog.ErrUnknown) && c.Place > 0 {
			err = nil // another service was faster: try again behind it
		}
	}
	if err != nil {
		return err
	}
	s.reached(t, observe.TransactionTaken)
	e, found, err := t.log.Last(s.ctx, t.id.Tag(), c.Place)
	if err != nil {
		return err
	}
	var newest *txnpb.State
	if found {
		if newest, err = txn.Parse(e.Data); err != nil {
			return fmt.Errorf("LSN %d: %w", e.LSN, err)
		}
	}
	t.writer = sharedlog.NewWriter(t.log, fmt.Sprintf("%s#%x", key, mine), sharedlog.Condition{Key: key, Value: mine})
	var es []txn.Effect
	t.machine, es = txn.NewMachine(t.id, newest, c.Place)
	s.effects(t, es)
	return nil
}

func (s *Service) reached(t *running, step observe.Step) {
	observe.Reached(s.Observer, observe.Event{Step: step, Job: t.id.Job, Stage: t.id.Stage, Task: int(t.id.Task)})
}

// effects carries out the machine's effects. The caller holds t.mu.
func (s *Service) effects(t *running, es []txn.Effect) {
	for _, e := range es {
		if e.To != 0 {
			t.waiting[e.To] <- e.Reply
			delete(t.waiting, e.To)
			continue
		}
		var last *sharedlog.Pending
		for i, r := range e.Append {
			last = t.writer.Append(r)
			if e.Second && i < len(e.Append)-1 {
				s.reached(t, observe.TransactionSecond)
			}
		}
		if !s.beside(func() { s.appended(t, last, e.Second) }) {
			s.lose(t, errClosed)
			return
		}
	}
}

// beside runs f in a goroutine that Close waits for; it reports false after Close.
func (s *Service) beside(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Go(f)
	}
	return !s.closed
}

// appended waits until the last append in progress has taken effect: then all before it have too
// (promise 8 of the log).
func (s *Service) appended(t *running, last *sharedlog.Pending, second bool) {
	at, err := last.Wait(s.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil {
		return
	}
	if err != nil {
		s.lose(t, fmt.Errorf("append to %s: %w", t.id.Tag(), err))
		return
	}
	if second {
		s.reached(t, observe.TransactionDone)
	} else {
		s.reached(t, observe.TransactionState)
	}
	s.effects(t, t.machine.Appended(at+1))
}

// lose ends a task's transactions in this service. The caller holds t.mu.
func (s *Service) lose(t *running, why error) {
	if t.why != nil {
		return
	}
	if s.ctx.Err() == nil {
		s.logger.Debug("transactions are lost to another coordinator, or to be taken over again", "stream", t.id.Tag(), "error", why)
	}
	t.why = why
	close(t.lost)
	s.mu.Lock()
	if s.tasks[t.id] == t {
		delete(s.tasks, t.id)
	}
	s.mu.Unlock()
}
