package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/sweep/overlay"
)

const clocks1 = `
check: {events: 200}
defaults: {kind: over, over: grain, workloads: kw, protocols: fused, commit-intervals: 100ms, rates: max, emit: final, values: [throughput]}
series:
  - settings: {grain: [task, key], watermark-delay: 0s}
  - {over: late, settings: {late: [commit, each], grain: task, watermark-delay: 0s}}
  - settings: {grain: [task, key], aggregate: list}
  - {over: late, settings: {late: [commit, each], grain: task, aggregate: list}}
  - settings: {grain: [task, key], disorder-share: 0}
  - {rates: 1000, values: [visible-p50], settings: {grain: [task, key]}}
`

// The claims about clocks compare cases that differ in nothing else, of one series or of two, and the peer's
// results of the same share of late items.
func TestGrainClaims(t *testing.T) {
	m := &machine{}
	r := runner(t, t.TempDir(), clocks1, m)
	r.Env.Shared = func(name string) bool { return name == "disorder-share" }
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	rates := map[string]float64{
		"1 task": 20e6, "1 key": 19.9e6, "2 commit": 20e6, "2 each": 15e6, "3 task": 10e6, "3 key": 14e6, "4 commit": 10e6, "4 each": 3e6, "5 task": 20e6, "5 key": 19e6,
	}
	measured := func() {
		for _, row := range rows {
			require.Empty(t, row.Failed)
			if row.Case.Check > 0 {
				continue
			}
			at := string(rune('0'+row.Case.Series)) + " " + row.Case.Settings["grain"]
			if row.Case.Over == "late" {
				at = string(rune('0'+row.Case.Series)) + " " + row.Case.Settings["late"]
			}
			if row.Case.Rate == 0 {
				require.Contains(t, rates, at)
				row.Bench.Achieved = rates[at]
			} else {
				row.Bench.Visible.Count, row.Bench.Visible.P50 = 100, 4000
				if row.Case.Settings["grain"] == "key" {
					row.Bench.Visible.P50 = 40
				}
			}
		}
	}
	measured()
	var peer overlay.Results
	require.NoError(t, peer.Add("kw.jsonl", []byte(`{"bench":"kw","disorder":50,"bound_ms":"0","in_per_s":8400000,"late":0.5,"outputs":7}
{"bench":"kw","mode":"perkey","disorder":50,"bound_ms":"0","in_per_s":11900000}
{"bench":"kw","mode":"list","disorder":50,"bound_ms":"4000","in_per_s":5000000}
`)))
	require.Equal(t, "Flink", peer.Name)
	require.Equal(t, overlay.Clocks{Disorder: 50, Rate: 8.4e6}, peer.Clocks[0])
	claims := func() map[string]Claim {
		all := map[string]Claim{}
		for _, c := range grainClaims(cells(rows), peer) {
			all[c.ID] = c
		}
		return all
	}
	all := claims()
	require.Len(t, all, 6)
	for id, number := range map[string]string{
		"K1": "0.99×", "K2": "1.33×", "K3": "4.67×", "K4": "0.95×", "K5": "40 and 4k ms", "K6": "2.37×",
	} {
		verdict := "holds"
		if id == "K3" {
			verdict = "does not hold"
		}
		require.Equal(t, verdict, all[id].Verdict, id)
		require.Contains(t, all[id].Numbers[0], number, id)
	}
	require.Len(t, all["K6"].Numbers, 3)
	require.Contains(t, all["K6"].Numbers[1], "written by hand", "the peer's own clock of a key is shown, not judged")

	rates["1 key"], rates["5 key"] = 12e6, 18.9e6
	measured()
	all = claims()
	for _, id := range []string{"K1", "K2", "K4", "K6"} {
		require.Equal(t, "does not hold", all[id].Verdict, id)
	}
	peer = overlay.Results{}
	require.NotContains(t, claims(), "K6")
	for _, row := range rows {
		row.Case.Settings = nil
	}
	require.Empty(t, grainClaims(cells(rows), peer))
}
