package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/balance"
)

// balanceFlag adds --balance and what belongs to it.
func (e *engine) balanceFlag(f *pflag.FlagSet) {
	f.StringVar(&e.balance, "balance", "", `move key groups of a stage to tasks that have room, while the job runs: every=20s, items=10000000 or
below=0.9 (the least number of items of a task divided by the greatest, over 5 s); off only measures.
Behind it ,quiet=D: how long there is no other step (10s, or what every says). Before it STAGE: for one stage,
as in keys:below=0.9; without, as in --rescale. It holds for this run of the job. What is impossible is what is for --rescale`)
	f.StringVar(&e.dispatch, "dispatch", "least-count", "with --balance, what distributes key groups: hash (as in a new job), least-count (by items a second), least-key (by keys in state), weight (the same with --task-weights) or auto (the best of them)")
	f.StringVar(&e.taskWeights, "task-weights", "", "with --dispatch weight or auto: shares of the tasks, as 3,1,1")
}

// checkBalance fills in the Settings, and refuses what --balance asks for if it is impossible.
func (e *engine) checkBalance() error {
	if e.balance == "" {
		return nil
	}
	b := &tasks.Balance{Dispatch: e.dispatch}
	when := e.balance
	if stage, after, ok := strings.Cut(when, ":"); ok {
		b.Stage, when = stage, after
	}
	var err error
	if b.When, err = balance.ParseWhen(when); err != nil {
		return usagef("--balance: %w", err)
	}
	if b.Shares, err = parseShares(e.taskWeights); err != nil {
		return err
	}
	e.Balance = b
	if err := e.CheckBalance(); err != nil {
		return usagef("--balance: %w", err)
	}
	return nil
}

// parseShares reads the value of --task-weights.
func parseShares(text string) (shares []float64, err error) {
	if text == "" {
		return nil, nil
	}
	for _, v := range strings.Split(text, ",") {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return nil, usagef("--task-weights %q: use numbers above 0, as 3,1,1", text)
		}
		shares = append(shares, x)
	}
	if err := checkShares(shares); err != nil {
		return nil, usagef("--task-weights %q: %w, as 3,1,1", text, err)
	}
	return shares, nil
}

// sayLine returns what shows a line for each step of --balance, or switch of --grain auto.
func (e *engine) sayLine(line *status) func(string) {
	if e.quiet {
		return nil
	}
	return func(text string) { line.say(text + "\n") }
}
