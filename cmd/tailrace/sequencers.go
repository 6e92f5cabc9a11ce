package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

func newSequencers() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "sequencers",
		Short: "List the sequencers, add one, remove one",
		Long: `List the sequencers, add one, remove one.

A sequencer that is lost for good, with its data, is replaced by another one with a
new number: start that with --join, add it here, wait until it votes (add does),
and remove the lost one. One change at a time; appends continue meanwhile. Storage
nodes and clients that run learn of it by themselves.`,
		Example: `  tailrace sequencer --id 4 --join 10.0.0.1:7000,10.0.0.3:7000 --listen 10.0.0.9:7000 --data /var/tailrace --insecure
  tailrace log sequencers add --id 4 --addr 10.0.0.9:7000 --log 10.0.0.1:7000,10.0.0.3:7000
  tailrace log sequencers remove --id 2 --log 10.0.0.1:7000,10.0.0.3:7000`,
	}, newSequencersList(), newSequencersAdd(), newSequencersRemove())
}

// sequencerRow is a member as the leader sees it.
type sequencerRow struct {
	ID       uint64 `json:"id"`
	Addr     string `json:"address"`
	State    string `json:"state"`
	Leads    bool   `json:"leads"`
	SilentMs int64  `json:"heard_ms"` // since its last report; -1: none. Scripts know the name
	Behind   uint64 `json:"behind"`
	Level    uint32 `json:"level"`
	Store    string `json:"store"`
}

func newSequencersList() *cobra.Command {
	var t target
	var s shown
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the sequencers: which vote, which leads, which are behind",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := t.sequencerRows(cmd.Context())
			if err != nil {
				return err
			}
			return s.show(rows, func(w io.Writer) {
				tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				defer tab.Flush()
				fmt.Fprintln(tab, "SEQUENCER\tADDRESS\tSTATE\tHEARD\tENTRIES BEHIND\tLEVEL")
				for _, r := range rows {
					state, age := r.State, fmt.Sprintf("%d ms ago", r.SilentMs)
					switch {
					case r.Leads:
						state, age = "leads", "-"
					case r.SilentMs < 0:
						age = "never"
					}
					fmt.Fprintf(tab, "%d\t%s\t%s\t%s\t%d\t%d\n", r.ID, r.Addr, state, age, r.Behind, max(r.Level, 1))
				}
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

func (t *target) sequencerRows(ctx context.Context) ([]sequencerRow, error) {
	c, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	if c.leader == nil {
		return nil, errors.New("the sequencers have no leader at the moment: a majority of them must run")
	}
	var rows []sequencerRow
	for _, m := range c.leader.GetMembers() {
		q := m.GetMember()
		rows = append(rows, sequencerRow{
			ID: q.GetId(), Addr: q.GetAddr(), State: stateOf(q), Leads: q.GetId() == c.leader.GetId(),
			SilentMs: m.GetSilentMs(), Behind: m.GetBehind(), Level: m.GetLevel(), Store: fmt.Sprintf("%016x", q.GetStoreId()),
		})
	}
	return rows, nil
}

func stateOf(q *logpb.Sequencer) string {
	switch q.GetState() {
	case logpb.Sequencer_LEARNER:
		return "learns"
	case logpb.Sequencer_REMOVED:
		return "removed"
	}
	return "votes"
}

func newSequencersAdd() *cobra.Command {
	var t target
	var s shown
	var id uint64
	var addr string
	var wait bool
	cmd := &cobra.Command{
		Use:   "add --id N --addr HOST:PORT",
		Short: "Add a sequencer that was started with --join, and wait until it votes",
		Long: `Add a sequencer that was started with --join, and wait until it votes.

It first receives what there is, counting for no majority, and votes as soon as it
has caught up. Its number must never have been used in this cluster.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id == 0 || addr == "" {
				return usagef("give --id and --addr, those with which the new sequencer was started")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
			defer cancel()
			q, err := t.changeMembers(ctx, &logpb.MembersRequest{What: &logpb.MembersRequest_Add{Add: &logpb.AddSequencer{Id: id, Addr: addr}}})
			if err != nil {
				return err
			}
			for wait && q.GetState() != logpb.Sequencer_VOTER {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return fmt.Errorf("sequencer %d is added and does not vote yet; see tailrace log sequencers list", id)
				}
				c, err := t.look(ctx)
				if err != nil {
					continue // until the timeout
				}
				for _, m := range c.leader.GetMembers() {
					if m.GetMember().GetId() == id {
						q = m.GetMember()
					}
				}
			}
			return t.tell(&s, q)
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	f := cmd.Flags()
	f.Lookup("timeout").DefValue = "1m0s"
	t.timeout = time.Minute
	f.Uint64Var(&id, "id", 0, "the new sequencer's number")
	f.StringVar(&addr, "addr", "", "the address at which others reach it")
	f.BoolVar(&wait, "wait", true, "wait until it votes")
	return cmd
}

func newSequencersRemove() *cobra.Command {
	var t target
	var s shown
	var id uint64
	cmd := &cobra.Command{
		Use:   "remove --id N",
		Short: "Remove a sequencer, for good",
		Long: `Remove a sequencer, for good.

It may run or not; if it leads, it hands the leadership over first. It is refused
when those that are left and answer would be no majority. A removed sequencer ends
by itself, and its number is never used again; its address may be.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id == 0 {
				return usagef("--id: which one?")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
			defer cancel()
			q, err := t.changeMembers(ctx, &logpb.MembersRequest{What: &logpb.MembersRequest_Remove{Remove: id}})
			if err != nil {
				return err
			}
			return t.tell(&s, q)
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	cmd.Flags().Uint64Var(&id, "id", 0, "the sequencer's number")
	return cmd
}

func (t *target) tell(s *shown, q *logpb.Sequencer) error {
	row := sequencerRow{ID: q.GetId(), Addr: q.GetAddr(), State: stateOf(q), Store: fmt.Sprintf("%016x", q.GetStoreId())}
	return s.show(row, func(w io.Writer) {
		fmt.Fprintf(w, "sequencer %d at %s: %s\n", row.ID, row.Addr, map[string]string{"votes": "votes", "learns": "is added, and votes when it has caught up", "removed": "is removed"}[row.State])
	})
}

// changeMembers asks the sequencers for a change until the leader has decided. Repeating the
// request is harmless: if the change was made already, the reply is the present membership.
func (t *target) changeMembers(ctx context.Context, req *logpb.MembersRequest) (*logpb.Sequencer, error) {
	reply := new(logpb.MembersReply)
	_, err := t.askLeader(ctx, "sequencer/members", req, reply, func() (*logpb.Leader, error) {
		switch {
		case reply.GetBusy():
			return nil, errors.New("another change of the sequencers is under way")
		case reply.GetUnknown():
			return nil, errLeadershipLost
		}
		return reply.GetLeader(), nil
	})
	return reply.GetMember(), err
}
