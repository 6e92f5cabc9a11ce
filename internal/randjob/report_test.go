package randjob

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/randjob/model"
)

var varying = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{8,}|\d+`)

// same reports whether two failures look like the same fault's.
func same(a, b *Failure) bool {
	if a.Kind != b.Kind || a.Kind != Failed {
		return a.Kind == b.Kind
	}
	tail := func(f *Failure) string {
		s := varying.ReplaceAllString(f.Text, "")
		return s[max(0, len(s)-60):]
	}
	return tail(a) == tail(b)
}

// report shrinks a job that fails, for TAILRACE_SHRINK seconds (default 60), and prints it as
// a test. TAILRACE_KEEP is a directory to write it to as well.
func report(t *testing.T, j *model.Job, f *Failure) {
	t.Helper()
	until := time.Now().Add(time.Duration(number(t, "TAILRACE_SHRINK", 60)) * time.Second)
	tries := number(t, "TAILRACE_TRIES", 3)
	last := f
	small := Shrink(j, func(j *model.Job) bool {
		for try := range tries {
			if time.Now().After(until) {
				return false
			}
			if _, now := play(t, j, try); now != nil && same(f, now) {
				last = now
				return true
			}
		}
		return false
	})
	var b strings.Builder
	fmt.Fprintf(&b, "// Seed %d: %s.\n//\n", j.Seed, f.Kind)
	for _, s := range []string{small.String(), last.Text} {
		for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
			fmt.Fprintf(&b, "//\t%s\n", line)
		}
	}
	fmt.Fprintf(&b, "func TestSeed%d(t *testing.T) {\n\treplay(t, %s)\n}\n", j.Seed, small.Go())
	if dir := os.Getenv("TAILRACE_KEEP"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed%d.txt", j.Seed)), []byte(b.String()), 0o644))
	}
	t.Errorf("seed %d fails: %v\nas a smaller job, a test of this package:\n\n%s", j.Seed, f, b.String())
}
