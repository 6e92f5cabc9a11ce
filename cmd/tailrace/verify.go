package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

func newVerify() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every sealed shard from all of its replicas and compare them",
		Long: `Read every sealed shard from all of its replicas and compare them.

Bytes, LSNs and fates must be the same everywhere, except where a replica has deleted
what was trimmed. Where they differ it says which replicas are right: those that are a
majority. Exit code 1 if they are not, or if a replica that claims to hold all
of a shard cannot show it.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.look(cmd.Context())
			if err != nil {
				return err
			}
			return t.verify(cmd.Context(), c)
		},
	}
	t.flags(cmd)
	return cmd
}

func (t *target) verify(ctx context.Context, c *cluster) error {
	d, err := transport.NewDialer(t.transport())
	if err != nil {
		return err
	}
	defer d.Close()
	if c.leader == nil {
		return errors.New("the sequencers have no leader at the moment")
	}
	bad, looked := 0, 0
	for _, sh := range c.leader.GetShards() {
		length := sh.GetLength() - sh.GetLost()
		if !sh.GetSealed() || length == 0 {
			continue
		}
		looked++
		var replicas []*fetched
		for _, addr := range sh.GetAddrs() {
			if c.held(addr, sh.GetId()) == "*" {
				replicas = append(replicas, newFetched(ctx, d, addr, sh))
			}
		}
		verdict, ok := compareReplicas(replicas, length)
		if !ok {
			bad++
		}
		for _, r := range replicas {
			r.close()
		}
		fmt.Printf("shard %d\t%d records\t%s\n", sh.GetId(), length, verdict)
	}
	if looked == 0 {
		fmt.Println("no sealed shard holds a record: there is nothing to compare yet")
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d sealed shards are not as they should be", bad, looked)
	}
	return nil
}

// fetched is what a replica shows of a shard, row by row.
type fetched struct {
	addr  string
	next  func() ([]byte, error) // the next message; io.EOF behind the last
	close func()

	rest    []byte // of the message
	row     body.Fetched
	trimmed uint64 // records that were trimmed there
	err     error  // why there are no more rows
}

func newFetched(ctx context.Context, d transport.Dialer, addr string, sh *logpb.Shard) *fetched {
	ctx, cancel := context.WithCancel(ctx)
	f := &fetched{addr: addr, close: cancel}
	st, err := d.Open(ctx, addr, "storage/fetch")
	if err == nil {
		err = st.Hello(&logpb.FetchRequest{Shard: sh.GetId(), To: sh.GetLength() - sh.GetLost(), Marks: true})
	}
	if err == nil {
		err = st.CloseSend()
	}
	f.next = func() ([]byte, error) {
		if err != nil {
			return nil, err
		}
		var m transport.Raw
		err := st.Recv(&m)
		return m.Bytes, err
	}
	return f
}

// advance goes on to the row that covers a position, if it does not yet.
func (f *fetched) advance(at, length uint64) {
	for f.err == nil && f.row.To <= at {
		for len(f.rest) == 0 && f.err == nil {
			f.rest, f.err = f.next()
		}
		if f.err == nil {
			f.rest, f.err = f.row.Take(f.rest)
		}
		switch {
		case errors.Is(f.err, io.EOF):
			f.err = fmt.Errorf("it ends at position %d of %d; start it with this version, or see its log", at, length)
		case f.err != nil:
		case f.row.Kind == body.FetchedWriters:
			f.row.To = 0
		case f.row.From != at:
			f.err = fmt.Errorf("it goes on at position %d behind %d; start it with this version, or see its log", f.row.From, at)
		case f.row.Kind == body.FetchedTrimmed:
			f.trimmed += f.row.To - f.row.From
		}
	}
}

// compareReplicas reads what replicas show of a shard side by side, and says what it
// found; ok is false if they differ, or if one cannot show all of it.
func compareReplicas(replicas []*fetched, length uint64) (verdict string, ok bool) {
	if len(replicas) == 0 {
		return "no replica holds all of it", false
	}
	difference := ""
	for at := uint64(0); at < length && difference == ""; {
		end := length
		var shown []*fetched
		for _, r := range replicas {
			if r.advance(at, length); r.err != nil {
				continue
			}
			end = min(end, r.row.To)
			if r.row.Kind != body.FetchedTrimmed {
				shown = append(shown, r)
			}
		}
		if !same(shown, end) {
			difference = fmt.Sprintf("DIFFERENT at position %d", at)
			for _, r := range shown {
				difference += fmt.Sprintf("\t%s: LSN %d, %d records, %s, checksum %08x", r.addr, r.row.First, r.row.To-r.row.From, effect(&r.row), r.row.Wire.CRC)
			}
			difference += "\t" + right(shown)
		}
		at = end
	}
	var parts []string
	slices.SortStableFunc(replicas, func(a, b *fetched) int { return cmp.Compare(a.addr, b.addr) })
	whole := 0
	for _, r := range replicas {
		switch {
		case r.err != nil:
			parts = append(parts, fmt.Sprintf("%s: error: %v", r.addr, r.err))
		case r.trimmed > 0:
			parts = append(parts, fmt.Sprintf("%s (%d trimmed)", r.addr, r.trimmed))
			whole++
		default:
			parts = append(parts, r.addr)
			whole++
		}
	}
	switch {
	case difference != "":
		return difference, false
	case whole < len(replicas):
		return "DAMAGED\t" + strings.Join(parts, "\t"), false
	}
	return "equal\t" + strings.Join(parts, "\t"), true
}

// right says which of the replicas that show a group have what a majority has.
func right(shown []*fetched) string {
	for _, a := range shown {
		var like, others []string
		for _, b := range shown {
			if same([]*fetched{a, b}, a.row.To) {
				like = append(like, b.addr)
			} else {
				others = append(others, b.addr)
			}
		}
		if 2*len(like) > len(shown) {
			return fmt.Sprintf("RIGHT: %s (%d of %d)\tWRONG: %s, whose scrubber writes the segment anew", strings.Join(like, ", "), len(like), len(shown), strings.Join(others, ", "))
		}
	}
	return "no majority says which is right"
}

// same reports whether replicas show the same group, which ends at a position.
func same(shown []*fetched, end uint64) bool {
	for _, r := range shown {
		a, b := &shown[0].row, &r.row
		if b.To != end || a.Kind != b.Kind || a.From != b.From || a.First != b.First || a.Wire.CRC != b.Wire.CRC {
			return false
		}
	}
	return true
}

func effect(row *body.Fetched) string {
	if row.Kind == body.FetchedVoid {
		return "without effect"
	}
	return "with effect"
}
