// Command worker is a query binary: a program of one's own whose job runs on a cluster,
// on as many processes as one starts.
//
//	worker plan FILE COUNTS | tailrace job submit --wait -     describe the job, submit it
//	worker run [--log HOST:PORT,…] [--stage by-word] [--name N] …   run (stages of) it
//
// It counts the words of FILE into COUNTS: first stage words, second by-word, sink
// counts.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/worker"
)

const program = "words"

// files are the job's arguments.
type files struct{ Text, Counts string }

// plan builds the job. Every process that runs a part of it does so, from the same
// arguments.
func plan(f files) (*operators.Plan, error) {
	text, err := os.ReadFile(f.Text)
	if err != nil {
		return nil, err
	}
	var items []optest.Timed[string]
	for i, word := range strings.Fields(string(text)) {
		items = append(items, optest.At(int64(i), word))
	}
	job := operators.NewJob(program)
	words := operators.FromSource(job, "words", optest.Items(0, items), serde.String)
	byWord := operators.KeyBy(words, "by-word", serde.String, func(w *string) string { return *w })
	operators.ToSink(operators.Count(byWord), "counts", operators.FileSink(f.Counts, func(dst []byte, c *operators.Change[string, int64]) []byte {
		return fmt.Appendf(dst, "%s %d\n", c.Key, c.Value)
	}, false))
	return job.Plan()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "plan":
		return describe(files{args[1], args[2]})
	case len(args) > 0 && args[0] == "run":
		o := worker.Options{Program: program, Build: build}
		flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		o.Flags(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if len(o.Log) == 0 {
			o.Log = strings.Split(os.Getenv("TAILRACE_LOG"), ",")
		}
		return worker.Run(ctx, o)
	}
	return fmt.Errorf("usage: worker plan FILE COUNTS, worker run [flags]")
}

// describe prints the job for tailrace job submit.
func describe(f files) error {
	p, err := plan(f)
	if err != nil {
		return err
	}
	spec, err := tasks.Describe(p, tasks.Options{Name: "words", Parallelism: 2})
	if err != nil {
		return err
	}
	spec.Program = program
	if spec.Args, err = json.Marshal(f); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(spec)
}

// build is what a worker does with what describe printed.
func build(spec *tasks.Spec) (*operators.Plan, error) {
	var f files
	if err := json.Unmarshal(spec.Args, &f); err != nil {
		return nil, err
	}
	return plan(f)
}
