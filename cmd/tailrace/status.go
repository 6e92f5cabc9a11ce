package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"tailrace.dev/tailrace/cmd/tailrace/internal/role"
	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
)

// target holds the flags of commands that talk to a cluster.
type target struct {
	log     string
	timeout time.Duration
	host.Common
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.log, "log", "", "the cluster: addresses of its sequencers, HOST:PORT,HOST:PORT,… (tailrace up prints them)")
	f.DurationVar(&t.timeout, "timeout", 10*time.Second, "how long to wait for the cluster")
	role.TLSFlags(cmd, &t.Common)
}

func (t *target) sequencers() ([]string, error) {
	addrs, err := cli.Addresses("log", t.log)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, usagef("--log: which cluster? give the addresses of its sequencers (tailrace up prints them), or set TAILRACE_LOG")
	}
	return addrs, nil
}

func (t *target) transport() transport.Options {
	return transport.Options{Cluster: t.Cluster, TLS: t.TLS}
}

// withLog runs f, which appends nothing, with the cluster's log. One sequencer that answers is
// enough to start.
func (t *target) withLog(ctx context.Context, f func(sharedlog.Log) error) error {
	return t.useLog(ctx, client.Options{NoAppends: true}, f)
}

// withAppends waits until the cluster's log accepts appends, and runs f with it.
func (t *target) withAppends(ctx context.Context, f func(sharedlog.Log) error) error {
	return t.useLog(ctx, client.Options{}, f)
}

func (t *target) useLog(ctx context.Context, o client.Options, f func(sharedlog.Log) error) error {
	var err error
	if o.Sequencers, err = t.sequencers(); err != nil {
		return err
	}
	o.Name = "tailrace"
	begin, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	log, closeLog, err := host.OpenLog(begin, t.transport(), o)
	if err != nil {
		return err
	}
	return errors.Join(f(log), closeLog())
}

// shown is the flag of commands that print their result: as text, or as JSON.
type shown struct{ json bool }

func (s *shown) flags(cmd *cobra.Command) { cmd.Flags().BoolVar(&s.json, "json", false, "as JSON") }

// show prints v as JSON, or calls table to print it as text.
func (s *shown) show(v any, table func(io.Writer)) error {
	if !s.json {
		table(os.Stdout)
		return nil
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// cluster is what all processes report about themselves.
type cluster struct {
	sequencers []*logpb.SequencerStatus // nil: no answer
	asked      []string                 // their addresses
	leader     *logpb.SequencerStatus
	nodes      map[string]*logpb.StorageStatus // nil: no answer
	// jobs is nil if the cluster runs no jobs; trouble says why nothing is known about them.
	jobs    *jobs.Overview
	trouble error
}

// jobs collects the state of the jobs. A cluster in which no etcd is registered has no jobs.
func (t *jobTarget) jobs(ctx context.Context) (*jobs.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, min(t.timeout, 3*time.Second))
	defer cancel()
	var o *jobs.Overview
	err := t.with(ctx, func(store *meta.Store) (err error) {
		o, err = t.overview(ctx, store)
		return err
	})
	return o, err
}

// jobTables prints managers, workers and jobs.
func (c *cluster) jobTables(w io.Writer) {
	if c.jobs == nil {
		fmt.Fprintf(w, "\nJobs: %v\n", c.trouble)
		return
	}
	v := c.jobs.View
	fmt.Fprintln(w)
	switch {
	case v.Manager.Name == "":
		fmt.Fprintln(w, "MANAGER  none leads; running tasks continue, no task is started")
	case c.jobs.Trouble != "":
		fmt.Fprintf(w, "MANAGER  %s at %s leads, but does not answer: %s\n", v.Manager.Name, v.Manager.Addr, c.jobs.Trouble)
	default:
		fmt.Fprintf(w, "MANAGER  %s at %s leads\n", v.Manager.Name, v.Manager.Addr)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nWORKER\tADDRESS\tSTATE\tPROGRAM\tVERSION\tRUNS\tTASKS\t")
	listed := map[string]bool{}
	for _, s := range c.jobs.Manager.Workers {
		rec := v.Workers[s.Name]
		if rec.Addr != s.Addr {
			rec = meta.Worker{}
		}
		listed[s.Name] = true
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", s.Name, s.Addr, s.State, rec.Program, rec.Version, runs(rec), s.Tasks, s.Why)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Workers)) {
		if r := v.Workers[name]; !listed[name] {
			fmt.Fprintf(t, "%s\t%s\tregistered\t%s\t%s\t%s\t\t\n", name, r.Addr, r.Program, r.Version, runs(r))
		}
	}
	t.Flush()
	fmt.Fprintln(w)
	all := c.jobs.Jobs()
	jobTable(w, all)
	stageRates(w, all)
}

// runs describes what a worker offers.
func runs(w meta.Worker) string {
	var what []string
	if len(w.Stages) > 0 {
		what = append(what, "stages "+strings.Join(w.Stages, ","))
	}
	if len(w.Jobs) > 0 {
		what = append(what, "jobs "+strings.Join(w.Jobs, ","))
	}
	for _, k := range slices.Sorted(maps.Keys(w.Labels)) {
		what = append(what, k+" "+w.Labels[k])
	}
	if len(what) == 0 {
		return "all"
	}
	return strings.Join(what, "; ")
}

func (t *target) look(ctx context.Context) (*cluster, error) {
	addrs, err := t.sequencers()
	if err != nil {
		return nil, err
	}
	d, err := transport.NewDialer(t.transport())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, min(t.timeout, 3*time.Second))
	defer cancel()
	c := &cluster{nodes: map[string]*logpb.StorageStatus{}}
	var errs []error
	c.asked = slices.Clone(addrs)
	for i := 0; i < len(c.asked); i++ {
		addr := c.asked[i]
		m := new(logpb.SequencerStatus)
		if err := d.Call(ctx, addr, "sequencer/status", new(logpb.StatusRequest), m); err != nil {
			errs = append(errs, err)
			m = nil
		}
		c.sequencers = append(c.sequencers, m)
		if m.GetLeader().GetMe() && (c.leader == nil || m.GetTerm() > c.leader.GetTerm()) {
			c.leader = m
		}
		for _, q := range m.GetMembers() { // that the caller did not know of
			if a := q.GetMember().GetAddr(); a != "" && !slices.Contains(c.asked, a) {
				c.asked = append(c.asked, a)
			}
		}
	}
	if len(errs) == len(c.asked) {
		return nil, fmt.Errorf("no sequencer answers: %w", errors.Join(errs...))
	}
	names := map[string]bool{}
	for _, s := range c.sequencers {
		for _, n := range s.GetNodes() {
			names[n.GetAddr()] = true
		}
		for _, sh := range s.GetShards() {
			for _, a := range sh.GetAddrs() {
				names[a] = true
			}
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for addr := range names { // in parallel: each may take until the timeout
		wg.Go(func() {
			m := new(logpb.StorageStatus)
			if d.Call(ctx, addr, "storage/status", new(logpb.StatusRequest), m) != nil {
				m = nil
			}
			mu.Lock()
			defer mu.Unlock()
			c.nodes[addr] = m
		})
	}
	wg.Wait()
	return c, nil
}

// complete reports whether all nodes have joined and every open shard belongs to a living process:
// the shards of the previous run are sealed.
func complete(ctx context.Context, cluster string, sequencers []string, nodes int) bool {
	t := target{log: strings.Join(sequencers, ","), timeout: time.Second, Common: host.Common{Cluster: cluster}}
	c, err := t.look(ctx)
	if err != nil || c.leader == nil || len(c.leader.GetNodes()) < nodes {
		return false
	}
	incarnation := map[string]uint64{}
	for _, n := range c.leader.GetNodes() {
		incarnation[n.GetAddr()] = n.GetIncarnation()
	}
	open := 0
	for _, sh := range c.leader.GetShards() {
		if !sh.GetSealed() {
			if open++; incarnation[sh.GetAddrs()[0]] != sh.GetIncarnation() {
				return false
			}
		}
	}
	return open > 0
}

func newStatus() *cobra.Command {
	var t jobTarget
	var s shown
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the leader, the shards and their replicas, which of them lag, workers and jobs",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.look(cmd.Context())
			if err != nil {
				return err
			}
			c.jobs, c.trouble = t.jobs(cmd.Context())
			all, err := c.all()
			if err != nil {
				return err
			}
			return s.show(all, func(w io.Writer) {
				c.table(w)
				c.jobTables(w)
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

// raw is JSON.
type raw = json.RawMessage

// everything is the state of a cluster as JSON.
type everything struct {
	Sequencers []raw                  `json:"sequencers"`
	Storage    map[string]raw         `json:"storage"`
	Manager    *meta.Manager          `json:"manager,omitempty"`
	Workers    []manager.WorkerStatus `json:"workers,omitempty"`
	Jobs       []jobs.Job             `json:"jobs,omitempty"`
}

func (c *cluster) all() (*everything, error) {
	out := &everything{Storage: map[string]raw{}}
	if c.jobs != nil {
		out.Manager, out.Workers, out.Jobs = &c.jobs.View.Manager, c.jobs.Manager.Workers, c.jobs.Jobs()
	}
	for _, s := range c.sequencers {
		if s == nil {
			out.Sequencers = append(out.Sequencers, raw("null"))
			continue
		}
		b, err := protojson.Marshal(s)
		if err != nil {
			return nil, err
		}
		out.Sequencers = append(out.Sequencers, b)
	}
	for addr, n := range c.nodes {
		if n == nil {
			out.Storage[addr] = raw("null")
			continue
		}
		b, err := protojson.Marshal(n)
		if err != nil {
			return nil, err
		}
		out.Storage[addr] = b
	}
	return out, nil
}

func (c *cluster) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "SEQUENCER\tADDRESS\tROLE\tTERM\tENTRIES\tTAIL")
	for i, s := range c.sequencers {
		if s == nil {
			fmt.Fprintf(t, "?\t%s\tno answer\t\t\t\n", c.asked[i])
			continue
		}
		role := "follows"
		switch {
		case s.GetWaiting() != "":
			role = s.GetWaiting()
		case s.GetLeader().GetMe():
			role = "leads"
		case s.GetLeader().GetId() == 0:
			role = "has no leader"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%d\t%d\n", s.GetId(), s.GetAddr(), role, s.GetTerm(), s.GetApplied(), s.GetTail())
	}
	best := c.leader
	for _, s := range c.sequencers {
		if best == nil && s != nil {
			best = s
		}
	}
	fmt.Fprintln(t, "\nNODE\tSTATE\tBEHIND\tON DISK\tSHARDS OPEN\tSEALED")
	var addrs []string
	for a := range c.nodes {
		addrs = append(addrs, a)
	}
	slices.Sort(addrs)
	for _, a := range addrs {
		n := c.nodes[a]
		if n == nil && c.removed(a) {
			continue // no shard names it, so it is not needed
		}
		if n == nil {
			fmt.Fprintf(t, "%s\tno answer\t\t\t\t\n", a)
			continue
		}
		open, sealed := 0, 0
		for _, r := range n.GetReplicas() {
			if r.GetSealed() {
				sealed++
			} else {
				open++
			}
		}
		behind := best.GetTail() - min(best.GetTail(), n.GetTail())
		state := "alive"
		if n.GetReadonly() {
			state += ", read-only (" + mega(n.GetFreeBytes()) + " free)"
		}
		if n.GetDamaged() > 0 {
			state += fmt.Sprintf(", %d segments damaged", n.GetDamaged())
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%d\n", a, state, behind, mega(n.GetDiskBytes()), open, sealed)
	}
	fmt.Fprintln(t, "\nSHARD\tSTATE\tRECORDS\tFROM\tREPLICAS (held; * all of it)")
	empty := 0
	for _, sh := range best.GetShards() {
		if sh.GetSealed() && sh.GetLength() == 0 {
			empty++
			continue
		}
		state := "open"
		if sh.GetSealed() {
			state = fmt.Sprintf("sealed at %d", sh.GetSealedAt())
		}
		if sh.GetLost() > 0 {
			state += fmt.Sprintf(", %d lost", sh.GetLost())
		}
		var replicas []string
		for _, a := range sh.GetAddrs() {
			replicas = append(replicas, a+" "+c.held(a, sh.GetId()))
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\n", sh.GetId(), state, sh.GetLength(), sh.GetOpened(), strings.Join(replicas, ", "))
	}
	if empty > 0 {
		fmt.Fprintf(t, "and %d that were sealed empty\n", empty)
	}
}

func (c *cluster) held(addr string, shard uint32) string {
	n := c.nodes[addr]
	if n == nil {
		return "?"
	}
	for _, r := range n.GetReplicas() {
		if r.GetShard() == shard {
			if r.GetFull() {
				return "*"
			}
			return fmt.Sprint(r.GetLength())
		}
	}
	return "-"
}

func mega(b uint64) string { return fmt.Sprintf("%.1f MB", float64(b)/1e6) }
