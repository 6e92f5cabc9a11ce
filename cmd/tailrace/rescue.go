package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

func newRescue() *cobra.Command {
	var t target
	var s shown
	var r rescuing
	cmd := &cobra.Command{
		Use:   "rescue",
		Short: "Give up records that no replica holds any more, so that the log continues",
		Long: `Give up records that no replica holds any more, so that the log continues.

When a majority of a shard's replicas has lost its data (disks, or the power of all
nodes under --fsync interval), readers wait for records that no node has. Without --yes
nothing is changed: for each such shard it is shown what is left on which node, and what
would be lost.

With --yes the longest replica that is left becomes the shard: its records stay at their
LSNs, what lies behind is given up for ever, also if a node comes back that has it.
Readers that come there get an error that names the range, and continue behind it, or pass
it with --skip-lost. Appends that were on their way there end with "outcome unknown".

A node that does not answer may hold what is missing: start it first. If it is gone for
good, say so with --without. An address that no storage node of the cluster has is
refused, and so is a shard that there is not.`,
		Example: `  tailrace log rescue --log 10.0.0.1:7000
  tailrace log rescue --log 10.0.0.1:7000 --without 10.0.0.5:7100 --yes`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
			defer cancel()
			return t.rescue(ctx, &s, &r)
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	f := cmd.Flags()
	f.Lookup("timeout").DefValue = "1m0s"
	t.timeout = time.Minute
	f.BoolVar(&r.yes, "yes", false, "do it")
	f.StringSliceVar(&r.without, "without", nil, "the address of a storage node that is gone for good, with its data; may be given several times")
	f.UintSliceVar(&r.only, "shard", nil, "a shard to look at (default: all); may be given several times")
	return cmd
}

// rescuing holds the flags of a rescue.
type rescuing struct {
	yes     bool
	without []string
	only    []uint
}

// rescueRow is a shard of which no replica has all records.
type rescueRow struct {
	Shard    uint32         `json:"shard"`
	Records  uint64         `json:"records"` // without those given up before
	SealedAt uint64         `json:"sealed_at"`
	Replicas []rescueHolder `json:"replicas"`
	// Keep is the number of records that stay. The records behind them had LSNs from LostFrom up to
	// SealedAt, interleaved with the LSNs of other shards.
	Keep     uint64 `json:"keep"`
	LostFrom uint64 `json:"lost_from"`
	// Waits says why the shard cannot be rescued now; it is empty if it can.
	Waits string `json:"waits,omitempty"`
	soon  bool   // the wait will be over in a moment, if nothing else prevents the rescue
}

// settled is how long a rescue waits for shards to be sealed, and for nodes to learn of it.
const settled = 15 * time.Second

// rescueHolder is a replica of the shard.
type rescueHolder struct {
	Addr    string `json:"address"`
	Records uint64 `json:"records"`
	State   string `json:"state"`
}

// know returns an error if a rescue names a storage node or a shard that the cluster does not know:
// with a mistyped name the rescue would not do what the operator wants.
func (c *cluster) know(r *rescuing) error {
	for _, addr := range r.without {
		if _, ok := c.nodes[addr]; !ok {
			return fmt.Errorf("--without %s: no storage node of the cluster has this address; it knows %s", addr, strings.Join(slices.Sorted(maps.Keys(c.nodes)), ", "))
		}
	}
	for _, id := range r.only {
		if !slices.ContainsFunc(c.leader.GetShards(), func(sh *logpb.Shard) bool { return uint(sh.GetId()) == id }) {
			return fmt.Errorf("--shard %d: the cluster has no such shard, or has forgotten it because all its records were trimmed; tailrace status lists them", id)
		}
	}
	return nil
}

// rescues returns the sealed shards of which no answering node holds all remaining records.
func (c *cluster) rescues(without []string, only []uint) (rows []rescueRow) {
	for _, sh := range c.leader.GetShards() {
		left := sh.GetLength() - sh.GetLost()
		if !sh.GetSealed() || left == 0 || len(only) > 0 && !slices.Contains(only, uint(sh.GetId())) || c.whole(sh.GetId(), left) {
			continue
		}
		row := rescueRow{Shard: sh.GetId(), Records: left, SealedAt: sh.GetSealedAt(), LostFrom: sh.GetOpened()}
		for _, addr := range c.mayHold(sh) {
			h, end, waits := c.holder(addr, sh.GetId())
			switch {
			case waits == "":
			case slices.Contains(without, addr) || c.removed(addr):
				h.State += "; given up"
			case row.Waits == "" || row.soon:
				row.Waits, row.soon = fmt.Sprintf("%s %s", addr, waits), c.nodes[addr] != nil
			}
			if h.Records > row.Keep || h.Records == row.Keep && end > row.LostFrom {
				row.Keep, row.LostFrom = h.Records, end
			}
			row.Replicas = append(row.Replicas, h)
		}
		rows = append(rows, row)
	}
	return rows
}

// mayHold returns the nodes that may hold records of a shard: the nodes of its replicas, and others
// that report a replica.
func (c *cluster) mayHold(sh *logpb.Shard) []string {
	addrs := slices.Clone(sh.GetAddrs())
	for addr := range c.nodes {
		if c.replica(addr, sh.GetId()) != nil && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	slices.Sort(addrs)
	return addrs
}

func (c *cluster) replica(addr string, shard uint32) *logpb.ReplicaStatus {
	for _, r := range c.nodes[addr].GetReplicas() {
		if r.GetShard() == shard {
			return r
		}
	}
	return nil
}

// whole reports whether a node holds this many records of a sealed shard.
func (c *cluster) whole(shard uint32, records uint64) bool {
	for addr := range c.nodes {
		if r := c.replica(addr, shard); r.GetFull() || r.GetSealed() && r.GetRemains() >= records {
			return true
		}
	}
	return false
}

func (c *cluster) removed(addr string) bool {
	return slices.ContainsFunc(c.leader.GetNodes(), func(n *logpb.NodeStatus) bool {
		return n.GetAddr() == addr && n.GetState() == logpb.Node_REMOVED
	})
}

// holder describes what a node has of a shard and returns the LSN behind it. waits says what has to
// happen before the answer is certain.
func (c *cluster) holder(addr string, shard uint32) (h rescueHolder, end uint64, waits string) {
	h.Addr = addr
	r := c.replica(addr, shard)
	switch {
	case c.nodes[addr] == nil:
		h.State = "no answer"
		return h, 0, "does not answer, and may hold what is missing: start it, or give it up with --without " + addr
	case r == nil:
		h.State = "has none"
		return h, 0, "does not know of the shard yet; try again"
	}
	h.State, h.Records, end = r.GetRole(), r.GetRemains(), r.GetRemainsEnd()
	if !r.GetSealed() || r.GetRole() != "sealed" && r.GetRole() != "stale" && r.GetRole() != "full" {
		return h, end, "does not know yet that the shard is sealed; try again"
	}
	return h, end, ""
}

// endangered returns the open shards that have lost their majority of nodes: the sequencers will
// seal them soon.
func (c *cluster) endangered() (ids []uint32) {
	for _, sh := range c.leader.GetShards() {
		answer := 0
		for _, addr := range sh.GetAddrs() {
			if c.nodes[addr] != nil {
				answer++
			}
		}
		if !sh.GetSealed() && answer <= len(sh.GetAddrs())/2 {
			ids = append(ids, sh.GetId())
		}
	}
	return ids
}

func printRescues(w io.Writer, rows []rescueRow) {
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(w, "shard %d, sealed at %d: no replica holds all of its %d records\n", r.Shard, r.SealedAt, r.Records)
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		for _, h := range r.Replicas {
			fmt.Fprintf(t, "  %s\t%d\t%s\n", h.Addr, h.Records, h.State)
		}
		_ = t.Flush()
		fmt.Fprintf(w, "  would be lost: %d records, between LSN %d and %d\n", r.Records-r.Keep, r.LostFrom, r.SealedAt)
		if r.Waits != "" {
			fmt.Fprintf(w, "  not now: %s\n", r.Waits)
		}
	}
}

func (t *target) rescue(ctx context.Context, s *shown, r *rescuing) error {
	var c *cluster
	var rows []rescueRow
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		var err error
		if c, err = t.look(ctx); err != nil {
			return err
		}
		if c.leader == nil {
			return errors.New("the sequencers have no leader at the moment: a majority of them must run")
		}
		if err := c.know(r); err != nil {
			return err
		}
		rows = c.rescues(r.without, r.only)
		soon := len(c.endangered()) > 0 || slices.ContainsFunc(rows, func(row rescueRow) bool { return row.soon })
		if !r.yes || !soon || time.Since(began) > settled {
			break
		}
	}
	if open := c.endangered(); r.yes && len(open) > 0 && len(r.only) == 0 {
		return fmt.Errorf("shards %s are open, and most of their nodes do not answer: they are to be sealed first, which the leader does; see tailrace status", join(open))
	}
	if !r.yes {
		return s.show(rows, func(w io.Writer) {
			printRescues(w, rows)
			if open := c.endangered(); len(open) > 0 {
				fmt.Fprintf(w, "shards %s are open, and most of their nodes do not answer: they will be sealed within a second or two; look again\n", join(open))
			}
			if len(rows) == 0 {
				fmt.Fprintln(w, "every sealed shard has a replica that holds all of it: there is nothing to rescue")
			} else {
				fmt.Fprintln(w, "nothing was changed; with --yes it is")
			}
		})
	}
	for i := range rows {
		if row := &rows[i]; row.Waits != "" {
			return fmt.Errorf("shard %d: %s", row.Shard, row.Waits)
		}
	}
	for i := range rows {
		if err := t.proposeRescue(ctx, &rows[i]); err != nil {
			return fmt.Errorf("shard %d: %w", rows[i].Shard, err)
		}
	}
	if err := t.rescued(ctx, rows); err != nil {
		return err
	}
	return s.show(rows, func(w io.Writer) {
		for i := range rows {
			r := &rows[i]
			fmt.Fprintf(w, "shard %d: %d records are kept, %d were given up, between LSN %d and %d\n", r.Shard, r.Keep, r.Records-r.Keep, r.LostFrom, r.SealedAt)
		}
		if len(rows) == 0 {
			fmt.Fprintln(w, "every sealed shard has a replica that holds all of it: nothing was changed")
		}
	})
}

func join(ids []uint32) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprint(id))
	}
	return strings.Join(all, ", ")
}

// proposeRescue asks the sequencers to decide on a rescue. Repeating it is harmless.
func (t *target) proposeRescue(ctx context.Context, row *rescueRow) error {
	req := &logpb.ProposeRequest{What: &logpb.ProposeRequest_Rescue{Rescue: &logpb.Rescue{Shard: row.Shard, Length: row.Keep}}}
	reply := new(logpb.ProposeReply)
	repeated, err := t.askLeader(ctx, "sequencer/propose", req, reply, func() (*logpb.Leader, error) {
		if reply.GetUnknown() {
			return nil, errLeadershipLost
		}
		return reply.GetLeader(), nil
	})
	if err == nil && !reply.GetOk() && !repeated { // otherwise the shard's state shows whether it was done before
		return errors.New("refused: another command has rescued it meanwhile, or a sequencer runs an older version (tailrace log sequencers list shows levels)")
	}
	return err
}

// rescued waits until replicas have all of the kept records.
func (t *target) rescued(ctx context.Context, rows []rescueRow) error {
	for {
		c, err := t.look(ctx)
		waits := ""
		if err == nil && c.leader != nil {
			for _, row := range rows {
				i := slices.IndexFunc(c.leader.GetShards(), func(sh *logpb.Shard) bool { return sh.GetId() == row.Shard })
				if i < 0 {
					continue
				}
				sh := c.leader.GetShards()[i]
				if left := sh.GetLength() - sh.GetLost(); left > row.Keep || left > 0 && !c.full(row.Shard) {
					waits = fmt.Sprintf("shard %d was rescued, and no replica shows it yet; see tailrace status and the logs of its nodes", row.Shard)
				}
			}
			if waits == "" {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s (%w)", waits, ctx.Err())
		}
	}
}

func (c *cluster) full(shard uint32) bool {
	for addr := range c.nodes {
		if c.replica(addr, shard).GetFull() {
			return true
		}
	}
	return false
}
