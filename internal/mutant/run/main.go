// Command run applies mutants to a copy of the tree, one at a time, and shows which tests fail.
//
//	go run ./internal/mutant/run [--list NAME,…] [--only REGEXP] [--resume] [--json FILE]
//
// Exit code 1: some mutant survived, did not compile, or no longer fits the code, or its tests fail
// without it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/mutant"
)

// result is the outcome of one mutant.
type result struct {
	List    string   `json:"list"`
	Mutant  string   `json:"mutant"`
	Key     string   `json:"key"`
	Breaks  string   `json:"breaks"`
	Files   []string `json:"files"`
	Outcome string   `json:"outcome"`
	// By is the first test that failed, Found what it printed after "found: ".
	By      string  `json:"by,omitempty"`
	Found   string  `json:"found,omitempty"`
	Seconds float64 `json:"seconds"`
}

// The outcomes. A test that hangs counts as failed.
const (
	killed     = "killed"
	timedOut   = "timeout"
	survived   = "SURVIVED"
	uncompiled = "DOES NOT COMPILE"
	stale      = "STALE"
	unsound    = "UNSOUND" // a test fails without a mutant
	equivalent = "equivalent"
)

type runner struct {
	root, tree string
	limit      time.Duration
	parallel   int
	file       string
	results    []result
	sound      map[string]error // by test command: the error of a run without a mutant
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	r := &runner{sound: map[string]error{}}
	flag.StringVar(&r.root, "root", ".", "the tree")
	list := flag.String("list", "", "run these lists only, by name, separated by commas")
	only := flag.String("only", "", "run the mutants whose name matches this regular expression")
	resume := flag.Bool("resume", false, "leave out what the JSON file has a verdict on already")
	flag.StringVar(&r.file, "json", "bin/mutants/results.json", "where the results go")
	flag.DurationVar(&r.limit, "limit", 10*time.Minute, "how long one go test may take; longer counts as noticed")
	flag.IntVar(&r.parallel, "parallel", 2*runtime.GOMAXPROCS(0), "how many tests run at a time: many of them wait for what does not come")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	lists, err := mutant.Lists(r.root)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(*list, ",") {
		if name != "" && !slices.ContainsFunc(lists, func(l mutant.List) bool { return l.Name == name }) {
			return fmt.Errorf("there is no list %q", name)
		}
	}
	var before []result
	if b, err := os.ReadFile(r.file); err == nil && *resume {
		if err := json.Unmarshal(b, &before); err != nil {
			return fmt.Errorf("%s: %w", r.file, err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r.tree = filepath.Join(r.root, "bin", "mutants", "apart")
	var todo []*mutant.Mutant
	var listOf []string
	for _, l := range lists {
		if *list != "" && !slices.Contains(strings.Split(*list, ","), l.Name) {
			continue
		}
		for i := range l.Mutants {
			m := &l.Mutants[i]
			if !pattern.MatchString(m.Name) {
				continue
			}
			known := slices.IndexFunc(before, func(x result) bool {
				return x.List == l.Name && x.Mutant == m.Name && x.Key == m.Key() && x.Outcome != stale && x.Outcome != uncompiled && x.Outcome != unsound
			})
			if known >= 0 {
				r.results = append(r.results, before[known])
				continue
			}
			todo, listOf = append(todo, m), append(listOf, l.Name)
		}
	}
	t, err := r.build(ctx, todo)
	if err != nil {
		return err
	}
	if err := r.playAll(ctx, t, todo, listOf); err != nil {
		return err
	}
	return r.report()
}

// playAll runs the mutants that can be switched in one tree, and then the others.
func (r *runner) playAll(ctx context.Context, t *together, todo []*mutant.Mutant, listOf []string) error {
	var mu sync.Mutex
	done := func(i int, res result) error {
		mu.Lock()
		defer mu.Unlock()
		res.List = listOf[i]
		r.results = append(r.results, res)
		show(&res)
		return r.save()
	}
	var rest []int
	var group sync.WaitGroup
	var errs []error
	places := make(chan struct{}, r.parallel)
	for i := range todo {
		if t.apart[i] != "" {
			rest = append(rest, i)
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			res, err := t.play(ctx, i)
			if err == nil {
				err = done(i, res)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	if len(errs) > 0 || len(rest) == 0 {
		return errors.Join(errs...)
	}
	if err := copyTree(ctx, r.root, r.tree); err != nil {
		return err
	}
	for _, i := range rest {
		res, err := r.play(ctx, todo[i])
		if err == nil {
			err = done(i, res)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func show(x *result) {
	by := x.By
	if x.Found != "" {
		by += " (" + x.Found + ")"
	}
	fmt.Printf("%-16s %7.1f s  %-8s %-36s %s\n", x.Outcome, x.Seconds, x.List, x.Mutant, by)
}

func (r *runner) save() error {
	if err := os.MkdirAll(filepath.Dir(r.file), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r.results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(r.file, append(b, '\n'), 0o644)
}

// report prints the totals. It returns an error if a mutant survived.
func (r *runner) report() error {
	if err := r.save(); err != nil {
		return err
	}
	count := map[string]int{}
	for _, x := range r.results {
		count[x.Outcome]++
	}
	noticed := count[killed] + count[timedOut]
	all := noticed + count[survived]
	fmt.Printf("\n%d mutants: %d noticed, %d survived, %d equivalent, %d do not compile, %d stale, %d unsound", len(r.results), noticed, count[survived], count[equivalent], count[uncompiled], count[stale], count[unsound])
	if all > 0 {
		fmt.Printf(" (%.0f %% noticed)", 100*float64(noticed)/float64(all))
	}
	fmt.Printf("; %s\n", r.file)
	for _, x := range r.results {
		if !slices.Contains([]string{killed, timedOut, equivalent}, x.Outcome) {
			fmt.Printf("  %s: %s/%s: %s %s\n", x.Outcome, x.List, x.Mutant, x.Breaks, x.By)
		}
	}
	if noticed+count[equivalent] != len(r.results) {
		return fmt.Errorf("%d of %d were not noticed", len(r.results)-noticed-count[equivalent], len(r.results))
	}
	return nil
}
