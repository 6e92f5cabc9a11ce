package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// target is the flags of commands that talk to a cluster.
type target struct {
	log     string
	timeout time.Duration
	host.Common
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.log, "log", "", "the cluster: addresses of its sequencers, HOST:PORT,HOST:PORT,… (tailrace up prints them)")
	f.DurationVar(&t.timeout, "timeout", 10*time.Second, "how long to wait for the cluster")
	tlsFlags(cmd, &t.Common)
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

func (t *target) open(ctx context.Context) (sharedlog.Log, func() error, error) {
	addrs, err := t.sequencers()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return host.OpenLog(ctx, t.transport(), client.Options{Sequencers: addrs, Name: "tailrace"})
}

// cluster is what all processes say of themselves.
type cluster struct {
	sequencers []*logpb.SequencerStatus // nil: no answer
	leader     *logpb.SequencerStatus
	nodes      map[string]*logpb.StorageStatus // nil: no answer
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
	for _, addr := range addrs {
		m := new(logpb.SequencerStatus)
		if err := d.Call(ctx, addr, "sequencer/status", new(logpb.StatusRequest), m); err != nil {
			errs = append(errs, err)
			m = nil
		}
		c.sequencers = append(c.sequencers, m)
		if m.GetLeader().GetMe() && (c.leader == nil || m.GetTerm() > c.leader.GetTerm()) {
			c.leader = m
		}
	}
	if len(errs) == len(addrs) {
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
	for addr := range names {
		m := new(logpb.StorageStatus)
		if d.Call(ctx, addr, "storage/status", new(logpb.StatusRequest), m) != nil {
			m = nil
		}
		c.nodes[addr] = m
	}
	return c, nil
}

func newStatus() *cobra.Command {
	var t target
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show who leads, which shards are where, and who lags",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.look(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return c.json(os.Stdout)
			}
			c.table(os.Stdout)
			return nil
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func (c *cluster) json(w io.Writer) error {
	type raw = json.RawMessage
	out := struct {
		Sequencers []raw          `json:"sequencers"`
		Storage    map[string]raw `json:"storage"`
	}{Storage: map[string]raw{}}
	for _, s := range c.sequencers {
		if s == nil {
			out.Sequencers = append(out.Sequencers, raw("null"))
			continue
		}
		b, err := protojson.Marshal(s)
		if err != nil {
			return err
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
			return err
		}
		out.Storage[addr] = b
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func (c *cluster) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "SEQUENCER\tADDRESS\tROLE\tTERM\tENTRIES\tTAIL")
	for _, s := range c.sequencers {
		if s == nil {
			fmt.Fprintln(t, "?\t?\tno answer\t\t\t")
			continue
		}
		role := "follows"
		if s.GetLeader().GetMe() {
			role = "leads"
		} else if s.GetLeader().GetId() == 0 {
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
		fmt.Fprintf(t, "%s\talive\t%d\t%s\t%d\t%d\n", a, behind, mega(n.GetDiskBytes()), open, sealed)
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
