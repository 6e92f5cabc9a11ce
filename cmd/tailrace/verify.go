package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

func newVerify() *cobra.Command {
	var t target
	var s shown
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every sealed shard from all of its replicas and compare them",
		Long: `Read every sealed shard from all of its replicas and compare them.

Bytes, LSNs and outcomes must be the same everywhere, except where a replica has deleted
what was trimmed. Where they differ it says which replicas are right: those that are a
majority. A replica that is still being copied is named, and not compared.

Exit code 1 if replicas differ, if a replica that claims to hold all of a shard cannot
show it, if no replica holds all of a shard, or if a node that has replicas does not
answer: what it holds was not verified. Each such node is named.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.look(cmd.Context())
			if err != nil {
				return err
			}
			if c.leader == nil {
				return errors.New("the sequencers have no leader at the moment: a majority of them must run")
			}
			d, err := transport.NewDialer(t.transport())
			if err != nil {
				return err
			}
			defer d.Close()
			v := &verification{Shards: []verifyRow{}, Unverified: []unverified{}}
			for _, sh := range c.leader.GetShards() {
				if sh.GetSealed() && sh.GetLength() > sh.GetLost() {
					v.add(verifyShard(cmd.Context(), d, c, sh, t.timeout))
					if !s.json {
						fmt.Println(v.Shards[len(v.Shards)-1].String())
					}
				}
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			err = s.show(v, func(w io.Writer) {
				if len(v.Shards) == 0 {
					fmt.Fprintln(w, "no sealed shard holds a record: there is nothing to compare yet")
				}
			})
			return errors.Join(err, v.err())
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

// verification is the result for all shards, as JSON.
type verification struct {
	Shards []verifyRow `json:"shards"`
	// Unverified are the nodes that did not answer, by address.
	Unverified []unverified `json:"unverified_nodes"`
}

// verifyRow is the result for one shard.
type verifyRow struct {
	Shard    uint32   `json:"shard"`
	Records  uint64   `json:"records"`
	Verdict  string   `json:"verdict"`  // equal, DAMAGED, …
	Replicas []string `json:"replicas"` // those that were compared, and what is wrong with them
	// Unverified are the nodes of replicas that did not answer. Incomplete are those whose replicas
	// lack records and were therefore not compared.
	Unverified []string `json:"unverified"`
	Incomplete []string `json:"incomplete"`
	OK         bool     `json:"ok"` // of those that were compared
}

func (r *verifyRow) String() string {
	parts := append([]string{fmt.Sprintf("shard %d", r.Shard), fmt.Sprintf("%d records", r.Records), r.Verdict}, r.Replicas...)
	for _, addr := range r.Unverified {
		parts = append(parts, addr+": NOT VERIFIED, no answer")
	}
	for _, addr := range r.Incomplete {
		parts = append(parts, addr+": not compared, it does not hold all of it yet")
	}
	return strings.Join(parts, "\t")
}

// unverified is a node that did not answer, with the shards of which it has replicas.
type unverified struct {
	Addr   string   `json:"address"`
	Shards []uint32 `json:"shards"`
}

func (v *verification) add(row verifyRow) {
	v.Shards = append(v.Shards, row)
	for _, addr := range row.Unverified {
		i, ok := slices.BinarySearchFunc(v.Unverified, addr, func(u unverified, addr string) int { return cmp.Compare(u.Addr, addr) })
		if !ok {
			v.Unverified = slices.Insert(v.Unverified, i, unverified{Addr: addr})
		}
		v.Unverified[i].Shards = append(v.Unverified[i].Shards, row.Shard)
	}
}

// err returns an error if an operator has to act.
func (v *verification) err() error {
	var errs []error
	bad := 0
	for i := range v.Shards {
		if !v.Shards[i].OK {
			bad++
		}
	}
	if bad > 0 {
		errs = append(errs, fmt.Errorf("%d of %d sealed shards are not as they should be", bad, len(v.Shards)))
	}
	for _, u := range v.Unverified {
		errs = append(errs, fmt.Errorf("storage node %s does not answer: its replicas were not verified (shards: %s); start it and verify again, or, if it is gone for good, drain and remove it (tailrace log drain %s)", u.Addr, join(u.Shards), u.Addr))
	}
	return errors.Join(errs...)
}

// verifyShard compares the records that the replicas of a sealed shard return. A node that sends
// nothing for longer than patience counts as not answering.
func verifyShard(ctx context.Context, d transport.Dialer, c *cluster, sh *logpb.Shard, patience time.Duration) verifyRow {
	row := verifyRow{Shard: sh.GetId(), Records: sh.GetLength() - sh.GetLost(), Unverified: []string{}, Incomplete: []string{}}
	var replicas []*fetched
	for _, addr := range sh.GetAddrs() {
		switch {
		case c.nodes[addr] == nil:
			row.Unverified = append(row.Unverified, addr)
		case c.held(addr, sh.GetId()) != "*":
			row.Incomplete = append(row.Incomplete, addr)
		default:
			f := newFetched(ctx, d, addr, sh, patience)
			defer f.close()
			replicas = append(replicas, f)
		}
	}
	var verdict string
	verdict, row.OK = compareReplicas(replicas, row.Records)
	parts := strings.Split(verdict, "\t")
	row.Verdict, row.Replicas = parts[0], parts[1:]
	for _, r := range replicas {
		if r.silent() {
			row.Unverified = append(row.Unverified, r.addr)
		}
	}
	return row
}

// fetched is a stream of rows from a replica of a shard.
type fetched struct {
	addr  string
	next  func() ([]byte, error) // the next message; io.EOF after the last
	close func()

	rest    []byte // of the message
	row     wire.Fetched
	trimmed uint64 // records that the replica has trimmed
	err     error  // why there are no more rows
}

var errSilent = errors.New("no answer")

func newFetched(ctx context.Context, d transport.Dialer, addr string, sh *logpb.Shard, patience time.Duration) *fetched {
	ctx, cancel := context.WithCancel(ctx)
	f := &fetched{addr: addr, close: cancel}
	watch := time.AfterFunc(patience, cancel)
	st, err := d.Open(ctx, addr, "storage/fetch")
	if err == nil {
		err = st.Hello(&logpb.FetchRequest{Shard: sh.GetId(), To: sh.GetLength() - sh.GetLost(), Marks: true})
	}
	if err == nil {
		err = st.CloseSend()
	}
	noAnswer := func() {
		if !watch.Stop() || errors.Is(err, transport.ErrUnavailable) {
			err = errSilent
		}
	}
	noAnswer()
	f.next = func() ([]byte, error) {
		if err != nil {
			return nil, err
		}
		var m transport.Raw
		watch.Reset(patience)
		err = st.Recv(&m)
		noAnswer()
		return m.Bytes, err
	}
	return f
}

// silent reports whether the node stopped answering.
func (f *fetched) silent() bool { return errors.Is(f.err, errSilent) }

// advance moves to the row that covers a position, unless the present row does.
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
		case f.row.Kind == wire.FetchedWriters:
			f.row.To = 0
		case f.row.From != at:
			f.err = fmt.Errorf("it continues at position %d behind %d; start it with this version, or see its log", f.row.From, at)
		case f.row.Kind == wire.FetchedTrimmed:
			f.trimmed += f.row.To - f.row.From
		}
	}
}

// compareReplicas reads replicas of a shard side by side and returns the result; ok is false if
// they differ, or if one cannot return all records. A replica whose node stopped answering is
// ignored, unless what it has sent differs.
func compareReplicas(replicas []*fetched, length uint64) (verdict string, ok bool) {
	if len(replicas) == 0 {
		return "no node that answers holds all of it", false
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
			if r.row.Kind != wire.FetchedTrimmed {
				shown = append(shown, r)
			}
		}
		if !same(shown, end) {
			difference = fmt.Sprintf("DIFFERENT at position %d", at)
			for _, r := range shown {
				difference += fmt.Sprintf("\t%s: LSN %d, %d records, %s, checksum %08x", r.addr, r.row.First, r.row.To-r.row.From, effect(&r.row), r.row.Body.CRC)
			}
			difference += "\t" + right(shown)
		}
		at = end
	}
	var parts []string
	replicas = slices.DeleteFunc(slices.Clone(replicas), (*fetched).silent)
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
	case len(replicas) == 0:
		return "no replica that holds all of it answers", false
	case whole < len(replicas):
		return "DAMAGED\t" + strings.Join(parts, "\t"), false
	}
	return "equal\t" + strings.Join(parts, "\t"), true
}

// right names the replicas, of those that have a group, that agree with a majority.
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

// same reports whether replicas have the same group, which ends at a position.
func same(shown []*fetched, end uint64) bool {
	for _, r := range shown {
		a, b := &shown[0].row, &r.row
		if b.To != end || a.Kind != b.Kind || a.From != b.From || a.First != b.First || a.Body.CRC != b.Body.CRC {
			return false
		}
	}
	return true
}

func effect(row *wire.Fetched) string {
	if row.Kind == wire.FetchedVoid {
		return "without effect"
	}
	return "with effect"
}
