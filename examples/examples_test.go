package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"tailrace.dev/tailrace/internal/proctest"
)

var bin string // where the programs are

func TestMain(m *testing.M) {
	code := 1
	dir, err := os.MkdirTemp("", "examples-")
	if err == nil {
		bin = dir
		build := exec.Command("go", "build", "-ldflags=-w", "-o", dir, "./alerts", "./enrichment", "./hello", "./sessions", "./wordcount")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// killed runs a program again and again, with SIGKILL at random moments of its life, until it
// ends, and returns the lines of its output. in are its inputs' flags and texts.
func killed(t *testing.T, seed uint64, program string, in ...string) []string {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	data := filepath.Join(dir, "data")
	args := []string{"run", "--data", data, "--output", out}
	for i := 0; i < len(in); i += 2 {
		path := filepath.Join(dir, in[i])
		require.NoError(t, os.WriteFile(path, []byte(in[i+1]), 0o644))
		args = append(args, "--"+in[i], path)
	}
	probe := slices.Clone(args)
	probe[2], probe[4] = filepath.Join(dir, "probe"), filepath.Join(dir, "probe-out")
	killedRun(t, seed, filepath.Join(bin, program), args, probe, func() error { return errors.Join(os.Remove(out), os.RemoveAll(data)) })
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// killedRun is killed for any arguments; with those of probe the program does the same elsewhere,
// and forget removes what it has left.
func killedRun(t *testing.T, seed uint64, program string, args, probe []string, forget func() error) {
	rng := rand.New(rand.NewPCG(seed, 5))
	run := func(args []string, after time.Duration) (ended bool) {
		cmd := proctest.Command(t, program, args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		if after > 0 {
			timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) // or it has ended
			defer timer.Stop()
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return false
		}
		require.NoError(t, err, errs.String())
		return true
	}
	begun := time.Now()
	require.True(t, run(probe, 0))
	whole := time.Since(begun)
	kills := 0
	for {
		if !run(args, whole/8+time.Duration(rng.Int64N(int64(whole)))) {
			if kills++; kills > 100 {
				whole *= 2 // the machine has become slower
			}
			continue
		}
		if kills > 0 {
			break
		}
		whole /= 2 // it was slow when it was tried
		require.NoError(t, forget())
	}
	t.Logf("%d times killed", kills)
}

// The program that README.md shows counts the lines of README.md.
func TestHello(t *testing.T) {
	cmd := exec.Command(filepath.Join(bin, "hello"), "run", "--quiet")
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	want, got := map[int]int{}, map[int]int{}
	for line := range strings.Lines(string(readme)) {
		if line = strings.TrimRight(line, "\n"); strings.TrimSpace(line) != "" {
			want[len(line)]++
		}
	}
	for row := range strings.Lines(string(out)) {
		var count struct{ Key, Value int }
		require.NoError(t, json.Unmarshal([]byte(row), &count))
		got[count.Key] = count.Value // the last row counts
	}
	require.Equal(t, want, got)
}

// The last row of each word is its count.
func TestWordcount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	var text strings.Builder
	want := map[string]string{}
	counts := map[string]int{}
	for i := range 20_000 {
		word := fmt.Sprint("word-", rng.IntN(500))
		counts[word]++
		want[word] = fmt.Sprint(counts[word])
		fmt.Fprint(&text, word, []string{" ", "\n"}[i%7/6])
	}
	got := map[string]string{}
	for _, row := range killed(t, 1, "wordcount", "text", text.String()) {
		word, count, _ := strings.Cut(row, " ")
		got[word] = count
	}
	require.Equal(t, want, got)
}

func TestEnrichment(t *testing.T) {
	type change struct {
		at   int64
		city string
	}
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 1))
		history := map[int64][]change{}
		var orders, customers strings.Builder
		for at := range int64(20_000) {
			id, city := rng.Int64N(500), fmt.Sprint("city ", rng.IntN(50))
			history[id] = append(history[id], change{at, city})
			fmt.Fprintf(&customers, `{"at":%d,"id":%d,"city":%q}`+"\n", at, id, city)
		}
		var want []string
		for range 5_000 {
			at, id, cents := int64(len(want)*4), rng.Int64N(510), rng.Int64N(1000)
			fmt.Fprintf(&orders, `{"at":%d,"customer":%d,"cents":%d}`+"\n", at, id, cents)
			city := "unknown"
			for _, c := range history[id] {
				if c.at <= at {
					city = c.city
				}
			}
			row, err := json.Marshal(struct {
				At, Customer, Cents int64
				City                string
			}{at, id, cents, city})
			require.NoError(t, err)
			want = append(want, string(row))
		}
		got := killed(t, seed, "enrichment", "orders", orders.String(), "customers", customers.String())
		require.ElementsMatch(t, want, got)
	}
}

// Clicks come up to nine minutes late. The rows of a session that took a late click are there
// again; each session as it is in the end has its row, and other rows are of earlier states of one.
func TestSessions(t *testing.T) {
	const minute = 60_000
	type session struct{ start, last, count int64 }
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var text strings.Builder
		clicks := map[string][]int64{}
		for i := range int64(20_000) {
			user := fmt.Sprint("user-", rng.IntN(300))
			at := i*minute/4 - rng.Int64N(9*minute)
			clicks[user] = append(clicks[user], at)
			fmt.Fprintf(&text, "%d,%s\n", at, user)
		}
		final := map[string][]session{}
		want := map[string]bool{}
		for user, all := range clicks {
			slices.Sort(all)
			for _, at := range all {
				if s := final[user]; len(s) > 0 && at-s[len(s)-1].last < 30*minute {
					s[len(s)-1].last, s[len(s)-1].count = at, s[len(s)-1].count+1
				} else {
					final[user] = append(s, session{at, at, 1})
				}
			}
			for _, s := range final[user] {
				want[fmt.Sprint(user, " ", s.start, " ", s.last+30*minute, " ", s.count)] = true
			}
		}
		for _, row := range killed(t, seed, "sessions", "clicks", text.String()) {
			var user string
			var start, end, count int64
			_, err := fmt.Sscan(row, &user, &start, &end, &count)
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(final[user], func(s session) bool {
				return s.start <= start && end <= s.last+30*minute && count <= s.count
			}), "%s is part of no session", row)
			delete(want, row)
		}
		require.Empty(t, want)
	}
}

func TestAlerts(t *testing.T) {
	row := func(machine string, silent, back int64) string {
		return fmt.Sprintf(`{"Key":%q,"Value":{"Silent":%d,"Back":%d}}`, machine, silent, back)
	}
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var text strings.Builder
		last := map[string]int64{}
		var want []string
		at := int64(0)
		for range 20_000 {
			at += rng.Int64N(400)
			machine := fmt.Sprint("m", rng.IntN(200))
			if before, ok := last[machine]; ok && at-before >= 60_000 {
				want = append(want, row(machine, before+60_000, 0), row(machine, before+60_000, at))
			}
			last[machine] = at
			fmt.Fprintf(&text, `{"at":%d,"machine":%q}`+"\n", at, machine)
		}
		for machine, at := range last {
			want = append(want, row(machine, at+60_000, 0))
		}
		require.ElementsMatch(t, want, killed(t, seed, "alerts", "beats", text.String()))
	}
}
