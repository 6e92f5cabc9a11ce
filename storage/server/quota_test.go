package server

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/body"
	"tailrace.dev/tailrace/sharedlog/logpb"
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
		var w body.Wire
		w.Encode(&sharedlog.Group{Writer: writer, Number: number, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: make([]byte, size)}}}, number == 1)
		st.messages <- append(w.AppendPrefix(binary.LittleEndian.AppendUint64(nil, number)), w.Bytes...)
	}
	type answer struct {
		kind sharedlog.Kind
		text string
	}
	receive := func(st *lazy, want uint64) answer { // the answer to a number
		for {
			answers := map[uint64]answer{}
			for p := (body.Parser{B: <-st.receives}); len(p.B) > 0; {
				number, a := p.Uvarint(), answer{}
				if p.Uvarint() == 0 {
					a.kind = sharedlog.Kind(p.Byte())
					a.text = string(p.Bytes())
				}
				answers[number] = a
			}
			if a, ok := answers[want]; ok {
				return a
			}
		}
	}
	c.pause()
	greedy, modest := open("greedy@host:7", 1), open("modest", 2)
	send(greedy, "w", 1, 600)
	send(greedy, "w", 2, 600)
	a := receive(greedy, 2)
	require.Equal(t, sharedlog.KindQuota, a.kind, a.text)
	require.NotZero(t, c.members[0].node.QuotaRefused())
	for _, part := range []string{`client "greedy@host:7" has `, " bytes of records in flight to shard 1", `writer "w"`, "1000 that node " + c.members[0].addr, "--client-bytes", "raise the limit"} {
		require.Contains(t, a.text, part)
	}
	send(greedy, "w", 1, 600) // repeated: it counts once
	send(modest, "m", 1, 600)
	send(modest, "m", 2, 200)
	c.resume()
	require.Zero(t, receive(greedy, 1))
	require.Zero(t, receive(modest, 2))
	send(greedy, "w", 2, 600)
	require.Zero(t, receive(greedy, 2), "it is taken when there is room")
	send(greedy, "w", 3, 5000)
	require.Zero(t, receive(greedy, 3), "one group is always let through")
	require.EqualValues(t, 6, c.tail())
}
