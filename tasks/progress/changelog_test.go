package progress

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// taken passes records to the change log of a protocol and returns what counts, each time by the
// text of its section, and Low after each. A record is KIND [TASK/]INSTANCE COMMIT TEXT: a part, a whole
// record of changes, or a marker.
func taken(t *testing.T, protocol string, records ...string) (counted []string, low []sharedlog.LSN) {
	t.Helper()
	p, err := ByName(protocol)
	require.NoError(t, err)
	changes := p.NewChangeLog()
	for i, r := range records {
		f := strings.Fields(r)
		number := func(s string) (n uint64) {
			for _, c := range s {
				n = 10*n + uint64(c-'0')
			}
			return n
		}
		task, instance, several := strings.Cut(f[1], "/")
		if !several {
			task, instance = "0", f[1]
		}
		h := envelope.Header{Task: uint32(number(task)), Instance: number(instance), Commit: number(f[2]), Part: f[0] == "part"}
		var data []byte
		if f[0] == "marker" {
			m := envelope.Marker{Instance: h.Instance, Commit: h.Commit}
			data = m.Append(nil)
		} else {
			data = envelope.AppendSections(nil, envelope.Changes, h, []envelope.Section{{Items: 1, Data: []byte(f[3])}})
		}
		due, err := changes.Take(&sharedlog.Entry{LSN: sharedlog.LSN(i + 1), Record: sharedlog.Record{Data: data}})
		require.NoError(t, err)
		var all []string
		for _, e := range due {
			var s envelope.Sections
			_, err := s.Open(e.Data)
			require.NoError(t, err)
			sec, ok := s.Next()
			require.True(t, ok)
			all = append(all, string(sec.Data))
		}
		counted, low = append(counted, strings.Join(all, " ")), append(low, changes.Low())
	}
	return counted, low
}

// Changes of a transaction count at its commit record. What an instance left without one never
// counts, whatever number its successor's commit has.
func TestChangesCountWhenCommitted(t *testing.T) {
	counted, low := taken(t, "txn",
		"changes 1 1 a", "changes 1 1 b", "marker 1 1",
		"changes 1 2 lost", "marker 2 2", "changes 2 3 c", "marker 2 3",
		"changes 2 4 lost", "changes 3 4 d", "marker 3 4", "marker 3 4",
		"changes 3 5 lost", "marker 4 6")
	require.Equal(t, []string{"", "", "a b", "", "", "", "c", "", "", "d", "", "", ""}, counted)
	require.Equal(t, []sharedlog.LSN{1, 1, noLSN, 4, noLSN, 6, noLSN, 8, 9, noLSN, noLSN, 12, noLSN}, low)
}

// Parts of a commit's changes count with the record that shares the marker's group. Parts whose
// record never came count neither with another commit's record, nor with the record of another
// instance that has the same number.
func TestPartsOfChanges(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		counted, low := taken(t, protocol,
			"changes 1 1 a", "part 1 2 b", "part 1 2 c", "changes 1 2 d",
			"part 1 3 lost", "changes 2 4 e",
			"part 2 5 lost", "changes 3 5 f",
			"part 3 6 lost", "part 4 6 g", "changes 4 6 h")
		require.Equal(t, []string{"a", "", "", "b c d", "", "e", "", "f", "", "", "g h"}, counted, protocol)
		require.Equal(t, []sharedlog.LSN{noLSN, 2, 2, noLSN, 5, noLSN, 7, noLSN, 9, 10, noLSN}, low, protocol)
	}
}

// The change logs of a task that has received key groups have records of several tasks: each one's
// parts count with its own record.
func TestPartsOfSeveralTasks(t *testing.T) {
	for _, protocol := range []string{"fused", "marker"} {
		counted, low := taken(t, protocol,
			"part 0/1 2 a", "part 1/1 2 b", "changes 1/1 2 c", "changes 0/1 2 d",
			"part 0/1 3 lost", "part 1/1 3 e", "changes 0/2 3 f", "changes 1/1 3 g")
		require.Equal(t, []string{"", "", "b c", "a d", "", "", "f", "e g"}, counted, protocol)
		require.Equal(t, []sharedlog.LSN{1, 1, 1, noLSN, 5, 5, 6, noLSN}, low, protocol)
	}
}
