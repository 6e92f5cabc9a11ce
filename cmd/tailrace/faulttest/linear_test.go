package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
)

// The requests of clients and their replies.
type (
	request struct {
		kind     string // append, tail, get, set
		records  int
		key      string
		old, new string
	}
	response struct {
		lsn     sharedlog.LSN
		value   string
		ok      bool
		unknown bool
	}
)

// order is the model of appends and tails: every group takes the next LSNs, all of them, and the
// tail is behind the last.
var order = porcupine.Model{
	Init: func() any { return sharedlog.First },
	Step: func(state, in, out any) (bool, any) {
		tail, q, a := state.(sharedlog.LSN), in.(request), out.(response)
		if a.lsn != tail {
			return false, state
		}
		return true, tail + sharedlog.LSN(q.records)
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}

// registers is the model of metadata keys. A change with an unknown outcome may or may not have
// been made.
var registers = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			byKey[op.Input.(request).key] = append(byKey[op.Input.(request).key], op)
		}
		var parts [][]porcupine.Operation
		for _, p := range byKey {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() []any { return []any{""} },
	Step: func(state, in, out any) []any {
		value, q, a := state.(string), in.(request), out.(response)
		switch {
		case q.kind == "get" && a.value == value:
			return []any{value}
		case q.kind == "get":
			return nil
		case a.unknown && q.old == value:
			return []any{value, q.new}
		case a.unknown:
			return []any{value}
		case a.ok && q.old == value:
			return []any{q.new}
		case !a.ok && q.old != value && a.value == value:
			return []any{value}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}).ToModel()

// history is what all clients have observed.
type history struct {
	began time.Time
	mu    sync.Mutex
	log   []porcupine.Operation
	meta  []porcupine.Operation
}

func (h *history) do(client int, meta bool, q request, f func() response) {
	call := time.Since(h.began).Nanoseconds()
	a := f()
	op := porcupine.Operation{ClientId: client, Input: q, Output: a, Call: call, Return: time.Since(h.began).Nanoseconds()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if meta {
		h.meta = append(h.meta, op)
	} else {
		h.log = append(h.log, op)
	}
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.log) + len(h.meta)
}

// Appends, tails and metadata are linearizable, through several clients, while processes are
// killed, stopped and disconnected. With TAILRACE_SOAK the test takes a hundred times as long.
func TestLinearizable(t *testing.T) {
	rounds := 1
	if os.Getenv("TAILRACE_SOAK") != "" {
		rounds = 100
	}
	total := 0
	for round := range rounds {
		total += linear(t, uint64(round))
	}
	t.Logf("%d operations are linearizable", total)
}

func linear(t *testing.T, seed uint64) int {
	c := proctest.Start(t, binaries, 4)
	defer c.Stop()
	h := &history{began: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	worker := func(f func(client int)) {
		client := 0
		h.mu.Lock()
		client = len(h.log) + int(time.Since(h.began)) // any number, but unique
		h.mu.Unlock()
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f(client)
				}
			}
		})
	}
	for range 2 { // clients
		log := c.Open()
		for range 5 {
			w := sharedlog.NewWriter(log, fmt.Sprintf("w%x", rand.Uint64()), sharedlog.Condition{})
			worker(func(client int) {
				n := 1 + rand.IntN(3)
				h.do(client, false, request{kind: "append", records: n}, func() response {
					var rs []sharedlog.Record
					for range n {
						rs = append(rs, sharedlog.Record{Tags: []sharedlog.Tag{everyone}})
					}
					lsn, err := w.Append(rs...).Wait(ctx)
					require.NoError(t, err)
					return response{lsn: lsn}
				})
			})
		}
		worker(func(client int) {
			h.do(client, false, request{kind: "tail"}, func() response {
				lsn, err := log.Tail(ctx)
				require.NoError(t, err)
				return response{lsn: lsn}
			})
		})
		for range 2 {
			known := map[string]string{}
			worker(func(client int) {
				key := fmt.Sprint("k", rand.IntN(3))
				if rand.IntN(3) == 0 {
					h.do(client, true, request{kind: "get", key: key}, func() response {
						v, err := log.Get(ctx, key)
						require.NoError(t, err)
						known[key] = string(v.Value)
						return response{value: string(v.Value)}
					})
					return
				}
				q := request{kind: "set", key: key, old: known[key], new: fmt.Sprintf("%x", rand.Uint64())}
				h.do(client, true, q, func() response {
					v, err := log.CompareAndSet(ctx, key, []byte(q.old), []byte(q.new))
					known[key] = string(v.Value)
					kind := sharedlog.KindOf(err)
					if kind != sharedlog.KindConflict && kind != sharedlog.KindUnknown {
						require.NoError(t, err)
					}
					return response{value: string(v.Value), ok: err == nil, unknown: kind == sharedlog.KindUnknown}
				})
			})
		}
	}
	progress := func(more int) {
		want := h.count() + more
		require.Eventually(t, func() bool { return h.count() >= want }, patience, 5*time.Millisecond, "operations do not continue")
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	progress(1000)
	for range 4 {
		var name string
		if rng.IntN(2) == 0 {
			name = c.Leader()
		} else {
			name = fmt.Sprint("storage", rng.IntN(len(c.Storage)))
		}
		if rng.IntN(3) == 0 {
			c.Signal(name, syscall.SIGSTOP)
			progress(1000)
			c.Signal(name, syscall.SIGCONT)
		} else {
			c.Kill(name)
			progress(1000)
			c.Restart(name)
		}
		progress(1000)
	}
	close(stop)
	wg.Wait()
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(order, h.log, time.Minute), "appends and tails, seed %d", seed)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(registers, h.meta, time.Minute), "metadata, seed %d", seed)
	return h.count()
}
