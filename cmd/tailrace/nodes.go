package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// nodeRow is a storage node as the leader knows it.
type nodeRow struct {
	Addr      string `json:"address"`
	Zone      string `json:"zone"`
	State     string `json:"state"`
	FreeBytes uint64 `json:"free_bytes"`
	DiskBytes uint64 `json:"disk_bytes"`
	Answers   bool   `json:"answers"`       // free space and bytes on disk are current
	Open      int    `json:"open_shards"`   // with a replica there
	Sealed    int    `json:"sealed_shards"` // with a copy there, now or soon
	Whole     int    `json:"whole_copies"`  // of sealed shards
	Unwell    int    `json:"unwell"`        // replicas that are behind, stale or damaged
	Left      *left  `json:"left,omitempty"`
}

// left is what a draining node holds that others lack.
type left struct {
	Open   uint32 `json:"open_shards"`
	Sealed uint32 `json:"sealed_shards"`
	Only   uint32 `json:"nowhere_else"`
	Short  uint32 `json:"nodes_too_few"`
}

func (l *left) nothing() bool { return l.Open == 0 && l.Sealed == 0 }

func (l *left) String() string {
	if l.nothing() {
		return "holds nothing that is needed"
	}
	text := fmt.Sprintf("has replicas of %d open shards, and %d sealed shards have too few other whole copies (%d none)", l.Open, l.Sealed, l.Only)
	if l.Short > 0 {
		text += fmt.Sprintf("; there are %d storage nodes too few to take them: start more", l.Short)
	}
	return text
}

// nodeRows returns the storage nodes, by address.
func (c *cluster) nodeRows() ([]nodeRow, error) {
	if c.leader == nil {
		return nil, errors.New("the sequencers have no leader at the moment: a majority of them must run")
	}
	at := map[string]*nodeRow{}
	row := func(addr string) *nodeRow {
		if at[addr] == nil {
			at[addr] = &nodeRow{Addr: addr, State: "silent"}
		}
		return at[addr]
	}
	for _, n := range c.leader.GetNodes() {
		r := row(n.GetAddr())
		r.Zone, r.Whole = n.GetZone(), len(n.GetFull())
		for _, h := range n.GetReplicas() {
			if h.GetState() != logpb.ReplicaHealth_OK {
				r.Unwell++
			}
		}
		connected := n.GetSilentMs() >= 0 && n.GetConnected()
		switch {
		case n.GetState() == logpb.Node_REMOVED:
			r.State = "removed"
		case n.GetState() == logpb.Node_DRAINING && connected:
			r.State = "draining"
		case n.GetState() == logpb.Node_DRAINING:
			r.State = "draining, silent"
		case connected && n.GetReadonly():
			r.State = "read-only"
		case connected:
			r.State = "active"
		}
		if l := n.GetLeft(); l != nil {
			r.Left = &left{l.GetOpen(), l.GetSealed(), l.GetOnly(), l.GetShort()}
		}
	}
	for addr, n := range c.nodes {
		if n != nil {
			r := row(addr)
			r.FreeBytes, r.DiskBytes, r.Answers = n.GetFreeBytes(), n.GetDiskBytes(), true
		}
	}
	for _, sh := range c.leader.GetShards() {
		for _, a := range sh.GetAddrs() {
			switch {
			case !sh.GetSealed():
				row(a).Open++
			case sh.GetLength() > sh.GetLost():
				row(a).Sealed++
			}
		}
	}
	var rows []nodeRow
	for _, r := range at {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return strings.Compare(a.Addr, b.Addr) })
	return rows, nil
}

func newNodes() *cobra.Command {
	var t target
	var s shown
	var all bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show the storage nodes: zone, state, room, shards",
		Long: `Show the storage nodes, as the sequencers' leader knows them.

STATE is active, read-only (its disk is nearly full), draining, removed (with --all),
or silent: the leader gets no reports from it. UNWELL are replicas that are behind, stale or
damaged. FREE and ON DISK are ? for a node that does not answer. LEFT is what a node that is being drained holds that others lack.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.look(cmd.Context())
			if err != nil {
				return err
			}
			rows, err := c.nodeRows()
			if err != nil {
				return err
			}
			if !all {
				rows = slices.DeleteFunc(rows, func(r nodeRow) bool { return r.State == "removed" && r.Open+r.Sealed == 0 })
			}
			return s.show(rows, func(w io.Writer) { nodeTable(w, rows) })
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also those that were removed")
	return cmd
}

func nodeTable(w io.Writer, rows []nodeRow) {
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer tab.Flush()
	fmt.Fprintln(tab, "NODE\tZONE\tSTATE\tFREE\tON DISK\tOPEN SHARDS\tSEALED SHARDS\tUNWELL\tLEFT")
	for _, r := range rows {
		zone, free, disk, left := "-", "?", "?", "-"
		if r.Zone != "" {
			zone = r.Zone
		}
		if r.Answers {
			free, disk = mega(r.FreeBytes), mega(r.DiskBytes)
		}
		if r.Left != nil {
			left = r.Left.String()
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", r.Addr, zone, r.State, free, disk, r.Open, r.Sealed, r.Unwell, left)
	}
}

// oneNode validates the argument of commands about one storage node.
func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("log %s: which storage node? give its address (tailrace log nodes)", cmd.Name())
	}
	return nil
}

func newDrain() *cobra.Command {
	var t target
	var undo, wait bool
	cmd := &cobra.Command{
		Use:   "drain HOST:PORT",
		Short: "Move what a storage node holds to others, and wait until it holds nothing that is needed",
		Long: `Move what a storage node holds to others, and wait until it holds nothing that is needed.

The node gets no new replicas; its open shards are replaced, and the sealed ones that
it holds are copied to other nodes. Appends and readers continue. The node may run, which
is faster, or be lost. It stays a part of the cluster until it is removed (tailrace log
remove), and --undo makes it an ordinary node again. If it is the last node of its zone,
the command says so: the zones that are left may be too few to keep replicas apart.

The wait can be interrupted: draining continues, and the command given again waits for the
rest.`,
		Example: `  tailrace log drain 10.0.0.4:7001 --log 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000`,
		Args:    oneNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, state := args[0], logpb.Node_DRAINING
			if undo {
				state = logpb.Node_ACTIVE
			}
			if err := t.changeNode(cmd.Context(), addr, state); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if c, err := t.look(cmd.Context()); err == nil && !undo {
				if rows, err := c.nodeRows(); err == nil {
					fmt.Fprint(out, zoneLost(rows, addr))
				}
			}
			switch {
			case undo:
				fmt.Fprintf(out, "%s is an ordinary node again\n", addr)
				return nil
			case !wait:
				fmt.Fprintf(out, "%s is being drained; see tailrace log nodes\n", addr)
				return nil
			}
			return t.drained(cmd.Context(), out, addr)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&undo, "undo", false, "drain it no more")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until it holds nothing that is needed")
	return cmd
}

// zoneLost returns a warning if the node being drained is the last of its zone.
func zoneLost(rows []nodeRow, addr string) string {
	zones := map[string]int{} // nodes that may hold replicas
	zone := ""
	for _, r := range rows {
		switch {
		case r.Addr == addr:
			zone = r.Zone
		case r.State == "active" || r.State == "read-only":
			zones[r.Zone]++
		}
	}
	if zone == "" || zones[zone] > 0 {
		return ""
	}
	return fmt.Sprintf("%s is the last storage node of zone %s: its replicas go to the other zones (%d), and the loss of one of those may lose more than one replica of a shard; start another node with --zone %s first to keep them apart (--undo takes this back)\n", addr, zone, len(zones), zone)
}

// drained waits until a node holds nothing that is needed, and prints each change.
func (t *target) drained(ctx context.Context, out io.Writer, addr string) error {
	said, trouble, since := "", error(nil), time.Now()
	for {
		var row *nodeRow
		c, err := t.look(ctx)
		if err == nil {
			row, err = c.nodeRow(addr)
		}
		switch {
		case err != nil:
			trouble = err
			if time.Since(since) > t.timeout {
				return fmt.Errorf("%s is being drained, and the cluster does not say how far that is: %w", addr, trouble)
			}
		case row.State == "removed":
			fmt.Fprintf(out, "%s was removed\n", addr)
			return nil
		case row.Left == nil:
			return fmt.Errorf("%s is not being drained any more: its state is %q", addr, row.State)
		default:
			since = time.Now()
			if text := row.Left.String(); text != said {
				said = text
				fmt.Fprintf(out, "%s %s\n", addr, text)
			}
			if row.Left.nothing() {
				fmt.Fprintf(out, "it can be removed: tailrace log remove %s\n", addr)
				return nil
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("interrupted; draining %s continues: %w", addr, ctx.Err())
		}
	}
}

func (c *cluster) nodeRow(addr string) (*nodeRow, error) {
	rows, err := c.nodeRows()
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].Addr == addr {
			return &rows[i], nil
		}
	}
	return nil, fmt.Errorf("no storage node at %s is known (tailrace log nodes)", addr)
}

func newRemove() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "remove HOST:PORT",
		Short: "Remove a storage node that was drained, for good",
		Long: `Remove a storage node that was drained, for good.

It is refused, with the reason, as long as others lack something that the node holds.
A removed node ends by itself, and its address is never used for a storage node of this
cluster again.`,
		Args: oneNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.changeNode(cmd.Context(), args[0], logpb.Node_REMOVED); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is removed\n", args[0])
			return nil
		},
	}
	t.flags(cmd)
	return cmd
}

// changeNode proposes a storage node's state.
func (t *target) changeNode(ctx context.Context, addr string, state logpb.Node_State) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	req := &logpb.ProposeRequest{What: &logpb.ProposeRequest_Node{Node: &logpb.Node{Addr: addr, State: state}}}
	reply := new(logpb.ProposeReply)
	_, err := t.askLeader(ctx, "sequencer/propose", req, reply, func() (*logpb.Leader, error) {
		switch {
		case reply.GetUnknown():
			return nil, errLeadershipLost
		case reply.GetLeader().GetMe():
			return reply.GetLeader(), errors.New("the leader has just been elected and does not have reports of all storage nodes yet")
		}
		return reply.GetLeader(), nil
	})
	return err
}

var errLeadershipLost = errors.New("the leadership was lost before the outcome was known")

// askLeader asks the sequencers until the leader has decided. Repeating the request must be
// harmless. answer interprets a reply: it returns the sequencer to ask next, or an error, or
// neither if the reply is the decision. repeated reports that an earlier request may have been
// decided too.
func (t *target) askLeader(ctx context.Context, method string, req, reply proto.Message, answer func() (*logpb.Leader, error)) (repeated bool, err error) {
	addrs, err := t.sequencers()
	if err != nil {
		return false, err
	}
	d, err := transport.NewDialer(t.transport())
	if err != nil {
		return false, err
	}
	defer d.Close()
	next, trouble := "", errors.New("no sequencer leads")
	for i := 0; ; i++ {
		addr := next
		if addr == "" {
			addr = addrs[i%len(addrs)]
		}
		next = ""
		proto.Reset(reply)
		err := d.Call(ctx, addr, method, req, reply)
		switch {
		case err != nil && sharedlog.KindOf(err) != sharedlog.KindOther:
			return repeated, err
		case err != nil:
			trouble, repeated = err, true
		default:
			leader, why := answer()
			if leader == nil && why == nil {
				return repeated, nil
			}
			next = leader.GetAddr()
			if why != nil {
				trouble, repeated = why, true
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return repeated, fmt.Errorf("not decided (%w): %w", ctx.Err(), trouble)
		}
	}
}
