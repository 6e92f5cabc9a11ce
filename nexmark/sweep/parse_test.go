package sweep

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/nexmark/sweep/specs"
)

// five has five protocols, and a few flags of bench.
var five = Known{
	Protocols: []string{"fused", "marker", "unsafe", "txn", "aligned"},
	Setting: func(name string) (exists, free bool) {
		return contains(strings.Fields("flush rate q7-window snapshot-interval key-groups keys partitions standbys surge auto rescale rescale-mode rescale-repartition rescale-late balance dispatch sensors key-ids key-weights drift window partition-by exchange partitioner grain late lateness key-delay watermark-delay disorder-share skew aggregate by-producer link-rate item-cost lead-bytes lag lag-from"), name), name != "rate"
	},
}

func parsed(t *testing.T, text string) *Spec {
	t.Helper()
	s, err := Parse("spec.yaml", []byte(text), five)
	require.NoError(t, err)
	return s
}

// Parse reports all errors of a spec at once, each with its line.
func TestBadSpecs(t *testing.T) {
	text, err := os.ReadFile("testdata/bad.yaml")
	require.NoError(t, err)
	_, err = Parse("bad.yaml", text, Known{Protocols: []string{"fused", "marker", "unsafe"}, Setting: five.Setting})
	require.IsType(t, Errors{}, err)
	others := ""
	for _, text := range []string{"", "series: []", "series: 3", "[1, 2]", "series:\n  - kind: [", "series:\n  - {kind: throughput, queries: {a: b}, check: 1}\ncheck: off"} {
		_, err := Parse("other.yaml", []byte(text), five)
		require.Error(t, err, text)
		others += err.Error() + "\n"
	}
	script.Golden(t, "testdata/bad.txt", err.Error()+"\n\n"+others)
}

// Defaults apply to all series, and each may override them; a protocol with a ? is used only where
// it exists.
func TestDefaults(t *testing.T) {
	text := `
defaults: &d {trials: 3, settings: {flush: 10ms}, rates: [1_000, 2000]}
series:
  - {kind: latency-over-rate, queries: 1-3, protocols: [fused, "txn?", "magic?"]}
  - {kind: latency-over-rate, queries: [5, 7-8], trials: 1, settings: {key-groups: 8}}
check: off
`
	s := parsed(t, text)
	require.Zero(t, s.CheckEvents)
	require.Equal(t, []int{1, 2, 3}, s.Series[0].Queries)
	require.Equal(t, []string{"fused", "txn"}, s.Series[0].Protocols)
	require.Equal(t, 3, s.Series[0].Trials)
	require.Equal(t, map[string]string{"flush": "10ms"}, s.Series[0].Settings)
	require.Equal(t, []int{5, 7, 8}, s.Series[1].Queries)
	require.Equal(t, five.Protocols, s.Series[1].Protocols)
	require.Equal(t, 1, s.Series[1].Trials)
	require.Equal(t, map[string]string{"flush": "10ms", "key-groups": "8"}, s.Series[1].Settings)
	require.Equal(t, []int64{1000, 2000}, s.Series[1].Rates)
}

// Every built-in spec can be read with the first three protocols alone, and uses further ones where
// they exist.
func TestBuiltins(t *testing.T) {
	names := specs.Names()
	for _, figure := range []string{"figure7", "figure8", "figure9", "table2", "table4"} {
		require.Contains(t, names, "quick-"+figure)
		require.Contains(t, names, "paper-"+figure)
	}
	for n := range 9 {
		require.Contains(t, names, fmt.Sprint("meces-f", n+1))
	}
	for _, name := range []string{"trilink-figure15", "trilink-figure16", "trilink-figure17", "trilink-table4", "trilink-table9", "quick-trilink", "trilink-figure6", "trilink-figure14", "trilink-table10", "trilink-latency", "trilink-overhead", "trilink-grain", "quick-trilink-clocks"} {
		require.Contains(t, names, name)
	}
	require.Contains(t, names, "smoke")
	for _, name := range names {
		text, ok := specs.Text(name)
		require.True(t, ok)
		var steps [2]int
		for i, n := range []int{3, 5} {
			s, err := Parse(name, text, Known{Protocols: five.Protocols[:n], Setting: five.Setting})
			require.NoError(t, err)
			require.Equal(t, name, s.Name)
			steps[i] = len(NewPlan(s, false).Steps())
		}
		if !strings.HasSuffix(name, "table2") && name != "quick-table4" && !strings.Contains(name, "meces") && !strings.Contains(name, "trilink") {
			require.Greater(t, steps[1], steps[0], name)
		}
	}
	_, ok := specs.Text("slow")
	require.False(t, ok)
}
