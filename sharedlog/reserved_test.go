package sharedlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
)

// A job's tags are accepted only in groups that are conditional on one of the job's keys.
func TestReservedTags(t *testing.T) {
	log := mem.New(mem.Options{})
	defer log.Close()
	value := []byte("nonce")
	for _, key := range []string{"I/q5-1/count/0", "M/q5-1", "I/q5-10/count/0", "other"} {
		_, err := log.CompareAndSet(t.Context(), key, nil, value)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		tag, key string
		force    bool
		ok       bool
	}{
		{"X/q5-1/bids/0", "I/q5-1/count/0", false, true},
		{"K/q5-1", "M/q5-1", false, true},
		{"X/q5-1/bids/0", "", false, false},
		{"X/q5-1/bids/0", "other", false, false},
		{"X/q5-1/bids/0", "I/q5-10/count/0", false, false},
		{"X/q5-10/bids/0", "M/q5-1", false, false},
		{"K/q5-10", "M/q5-1", false, false},
		{"T/", "", false, false},
		{"X/q5-1/bids/0", "", true, true},
		{"K/q5-1", "I/q5-10/count/0", true, true},
		{"x/q5-1/bids/0", "", false, true},
		{"X", "", false, true},
		{"XY/z", "", false, true},
		{"/X/z", "", false, true},
	} {
		cond := sharedlog.Condition{}
		if c.key != "" {
			cond = sharedlog.Condition{Key: c.key, Value: value}
		}
		w := sharedlog.NewWriter(log, c.tag+" "+c.key, cond)
		w.Force = c.force
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"plain", sharedlog.Tag(c.tag)}}).Wait(t.Context())
		if c.ok {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorIs(t, err, sharedlog.ErrInvalid, "%+v", c)
		require.ErrorContains(t, err, "belongs to the job")
		require.ErrorContains(t, err, "--force")
	}
}

func BenchmarkValidate(b *testing.B) {
	g := sharedlog.Group{Writer: "w", Number: 1, If: sharedlog.Condition{Key: "I/q5-1/count/0", Value: []byte("nonce")}}
	for range 16 {
		g.Records = append(g.Records, sharedlog.Record{Tags: []sharedlog.Tag{"X/q5-1/bids/17", "C/q5-1/count/17"}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}
