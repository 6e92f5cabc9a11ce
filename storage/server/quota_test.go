package server

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// A client with too many bytes in flight gets an error that names the limit, the client and the
// sizes. The group is certainly not in the log, so the same number is accepted later. Other
// clients, and repeated groups, are not affected.
func TestQuotaOfBytesInFlight(t *testing.T) {
	c := newCluster(t, 2, func(o *Options) { o.ClientBytes = 1000 })
	id := c.open(0, 1)
	n := c.members[0].node
	open := func(name string, client uint64) *lazy {
		st := newLazy(t, &logpb.AppendHello{Shard: id, Client: name, Id: client, Epoch: 1})
		ended := make(chan error, 1)
		go func() { ended <- n.serveAppend(st) }()
		t.Cleanup(func() {
			close(st.messages)
			require.NoError(t, <-ended)
		})
		return st
	}
	send := func(st *lazy, writer string, number uint64, size int) {
		var w wire.Body
		w.Encode(&sharedlog.Group{Writer: writer, Number: number, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: make([]byte, size)}}}, number == 1)
		st.messages <- submission(number, &w)
	}
	receive := func(st *lazy, want uint64) error { // the answer to a number
		for {
			answers := answersIn(t, <-st.receives)
			if i := slices.IndexFunc(answers, func(a wire.Answer) bool { return a.Sequence == want }); i >= 0 {
				return answers[i].Err
			}
		}
	}
	c.pause()
	greedy, modest := open("greedy@host:7", 1), open("modest", 2)
	send(greedy, "w", 1, 600)
	send(greedy, "w", 2, 600)
	err := receive(greedy, 2)
	require.ErrorIs(t, err, sharedlog.ErrQuota)
	require.NotZero(t, c.members[0].node.QuotaRefused())
	for _, part := range []string{`client "greedy@host:7" has `, " bytes of records in flight to shard 1", `writer "w"`, "1000 that node " + c.members[0].addr, "--client-bytes", "raise the limit"} {
		require.ErrorContains(t, err, part)
	}
	send(greedy, "w", 1, 600) // repeated: it counts once
	send(modest, "m", 1, 600)
	send(modest, "m", 2, 200)
	c.resume()
	require.NoError(t, receive(greedy, 1))
	require.NoError(t, receive(modest, 2))
	send(greedy, "w", 2, 600)
	require.NoError(t, receive(greedy, 2), "it is taken when there is room")
	send(greedy, "w", 3, 5000)
	require.NoError(t, receive(greedy, 3), "one group is always let through")
	require.EqualValues(t, 6, c.tail())
}
