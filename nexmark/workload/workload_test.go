package workload

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
)

// small has options with which 20 s of events give some rows.
var small = map[string]map[string]string{
	"count":  {"keys": "700"},
	"kw":     {"sensors": "9", "key-weights": "zipf:0.8", "drift": "20", "partition-by": "key"},
	"ysb":    {"sensors": "7", "window": "3s", "key-weights": "zipf:1.1"},
	"lvd":    {"sensors": "60", "skew": "500ms", "window": "400ms", "key-ids": "prefix"},
	"bridge": {"sensors": "20", "partition-by": "key"},
	"ride":   {"window": "2s"},
}

// Each workload has what the commands need of it, and its rows are its own right answer, also if its
// tasks crash.
func TestAnswers(t *testing.T) {
	names := map[string]bool{}
	for _, w := range All() {
		require.False(t, names[w.Name], "%s is registered twice", w.Name)
		names[w.Name] = true
		require.NotEmpty(t, w.Title, w.Name)
		for _, o := range w.Options {
			require.NoError(t, o.Check(o.Default), "%s: the default of %s", w.Name, o.Flag)
			require.NotEmpty(t, o.Help)
		}
		t.Run(w.Name, func(t *testing.T) {
			for seed := range uint64(6) {
				answers(t, w, small[w.Name], seed)
			}
		})
	}
}

// answers compares the rows of 20 s of events with the right answer.
func answers(t *testing.T, w *Workload, own map[string]string, seed uint64) {
	in := &Input{Generator: generator.Config{Seed: seed, Events: 3000, Rate: 150, Base: generator.DefaultBase}, Partitions: 1 + int(seed%3), Delay: time.Second}
	p := &Params{Logged: seed%2 == 0, Own: own}
	if w.Delay != nil {
		in.Generator.Disorder = time.Duration(seed%3) * 700 * time.Millisecond
		in.Delay = w.Delay(p, in.Generator)
	}
	file := filepath.Join(t.TempDir(), "rows")
	plan, err := w.Build(p, in, query.Output{File: file})
	require.NoError(t, err)
	o := optest.Options{Parallelism: 1 + int(seed%4), Groups: 8, Seed: seed}
	if seed > 0 {
		o.CrashEvery = 40
	}
	rep, err := optest.Run(plan, o)
	require.NoError(t, err)
	require.Zero(t, rep.Late)
	stages := ""
	for _, s := range plan.Stages {
		stages += s.Name + " "
	}
	require.Contains(t, stages, "events ")
	require.Contains(t, stages, "rows ")
	require.Equal(t, p.Logged, strings.Contains(stages, "input "), stages)

	want, err := w.Right(p, in.Generator)
	require.NoError(t, err)
	require.NotEmpty(t, want)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	rows := slices.Collect(strings.Lines(string(b)))
	rows = w.Last(rows)
	require.Equal(t, want, rows)
}

// What is exchanged changes no row.
func TestExchanges(t *testing.T) {
	for _, how := range []string{
		"kw local", "kw local merge-items 7 aggregate list", "kw keyby aggregate items", "kw ahead aggregate items", "kw ahead", "kw keyby item-cost 10us", "ysb local merge-items 50", "ysb ahead partition-by key", "lvd local", "lvd ahead partition-by key", "count global",
		"kw hot", "ysb hot merge-items 50 partitioner modulo", "kw keyby partitioner modulo", "lvd local partitioner modulo", "count keyby partitioner modulo", "count global partitioner modulo",
		"bridge keyby partitioner modulo", "ride keyby partitioner modulo",
	} {
		t.Run(how, func(t *testing.T) {
			words := strings.Fields(how)
			w, err := ByName(words[0])
			require.NoError(t, err)
			own := maps.Clone(small[w.Name])
			own["exchange"] = words[1]
			for i := 2; i < len(words); i += 2 {
				own[words[i]] = words[i+1]
			}
			for seed := range uint64(6) {
				answers(t, w, own, seed)
			}
		})
	}
}

// Exchanges that a workload does not have, and options that say nothing together, are refused.
func TestExchangeOptions(t *testing.T) {
	for bad, text := range map[string]string{
		"kw exchange none":                                      "use keyby or local or hot or global or ahead",
		"kw exchange global":                                    "exchange global: windows close, and what is merged globally does not; use keyby, local, hot or ahead",
		"count exchange local":                                  "exchange local: there are no windows to merge; use keyby or global",
		"lvd exchange ahead":                                    "exchange ahead: the source must have all items of a key in one partition; give --partition-by key",
		"ysb exchange ahead partition-by key grain key":         "exchange ahead: clocks of keys belong to a stream that is exchanged; leave out --grain key",
		"kw exchange ahead partition-by key partitioner modulo": "partitioner modulo: with --exchange ahead a key is in the key group of its partition; leave it out",
		"count partitioner random":                              "use hash or modulo",
		"kw merge-items 7":                                      "merge-items 7: only partial results are merged; give --exchange local",
		"kw exchange local item-cost 20us":                      "item-cost 20us: what a task gets with --exchange local is not an item; use keyby",
		"kw item-cost -1us":                                     "use 0s to 1s",
		"kw exchange local merge-items -1":                      "use a whole number, 0 to 1073741824",
		"kw exchange ahead partition-by key merge-items 2":      "merge-items 2: only partial results are merged; give --exchange local",
	} {
		words, own := strings.Fields(bad), map[string]string{}
		for i := 1; i < len(words); i += 2 {
			own[words[i]] = words[i+1]
		}
		w, err := ByName(words[0])
		require.NoError(t, err)
		_, err = w.Build(&Params{Own: own}, &Input{}, query.Output{})
		require.ErrorContains(t, err, text, bad)
	}
}

// The items of a key must come in order to its clock.
func TestClocksOfKeysInPartitions(t *testing.T) {
	for _, w := range All() {
		if !slices.Contains(w.Options, grain) {
			continue
		}
		for _, g := range []string{"task", "keys:4", "key", "auto"} {
			for parts := range 3 {
				in := &Input{Partitions: parts, Generator: generator.Config{Events: 10}}
				own := map[string]string{"grain": g}
				_, err := w.Build(&Params{Own: own}, in, query.Output{})
				if parts < 2 || g == "task" || g == "keys:4" {
					require.NoError(t, err, "%s %s", w.Name, g)
					continue
				}
				require.ErrorContains(t, err, "come from 2 partitions, which are not in order with each other; give --partition-by key, --by-producer true", w.Name)
				own["partition-by"] = "key"
				_, err = w.Build(&Params{Own: own}, in, query.Output{})
				require.NoError(t, err, "%s %s", w.Name, g)
				if g == "key" {
					own["partition-by"], own["by-producer"] = "none", "true"
					_, err = w.Build(&Params{Own: own}, in, query.Output{})
					require.NoError(t, err, "%s %s", w.Name, g)
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	w, err := ByName("q5")
	require.NoError(t, err)
	require.Equal(t, 5, w.Query)
	require.Equal(t, "query 5", w.String())
	w, err = ByName("count")
	require.NoError(t, err)
	require.Equal(t, "count", w.String())
	_, err = ByName("q9")
	require.ErrorContains(t, err, `there is no workload "q9"; the workloads are`)
	for _, w := range All() {
		require.ErrorContains(t, err, "\n  "+w.Name+"  "+w.Title)
	}

	w, err = OfQuery(8)
	require.NoError(t, err)
	require.Equal(t, "q8", w.Name)
	_, err = OfQuery(9)
	require.EqualError(t, err, "there is no query 9; count is --workload count now, and a job that was started as q9 continues with --workload count --job q9")
	for _, unknown := range []int{-1, 0, 10, 22} {
		_, err = OfQuery(unknown)
		require.ErrorContains(t, err, "; the queries are\n  1  the bids, in euro\n")
		require.ErrorContains(t, err, "\nother jobs have names (--workload):\n  count  events by key")
	}
}

// A value that an option does not allow is refused where it comes in, however the parameters were built.
func TestOwnOptions(t *testing.T) {
	require.Equal(t, []*Option{countKeys, keyWeights, drift, exchange, partitioner, sensors, skew, disorderShare, window, lateness, late, aggregate, keyIDs, partitionBy, lag, lagFrom, grain, keyDelay, byProducer, mergeItems, itemCost}, Options())
	w, err := ByName("count")
	require.NoError(t, err)
	for _, bad := range []string{"0", "-1", "many", "", "9223372036854775808"} {
		p := &Params{Own: map[string]string{"keys": bad}}
		_, err := w.Build(p, &Input{}, query.Output{})
		require.EqualError(t, err, `count: keys "`+bad+`": use a whole number, at least 1`)
		_, err = w.Right(p, generator.Config{})
		require.ErrorContains(t, err, "use a whole number, at least 1")
	}
	require.Equal(t, "1000000", (&Params{}).Value(countKeys))
	_, err = w.Build(&Params{Own: map[string]string{"keys": "16777217", "key-weights": "zipf:1"}}, &Input{}, query.Output{})
	require.EqualError(t, err, "count: key-weights zipf:1: there are weights of at most 16777216 keys; give --keys")
}

// Grains that do not exist, and options that say nothing together, are refused.
func TestGrainOptions(t *testing.T) {
	for bad, text := range map[string]string{
		"grain keys:3":                "use task, key, auto, or keys:N with N a power of two, at most 256",
		"grain keys:512":              "use task, key, auto, or keys:N with N a power of two, at most 256",
		"grain day":                   "use task, key, auto, or keys:N with N a power of two, at most 256",
		"grain auto by-producer true": "by-producer: the clocks of grain auto do not follow producers; give --grain key",
		"lag-from 5s":                 "lag-from 5s: nothing lags; give --lag, too",
		"lag -1s":                     "use whole milliseconds, 0s to 1h0m0s",
		"by-producer true":            "by-producer: the clocks of grain task do not follow producers; give --grain key",
		"grain key by-producer maybe": "use true or false",
		"key-delay 2s":                "key-delay 2s: the clock of a task has none; give --grain key, or --watermark-delay",
		"late each lateness 0s":       "late each: needs a lateness, and results that are final",
		"late sometimes":              "use commit or each",
		"grain key key-delay -1s":     "use whole milliseconds, 0s to 24h0m0s",
		"grain keys:16 key-delay 1us": "use whole milliseconds, 0s to 24h0m0s",
	} {
		words, own := strings.Fields(bad), map[string]string{}
		for i := 0; i < len(words); i += 2 {
			own[words[i]] = words[i+1]
		}
		_, err := kw.Build(&Params{Own: own}, &Input{}, query.Output{})
		require.ErrorContains(t, err, text, bad)
	}
	for _, w := range []*Workload{kw, ysb, lvd, bridge, ride} {
		p := &Params{Own: map[string]string{"grain": "keys:16", "key-delay": "3s"}}
		plan, err := w.Build(p, &Input{Generator: generator.Config{Events: 1, Rate: 1}}, query.Output{File: "-"})
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(plan.Stages, func(s exec.StageSpec) bool {
			return s.Grain != nil && *s.Grain == exec.Grain{Kind: exec.GrainKeys, Delay: 3000, Clocks: 16}
		}), w.Name)
	}
}
