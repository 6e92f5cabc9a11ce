package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

func newUpgrade() *cobra.Command {
	var t target
	var s shown
	var req logpb.LevelRequest
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Raise the cluster's feature level, once every process runs the new program",
		Long: `Raise the cluster's feature level, once every process runs the new program.

Programs of two neighbouring feature levels run together, so processes are replaced
one by one, in any order, while the cluster works. Until the level is raised the old
program can be started again on the same data. Then the new features are used, and
older programs are refused. It is refused, and nothing is changed, while a process
supports a lower level, or is silent: each of them is named. Processes that are lost
for good do not stand in the way with --even-if-silent.`,
		Example: `  tailrace log upgrade --check --log 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000
  tailrace log upgrade --log 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
			defer cancel()
			m, err := t.raise(ctx, &req)
			if err != nil {
				return err
			}
			if len(m.GetTooOld()) > 0 {
				return fmt.Errorf("the cluster stays at feature level %d. These do not support level %d; start each with the new program (--even-if-silent ignores those that are lost for good):\n  %s",
					m.GetLevel(), m.GetWanted(), strings.Join(m.GetTooOld(), "\n  "))
			}
			return s.show(map[string]uint32{"level": m.GetLevel(), "wanted": m.GetWanted()}, func(w io.Writer) {
				if m.GetLevel() < m.GetWanted() {
					fmt.Fprintf(w, "feature level %d; every process supports level %d, so it can be raised\n", m.GetLevel(), m.GetWanted())
					return
				}
				fmt.Fprintf(w, "feature level %d\n", m.GetLevel())
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&req.Check, "check", false, "only say whether it can be raised")
	f.BoolVar(&req.Silent, "even-if-silent", false, "even if some processes do not answer: those that come back with an old program are then refused")
	f.Uint32Var(&req.Level, "level", 0, "the new level (default: the highest that the leader's program supports)")
	return cmd
}

// raise asks the sequencers' leader to raise the level, or only to check that it could.
func (t *target) raise(ctx context.Context, req *logpb.LevelRequest) (*logpb.LevelReply, error) {
	reply := new(logpb.LevelReply)
	_, err := t.askLeader(ctx, "sequencer/level", req, reply, func() (*logpb.Leader, error) {
		if reply.GetUnknown() {
			return nil, errLeadershipLost
		}
		return reply.GetLeader(), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w (if it runs, is it a program that knows no levels? Start it with the new one)", err)
	}
	return reply, err
}
