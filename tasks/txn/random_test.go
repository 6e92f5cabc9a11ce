package txn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// client is a living instance of the task and its knowledge: all clients together are the simple
// twin that the log is compared with.
type client struct {
	instance uint64
	begun    bool
	fenced   bool
	number   uint64          // of its transaction
	added    map[uint32]bool // partitions that were answered
	request  *txnpb.Request  // not answered yet; repeated until it is
	from     uint64
}

type decided struct {
	by    uint64
	parts map[uint32]bool
}

// Several instances of a task, each newer than the last, use whatever coordinator there is;
// coordinators die with any prefix of their appends in the log, and answers are lost. The test
// checks the log: transactions are decided once, in order, whole and by one instance, and nothing
// of an instance comes behind the answer to its successor's Init.
func TestTransactions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log, flight []sharedlog.Record
		begun := map[uint64]int{}     // instance → length of the log when its Init was answered
		known := map[uint64]decided{} // by number: a Commit that was answered
		clients := []*client{{instance: 1}}
		var m *Machine
		var last uint64
		asked := map[uint64]*client{}

		effects := func(es []Effect) {
			for _, e := range es {
				if e.To == 0 {
					require.Empty(t, flight, "two things are on their way")
					flight = e.Append
					continue
				}
				c := asked[e.To]
				delete(asked, e.To)
				if c == nil || c.from != e.To || rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
					continue // the answer is lost
				}
				r := c.request
				c.request = nil
				switch {
				case e.Reply.Outcome == Fenced:
					require.Less(t, c.instance, clients[len(clients)-1].instance)
					c.fenced = true
				case e.Reply.Outcome != OK:
					t.Fatalf("instance %d, request %d of number %d: %s", c.instance, r.Op, r.Number, e.Reply.Text)
				case r.Op == Init:
					c.begun = true
					begun[c.instance] = len(log)
					require.EqualValues(t, len(log)+1, e.Reply.Place)
					// As in a task, the newest marker says where to resume.
					c.number = 1
					for _, r := range log {
						if r.Tags[0] == "T/j/s/0" {
							var mk envelope.Marker
							require.NoError(t, mk.Parse(r.Data))
							c.number = mk.Commit + 1
						}
					}
				case r.Op == Add:
					for _, p := range r.Partitions {
						if p.Of == OfData {
							c.added[p.Stream] = true
						}
					}
				case r.Op == Commit:
					_, twice := known[r.Number]
					require.False(t, twice, "number %d was decided twice", r.Number)
					known[r.Number] = decided{c.instance, c.added}
					c.number++
					c.added = nil
				}
			}
		}
		ask := func(c *client) {
			if c.request == nil {
				r := &txnpb.Request{Instance: c.instance, Number: c.number}
				switch {
				case !c.begun:
					r.Op = Init
				case c.added == nil || rapid.IntRange(0, 2).Draw(t, "more") > 0:
					r.Op = Add
					if c.added == nil {
						c.added = map[uint32]bool{}
						r.Partitions = append(r.Partitions, &txnpb.Partition{Of: OfProgress, Outputs: []string{"out"}})
					}
					p := uint32(rapid.IntRange(1, 4).Draw(t, "partition"))
					r.Partitions = append(r.Partitions, &txnpb.Partition{Of: OfData, Stream: p, Name: fmt.Sprint("s", p), Groups: []uint32{p}})
				default:
					r.Op = Commit
					r.Marker = (&envelope.Marker{Instance: c.instance, Commit: c.number}).Append(nil)
				}
				c.request = r
			}
			last++
			c.from = last
			asked[last] = c
			effects(m.Request(last, c.request))
		}
		takeOver := func() {
			n := rapid.IntRange(0, len(flight)).Draw(t, "prefix")
			log = append(log, flight[:n]...)
			flight = nil
			clear(asked)
			var newest *txnpb.State
			for _, r := range log {
				if r.Tags[0] == task.Tag() {
					var err error
					newest, err = Parse(r.Data)
					require.NoError(t, err)
				}
			}
			var es []Effect
			m, es = NewMachine(task, newest, sharedlog.LSN(len(log)+1))
			effects(es)
		}
		takeOver()
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"ask", "ask", "ask", "appended", "appended", "take over", "task dies"}).Draw(t, "step") {
			case "ask":
				c := clients[rapid.IntRange(0, len(clients)-1).Draw(t, "client")]
				if !c.fenced {
					ask(c)
				}
			case "appended":
				if len(flight) > 0 {
					log = append(log, flight...)
					flight = nil
					effects(m.Appended(sharedlog.LSN(len(log) + 1)))
				}
			case "take over":
				takeOver()
			case "task dies": // or was believed to be dead: it may continue
				if rapid.IntRange(0, 2).Draw(t, "sure") == 0 {
					clients = append(clients, &client{instance: clients[len(clients)-1].instance + 1})
				}
			}
		}
		for len(flight) > 0 { // everything comes to rest
			log = append(log, flight...)
			flight = nil
			effects(m.Appended(sharedlog.LSN(len(log) + 1)))
		}

		// Check the log.
		newest := uint64(0)
		by := map[uint64]uint64{}
		committed := map[uint64]map[uint32]bool{}
		for at, r := range log {
			if r.Tags[0] == task.Tag() {
				continue
			}
			var mk envelope.Marker
			require.NoError(t, mk.Parse(r.Data))
			for i, when := range begun {
				require.False(t, mk.Instance < i && at >= when, "a record of instance %d at %d, behind the Init of %d at %d", mk.Instance, at, i, when)
			}
			if _, ok := by[mk.Commit]; !ok {
				by[mk.Commit], committed[mk.Commit] = mk.Instance, map[uint32]bool{}
			}
			require.Equal(t, by[mk.Commit], mk.Instance, "number %d is of two instances", mk.Commit)
			if mk.Part.Of == envelope.PartData {
				committed[mk.Commit][mk.Part.Stream] = true
				require.GreaterOrEqual(t, mk.Commit, newest)
			} else if r.Tags[0] == "T/j/s/0" {
				require.True(t, mk.Commit == newest || mk.Commit == newest+1, "marker %d behind %d", mk.Commit, newest)
				newest = mk.Commit
				for p := range known[mk.Commit].parts {
					require.True(t, committed[mk.Commit][p], "partition %d of number %d has no commit record before the marker", p, mk.Commit)
				}
			}
		}
		for n, d := range known {
			require.LessOrEqual(t, n, newest, "number %d was decided and is not there", n)
			require.Equal(t, d.by, by[n])
		}
	})
}
