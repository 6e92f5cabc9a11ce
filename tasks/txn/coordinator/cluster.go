package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// method is the name of the call of a coordinator.
const method = "txn/call"

// Handle serves a service's calls to other processes.
func (s *Service) Handle(t transport.Handlers) {
	t.Handle(method, func(st transport.Stream) error {
		r := new(txnpb.Request)
		if err := st.Recv(r); err != nil {
			return err
		}
		reply, err := s.Call(st.Context(), r)
		if sharedlog.KindOf(err) == sharedlog.KindClosed || err != nil && txn.Again(err) {
			// This process's log is closed, not the caller's.
			reply, err = &txnpb.Reply{Outcome: txn.Lost, Text: err.Error()}, nil
		}
		if err != nil {
			return err
		}
		return st.Send(reply)
	})
}

// Cluster is a log whose storage nodes are coordinators.
type Cluster interface {
	// Nodes returns the addresses of the known nodes.
	Nodes() []string
	// Call sends a request to one of them and waits for the answer.
	Call(ctx context.Context, addr, method string, request, reply any) error
}

// Remote calls the coordinators of a cluster for its tasks. Safe for concurrent use.
type Remote struct {
	cluster Cluster

	mu sync.Mutex
	at map[txn.Task]string // the node that answered last
}

// NewRemote returns the coordinators of a cluster.
func NewRemote(c Cluster) *Remote { return &Remote{cluster: c, at: map[txn.Task]string{}} }

// timeout is how long a call waits before another coordinator is asked. A second phase fits in it.
const timeout = 2 * time.Second

// Call asks the task's coordinator: the node that answered last, at first the node that the task
// hashes to. After an error the next call asks the next node.
func (r *Remote) Call(ctx context.Context, req *txnpb.Request) (*txnpb.Reply, error) {
	id := txn.Task{Job: req.Job, Stage: req.Stage, Index: req.StageIndex, Task: req.Task}
	nodes := r.cluster.Nodes()
	if len(nodes) == 0 {
		return nil, errors.New("no storage node is known that could coordinate transactions")
	}
	slices.SortFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(id, b), weight(id, a)), cmp.Compare(a, b))
	})
	r.mu.Lock()
	at := r.at[id]
	if !slices.Contains(nodes, at) {
		at = nodes[0]
		r.at[id] = at
	}
	r.mu.Unlock()
	c, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply := new(txnpb.Reply)
	err := r.cluster.Call(c, at, method, req, reply)
	if err == nil && reply.Outcome != txn.Lost {
		return reply, nil
	}
	if err == nil {
		err = errors.New(reply.Text)
	}
	r.mu.Lock()
	if r.at[id] == at {
		r.at[id] = nodes[(slices.Index(nodes, at)+1)%len(nodes)]
	}
	r.mu.Unlock()
	return nil, fmt.Errorf("coordinator %s: %w", at, err)
}

// weight is the weight of a node for a task: the node with the highest weight coordinates the task,
// so the loss of one node moves only its own tasks.
func weight(id txn.Task, node string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", id.Tag(), node)
	x := h.Sum64() // the hash's high bits hardly depend on the last bytes
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}
