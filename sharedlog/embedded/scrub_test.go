package embedded_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs/vfstest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// said collects the messages of a log.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) contains(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}

// A closed segment is damaged where Open does not look: the scrubber logs it, with file and offset,
// although no reader reads it, and the log continues.
func TestScrubberTellsOfDamage(t *testing.T) {
	c := newClosedLog(t)
	path := c.files(t)[1]
	vfstest.Write(t, c.disk, path, flipped(vfstest.Read(t, c.disk, path), 1000))
	var s said
	o := smallSegments
	o.FS, o.Logger, o.ScrubRate = c.disk, slog.New(slog.NewTextHandler(&s, nil)), 1<<30
	l, err := embedded.Open("log", o)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.contains("a segment is damaged") && s.contains(path+", offset ") }, time.Minute, time.Millisecond)
	_, err = sharedlog.NewWriter(l, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}}).Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
