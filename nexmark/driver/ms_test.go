package driver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// A time that was not measured is null in JSON and "-" in text, not 0, and survives a round trip.
func TestUnseenTimes(t *testing.T) {
	for _, c := range []struct {
		ms         MS
		json, text string
	}{{0, "0", "0.0"}, {1.25, "1.25", "1.2"}, {Unseen(), "null", "-"}} {
		b, err := json.Marshal(c.ms)
		require.NoError(t, err)
		require.Equal(t, c.json, string(b))
		require.Equal(t, c.text, c.ms.String())
		back := MS(7)
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, c.ms.String(), back.String())
	}
	b, err := json.Marshal(newLatency().quantiles())
	require.NoError(t, err)
	require.JSONEq(t, `{"p50_ms":null,"p90_ms":null,"p99_ms":null,"p99_9_ms":null,"max_ms":null,"count":0}`, string(b))
}

// A task that has restored its state but committed no result has no time of a first result.
func TestRecoveryWithoutAResult(t *testing.T) {
	var r Recovery
	r.Took(2_000_000, tasks.Status{Stage: "join", FencedMS: 1, LoadedMS: 2, RestoredMS: 3})
	b, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"stage":"join","task":0,"detect_ms":2,"fence_ms":3,"snapshot_ms":4,"snapshot_entries":0,"replay_ms":5,
		"changelog_entries":0,"first_result_ms":null,"caught_up_ms":null,"state_keys":0}`, string(b))
}
