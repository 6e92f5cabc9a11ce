package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

// What another process has sampled is what it says, also of keys that are no text.
func TestTold(t *testing.T) {
	at := time.Unix(0, 0)
	s := New(func() time.Time { return at }, 4)
	s.Output("keys", 6)
	of := s.Sampler(0, 4)
	for i, key := range []string{"\xff\x00\xfe", "text", "text"} {
		of.Add(exec.HashKey([]byte(key))+uint64(i&1), []byte(key))
	}
	b, err := json.Marshal(of)
	require.NoError(t, err)
	var told Sampler
	require.NoError(t, json.Unmarshal(b, &told))
	at = at.Add(time.Hour) // what was told does not fade again
	got := told.Read()
	at = at.Add(-time.Hour)
	require.Equal(t, of.Read(), got)
	require.Len(t, got.Parts, 4*subs)
	require.Error(t, json.Unmarshal([]byte("[]"), &told))
}
