package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/manager/server"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/status"
	"tailrace.dev/tailrace/tasks/tags"
)

// autos is a cluster with a job whose stage by-key has WatermarkPer(Auto). Tests start its managers. No worker is given its tasks, and
// what one answers about them is tell's.
type autos struct {
	t      *testing.T
	addr   string // etcd's
	store  *meta.Store
	dialer transport.Dialer
	log    *mem.Log
	saves  checkpoint.Store // of the managers that start, nil: none
	plan   *operators.Plan
	spec   *tasks.Spec
	id     string
	tell   atomic.Pointer[func() []tasks.Status]
	looks  atomic.Int64 // how often it has told

	mu     sync.Mutex
	logged bytes.Buffer
}

func newAutos(t *testing.T, file string, src operators.Source[int64], protocol string) *autos {
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	a := &autos{t: t, addr: etcd.Addr(), log: mem.New(mem.Options{})}
	a.store, err = meta.Open(meta.Options{Endpoints: []string{a.addr}, Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { a.store.Close() })
	require.NoError(t, a.store.Check(t.Context()))
	a.dialer, err = transport.NewDialer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	t.Cleanup(func() { a.dialer.Close() })

	job := operators.NewJob("job")
	in := operators.FromSource(job, "keys", src, serde.Int64)
	byKey := operators.KeyBy(in, "by-key", serde.Int64, func(k *int64) int64 { return *k }, operators.WatermarkPer(operators.Auto, 0))
	operators.ToSink(operators.CountWindows(byKey, operators.Tumbling(100*time.Millisecond)), "out", operators.FileSink(file, func(dst []byte, c *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	a.plan, err = job.Plan()
	require.NoError(t, err)
	a.spec, err = tasks.Describe(a.plan, tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Protocol: protocol})
	require.NoError(t, err)
	a.spec.Program = "nobody's"

	none := func() []tasks.Status { return nil }
	a.tell.Store(&none)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	worker, err := transport.NewServer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	worker.Handle("worker/measured", transport.AnswerJSON(func() any {
		a.looks.Add(1)
		all := []autoscale.Reading{}
		for _, s := range (*a.tell.Load())() {
			all = append(all, autoscale.NewMeasured("job", a.id, s))
		}
		return all
	}))
	go worker.Serve(listener)
	t.Cleanup(worker.Stop)
	life, leave := context.WithCancel(context.Background())
	var left sync.WaitGroup
	left.Go(func() {
		a.store.Stay(life, meta.Worker{Name: "w", Nonce: "n", Addr: listener.Addr().String(), Program: "another"}, func(error) {})
	})
	t.Cleanup(func() {
		leave()
		left.Wait()
	})
	return a
}

// manages starts a manager.
func (a *autos) manages(name string, log sharedlog.Log) *server.Server {
	s := server.Start(server.Options{Log: log, Store: a.store, Checkpoints: a.saves, Dialer: a.dialer, Logger: slog.New(slog.NewTextHandler(a, nil)), Me: meta.Manager{Name: name}, Cluster: meta.Cluster{ID: "id"}})
	a.t.Cleanup(func() { s.Close() })
	return s
}

// warned reports whether a manager has logged a text.
func (a *autos) warned(text string) bool { return strings.Contains(a.text(), text) }

// text is what managers have logged.
func (a *autos) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logged.String()
}

// Write implements io.Writer: what managers log.
func (a *autos) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logged.Write(b)
}

// submit submits the job.
func (a *autos) submit() {
	st, err := jobs.Submit(a.t.Context(), a.store, a.spec)
	require.NoError(a.t, err)
	a.id = st.ID
}

// plans returns all plans in the log, the first one first.
func (a *autos) plans() (all []*envelope.Plan) {
	tail, err := a.log.Tail(a.t.Context())
	require.NoError(a.t, err)
	r, err := a.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.Control(a.id)}, From: sharedlog.First, Until: tail})
	require.NoError(a.t, err)
	defer r.Close()
	for {
		b, err := r.Next(a.t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(a.t, err)
		for i := range b.Entries {
			p := new(envelope.Plan)
			require.NoError(a.t, p.Parse(b.Entries[i].Data))
			all = append(all, p)
		}
	}
}

// switches returns the grains of the plans that another one has than the plan before.
func (a *autos) switches() (all []envelope.Grain) {
	have := envelope.Grain{}
	for _, p := range a.plans() {
		if g := p.Stages[1].Grain; g != nil && *g != have {
			have = *g
			all = append(all, have)
		}
	}
	return all
}

// grains returns how a manager chooses the grain of the job's stage.
func grains(s *server.Server) (c tasks.Chosen) {
	for _, j := range s.Status().Jobs {
		for _, c = range j.Grains {
		}
	}
	return c
}

// apart tells that the items of each task are so far out of order, and those of a key 3 ms.
func (a *autos) apart(ms int64) {
	var mu sync.Mutex
	var m status.Measured
	tell := func() []tasks.Status {
		mu.Lock()
		defer mu.Unlock()
		for range 4000 {
			m.Task.Add(ms)
			m.Key.Add(3)
		}
		now := m
		return []tasks.Status{{Stage: "by-key", Task: 1, Instance: uint64(ms), Measured: &now}}
	}
	a.tell.Store(&tell)
}

func eventually(t *testing.T, f func() bool) { require.Eventually(t, f, time.Minute, time.Millisecond) }

// newest returns the newest switch that etcd has.
func (a *autos) newest() (all []meta.Switched) {
	v, err := a.store.Look(a.t.Context())
	require.NoError(a.t, err)
	return v.States["job"].Switched
}

var toKey = envelope.Grain{PerKey: true, Delay: 8}

// The leading manager switches the grain of a stage on workers by what they have measured, and says why. The one that leads behind it has
// the grain of the log, and the other one none of its own.
func TestManagerSwitchesGrains(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	first := a.manages("first", a.log)
	eventually(t, first.Leads)
	second := a.manages("second", a.log)
	a.submit()
	a.apart(2)
	eventually(t, func() bool { return strings.Contains(grains(first).Why, "the task's items are 4 ms out of order") })
	require.Equal(t, "task", grains(first).Grain)
	require.Empty(t, a.switches())
	require.Empty(t, grains(second), "it does not lead")
	a.apart(4000)
	eventually(t, func() bool { return grains(first).Count == 1 })
	require.Equal(t, []envelope.Grain{toKey}, a.switches())
	eventually(t, func() bool { return len(a.newest()) == 1 })
	const why = "the task's items are 4096 ms out of order, those of a key 4 ms"
	sw := a.newest()[0]
	require.Equal(t, "by-key", sw.Stage)
	require.Equal(t, tasks.Switched{At: sw.At, Grain: "key", Delay: 8, Why: why}, sw.Switched)
	words := fmt.Sprint(first.Logs())
	require.Contains(t, words, "grain by-key: a clock for each key, delay 8 ms since ")
	require.Contains(t, words, why)
	o, err := jobs.Look(t.Context(), a.store, a.dialer)
	require.NoError(t, err)
	require.Equal(t, a.newest(), o.Jobs()[0].Switched)

	require.NoError(t, first.Close())
	eventually(t, func() bool { return grains(second).Grain == "key" })
	require.EqualValues(t, 8, grains(second).Delay, "the log has it")
	require.Zero(t, grains(second).Count)
	require.Equal(t, []envelope.Grain{toKey}, a.switches())
	a.apart(2)
	eventually(t, func() bool { return len(a.switches()) == 2 })
	require.Equal(t, envelope.Grain{}, a.switches()[1])
	eventually(t, func() bool { return a.newest()[0].Grain == "task" })
	looks := a.looks.Load()
	eventually(t, func() bool { return a.looks.Load() > looks+1 })
	require.Equal(t, "task", grains(second).Grain, "the log has it")

	// One that another process has switched is known, too.
	rescaler, err := a.spec.Rescaler(t.Context(), a.log, a.id, tasks.Options{})
	require.NoError(t, err)
	require.NoError(t, rescaler.Switch(t.Context(), t.Context(), tasks.SwitchGrain{Stage: "by-key", Grain: toKey}))
	eventually(t, func() bool { return grains(second).Grain == "key" })
	require.NoError(t, jobs.Stop(t.Context(), a.store, "job"))
	eventually(t, func() bool { return grains(second).Stage == "" })
}

// holding is a log of one process, in which the first plan, or the first claim of the plans, waits until it goes.
type holding struct {
	sharedlog.Log
	job           *autos
	armed, claims atomic.Bool   // claims: it is a claim that waits
	waits, open   chan struct{} // waits: it does
	goes          func()
}

func newHolding(a *autos) *holding {
	h := &holding{Log: a.log, job: a, waits: make(chan struct{}), open: make(chan struct{})}
	h.goes = sync.OnceFunc(func() { close(h.open) })
	return h
}

func (h *holding) hold() {
	if h.armed.CompareAndSwap(true, false) {
		close(h.waits)
		<-h.open
	}
}

func (h *holding) Get(ctx context.Context, key string) (sharedlog.Change, error) {
	if h.claims.Load() && key == tags.ManagerKey(h.job.id) {
		h.hold()
	}
	return h.Log.Get(ctx, key)
}

func (h *holding) Append(g sharedlog.Group) *sharedlog.Pending {
	control := tags.Control(h.job.id)
	plan := slices.ContainsFunc(g.Records, func(r sharedlog.Record) bool { return slices.Contains(r.Tags, control) })
	if plan && !h.claims.Load() {
		h.hold()
	}
	return h.Log.Append(g)
}

// A manager is deposed while its switch is under way: if another one has switched meanwhile, that of the first has no effect.
func TestDeposedAmidASwitch(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	h := newHolding(a)
	first := a.manages("first", h)
	t.Cleanup(h.goes) // before first is closed
	eventually(t, first.Leads)
	second := a.manages("second", a.log)
	a.submit()
	h.armed.Store(true)
	a.apart(4000)
	<-h.waits
	a.depose()
	eventually(t, func() bool { return grains(second).Count == 1 })
	require.Len(t, a.plans(), 2)
	h.goes()
	require.NoError(t, first.Close())
	require.Len(t, a.plans(), 2, "that of the first is not in the log")
	require.Equal(t, []envelope.Grain{toKey}, a.switches())
	require.Equal(t, "key", grains(second).Grain)
}

// depose ends the leadership of the manager that leads, as if its lease had expired.
func (a *autos) depose() {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + a.addr}, Logger: zap.NewNop()})
	require.NoError(a.t, err)
	defer c.Close()
	r, err := c.Get(a.t.Context(), "/tailrace/c/manager/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(a.t, err)
	_, err = c.Revoke(a.t.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
	require.NoError(a.t, err)
}

// A manager is deposed while it looks what is to be done before its switch: it makes none.
func TestDeposedBehindADrive(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	h := newHolding(a)
	s := a.manages("only", h)
	t.Cleanup(h.goes)
	eventually(t, s.Leads)
	a.submit()
	h.claims.Store(true)
	h.armed.Store(true)
	a.apart(4000)
	<-h.waits
	a.usurp()
	h.goes()
	eventually(t, func() bool { return a.warned(meta.ErrDeposed.Error()) || !s.Leads() })
	require.Empty(t, a.switches())
}

// A manager that leads no more, and does not know it, takes the plans from no other one.
func TestDeposedBeforeASwitch(t *testing.T) {
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	s := a.manages("only", a.log)
	eventually(t, s.Leads)
	a.submit()
	key, err := a.log.Get(t.Context(), tags.ManagerKey(a.id))
	require.NoError(t, err)
	eventually(t, func() bool { return grains(s).Stage == "by-key" })
	a.usurp()
	a.apart(4000)
	eventually(t, func() bool { return a.warned(meta.ErrDeposed.Error()) })
	now, err := a.log.Get(t.Context(), tags.ManagerKey(a.id))
	require.NoError(t, err)
	require.Equal(t, key.Value, now.Value, "it has not become the one that appends plans")
	require.Empty(t, a.switches())
}

// usurp removes the key of the manager that leads; its lease lives on, so it does not know.
func (a *autos) usurp() {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + a.addr}, Logger: zap.NewNop()})
	require.NoError(a.t, err)
	defer c.Close()
	_, err = c.Delete(a.t.Context(), "/tailrace/c/manager/", clientv3.WithPrefix())
	require.NoError(a.t, err)
}

// pair runs the tasks of the job in two executors, as two workers would.
type pair struct {
	*autos
	executors [2]*tasks.Executor
	life      context.Context
	wait      sync.WaitGroup

	mu    sync.Mutex
	tasks map[[2]int]*tasks.Handle
	tries uint64
}

func newPair(a *autos) *pair {
	c := &pair{autos: a, tasks: map[[2]int]*tasks.Handle{}}
	var end context.CancelFunc
	c.life, end = context.WithCancel(context.Background())
	a.t.Cleanup(func() {
		end()
		c.wait.Wait()
	})
	n, err := a.spec.Tasks()
	require.NoError(a.t, err)
	for i := range c.executors {
		c.join(i)
	}
	for s := range n {
		for i := range n[s] {
			c.begin([2]int{s, i})
		}
	}
	tell := func() (all []tasks.Status) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, h := range c.tasks {
			if s := h.Status(); s.Measured != nil {
				all = append(all, s)
			}
		}
		return all
	}
	a.tell.Store(&tell)
	return c
}

func (c *pair) join(i int) {
	e, err := tasks.Join(context.Background(), c.log, c.spec, c.id, c.plan, tasks.Options{Logger: slog.New(slog.DiscardHandler), TrimBytes: -1})
	require.NoError(c.t, err)
	c.executors[i] = e
	c.wait.Go(func() { _ = e.Config().Handover.Follow(c.life) }) // ends with it
}

func (c *pair) begin(k [2]int) {
	c.tries++
	e := c.executors[(k[0]+k[1])%2]
	h, err := e.Prepare(k[0], k[1], tasks.Attempt{Number: c.tries, Nonce: 1}, false)
	require.NoError(c.t, err)
	e.Start(c.life, h)
	c.tasks[k] = h
}

// kill ends a worker, and another one takes its place.
func (c *pair) kill(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.join(i)
	for k, h := range c.tasks {
		if (k[0]+k[1])%2 == i {
			h.Kill()
			if <-h.Done(); h.Err() != nil {
				c.begin(k)
			}
		}
	}
}

// end waits for the end of all tasks.
func (c *pair) end() {
	for _, h := range c.tasks {
		<-h.Done()
		require.NoError(c.t, h.Err())
	}
}

// turning returns items of 2000 keys, in order; behind the first quarter those of each fourth key are 4 s behind, and in order still.
func turning(n int) (items []optest.Timed[int64], want []string) {
	rng := rand.New(rand.NewPCG(1, 1))
	counts := map[[2]int64]int{}
	for i := range n {
		at, key := int64(i)/2, rng.Int64N(2000)
		if from := int64(n) / 8; key%4 == 0 && at > from {
			at = max(from, at-4000)
		}
		items = append(items, optest.At(at, key))
		counts[[2]int64{at / 100, key}]++
	}
	for k, c := range counts {
		want = append(want, fmt.Sprintf("%d %d %d", k[0]*100, k[1], c))
	}
	slices.Sort(want)
	return items, want
}

// gate lets no more items through than a limit, until it opens.
type gate struct {
	operators.Source[int64]
	open  *atomic.Bool
	limit uint64
}

func (g gate) Open(p int) (operators.Partition[int64], error) {
	part, err := g.Source.Open(p)
	return gatePartition{part, g}, err
}

type gatePartition struct {
	operators.Partition[int64]
	gate gate
}

func (p gatePartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if at, _ := binary.Uvarint(p.Position(nil)); at >= p.gate.limit && !p.gate.open.Load() {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	return p.Partition.Read(b, most, now)
}

// Tasks of a job on workers turn to clocks of keys when its items demand it. Then a worker ends and the manager, and tasks start with the
// grain of the log: the rows are those of the items.
func TestRowsOfSwitchedJobs(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			items, want := turning(800_000)
			file := filepath.Join(t.TempDir(), "out")
			half := gate{optest.Items(4000, items), new(atomic.Bool), 200_000}
			most := gate{half, new(atomic.Bool), 790_000}
			a := newAutos(t, file, most, protocol)
			first := a.manages("first", a.log)
			eventually(t, first.Leads)
			second := a.manages("second", a.log)
			a.submit()
			c := newPair(a)
			eventually(t, func() bool { return strings.Contains(grains(first).Why, "the task's items are ") })
			require.Empty(t, a.switches(), "all items are in order")
			c.kill(0)
			half.open.Store(true)
			eventually(t, func() bool { return len(a.switches()) == 1 })
			require.True(t, a.switches()[0].PerKey)
			eventually(t, func() bool { return len(a.newest()) == 1 })
			require.Contains(t, a.newest()[0].Why, " ms out of order, those of a key 0 ms")
			c.kill(1)
			require.NoError(t, first.Close())
			eventually(t, func() bool { return grains(second).Grain == "key" })
			c.kill(0)
			most.open.Store(true)
			c.end()
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			rows := strings.Split(strings.TrimSuffix(string(bytes.TrimSpace(got)), "\n"), "\n")
			slices.Sort(rows)
			require.Equal(t, len(want), len(rows))
			require.True(t, slices.Equal(want, rows))
		})
	}
}

// A rescale that is asked for while a grain is switched begins behind the switch: of two plans that are made at the same time one would
// end the other. Its plans have the grain.
func TestSwitchAndRescale(t *testing.T) {
	items, _ := turning(4000)
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), gate{optest.Items(4000, items), new(atomic.Bool), 2000}, "fused")
	h := newHolding(a)
	s := a.manages("only", h)
	t.Cleanup(h.goes)
	eventually(t, s.Leads)
	a.submit()
	newPair(a)
	h.armed.Store(true)
	a.apart(4000)
	<-h.waits
	number, err := jobs.Rescale(t.Context(), a.store, "job", tasks.Rescale{Stage: "by-key", Tasks: 1})
	require.NoError(t, err)
	require.Len(t, a.plans(), 1)
	h.goes()
	_, err = jobs.AwaitRescale(t.Context(), a.store, "job", number)
	require.NoError(t, err)
	require.Equal(t, 1, grains(s).Count, "its outcome is known")
	plans := a.plans()
	require.Equal(t, 2, plans[1].Stages[1].Tasks)
	require.Equal(t, 1, plans[len(plans)-1].Stages[1].Tasks)
	for _, p := range plans[1:] {
		require.Equal(t, &toKey, p.Stages[1].Grain, "plan %d", p.Number)
	}
}

// A rescale is asked for while a chooser measures, and lasts, as no worker takes its newcomer. When it is given up, what the chooser had asked
// for is not carried out any more: by then the items are in order.
func TestSwitchIsOldBehindARescale(t *testing.T) {
	t.Parallel()
	a := newAutos(t, filepath.Join(t.TempDir(), "out"), optest.Items(0, []optest.Timed[int64]{}), "fused")
	s := a.manages("only", a.log)
	eventually(t, s.Leads)
	a.submit()
	a.apart(2)
	eventually(t, func() bool { return strings.Contains(grains(s).Why, "the task's items are 4 ms out of order") })
	a.apart(4000)
	measured := *a.tell.Load()
	moves := make(chan struct{})
	asks := sync.OnceFunc(func() {
		_, err := jobs.Rescale(t.Context(), a.store, "job", tasks.Rescale{Stage: "by-key", Tasks: 3})
		assert.NoError(t, err)
		<-moves
	})
	tell := func() []tasks.Status {
		asks()
		return measured()
	}
	a.tell.Store(&tell)
	eventually(t, func() bool {
		st := s.Status()
		return len(st.Jobs) == 1 && st.Jobs[0].Rescale != ""
	})
	close(moves)
	looks := a.looks.Load()
	a.apart(2)
	<-time.After(4 * time.Second)
	require.LessOrEqual(t, a.looks.Load(), looks+1, "it waits")
	_, err := jobs.Rescale(t.Context(), a.store, "job", tasks.Rescale{Stage: "by-key", Cancel: true})
	require.NoError(t, err)
	looks = a.looks.Load()
	eventually(t, func() bool { return a.looks.Load() > looks+2 })
	require.Empty(t, a.switches())
}
