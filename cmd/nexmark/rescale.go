package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/rescale"
)

// errSubmittedRescale refuses --rescale, --auto and --balance for a job of workers.
func (e *engine) errSubmittedRescale() error {
	return usagef("%s: the job must run in this process, and workers run it with --submit; leave out one of the two", e.rescaleFlags())
}

// rescaleFlag adds --rescale.
func (e *engine) rescaleFlag(f *pflag.FlagSet) {
	f.Var((*rescales)(&e.Rescales), "rescale", `give a stage another number of tasks while the job runs: WHEN:STAGE=TASKS, as in 10s:counts=4,20s:counts=1.
WHEN is the time since the job was started here (10s; the warm-up counts), or how many events it has read (500000).
STAGE may be left out (10s=4): the first with the most key groups that is neither source nor sink. none: no rescale.
A stage that reads a source of several --partitions is rescaled by partition, if it is named.
They are done one after the other, in the order given. Key groups move between running tasks, the rows stay the same.
One that is not reached before the job ends is reported, and is no error. Not with --submit, or the protocols
txn, aligned, aligned-early and unsafe`)
	f.StringVar(&e.rescaleMode, "rescale-mode", rescale.ModeMove, "how a task gets the state of key groups that come to it; all but the first are for comparison:\n"+modeHelp())
	f.IntVar(&e.rescaleBatch, "rescale-batch", 0, "how many key groups a task gives, or receives, in one step of a rescale; 0: all of them in one step")
	f.StringVar(&e.repartition, "rescale-repartition", "", "which key groups a rescale moves: sticky (as few as possible), range (as in a new job), hash (consistent hashing); default: by their loads if the stage is balanced, else sticky")
	f.BoolVar(&e.rescaleLate, "rescale-late", false, "new tasks, too, take over only when the others have processed their input up to the rescale: for comparison, it takes long behind a backlog")
	f.Var((*autos)(&e.Autoscales), "auto", `keep the number of tasks of a stage between two bounds, as its load demands: STAGE=MIN..MAX, as in counts=2..8.
STAGE may be left out (2..8), as in --rescale. The bounds are kept with the job (--data): run again without --auto it
scales on, until STAGE=off. What is impossible is what is for --rescale`)
}

// modeHelp describes the modes, one a line.
func modeHelp() string {
	var lines []string
	for _, m := range rescale.Modes {
		lines = append(lines, m.Name+": "+m.About)
	}
	return strings.Join(lines, "\n")
}

// rescales reports whether key groups are to move while the job runs.
func (e *engine) rescales() bool { return len(e.Rescales)+len(e.Autoscales) > 0 || e.balance != "" }

// rescaleFlags returns the flag that asks for it.
func (e *engine) rescaleFlags() string {
	switch {
	case len(e.Rescales) > 0:
		return "--rescale"
	case len(e.Autoscales) > 0:
		return "--auto"
	}
	return "--balance"
}

// checkRescales refuses what --rescale and --auto ask for if it is impossible. The other flags must have been
// checked.
func (e *engine) checkRescales() error {
	if _, err := rescale.ModeOf(e.rescaleMode); err != nil {
		return usagef("--rescale-mode: %w", err)
	}
	if e.rescaleBatch < 0 {
		return usagef("--rescale-batch: %d key groups a step; use 0 for any number", e.rescaleBatch)
	}
	if _, err := rescale.Strategy(cmp.Or(e.repartition, "sticky")); err != nil {
		return usagef("--rescale-repartition: %w", err)
	}
	for i := range e.Rescales {
		r := &e.Rescales[i]
		r.Mode, r.Batch, r.Strategy, r.Late = e.rescaleMode, e.rescaleBatch, e.repartition, e.rescaleLate
	}
	for flag, of := range map[string]string{
		"rescale-mode": "rescale", "rescale-batch": "rescale", "rescale-repartition": "rescale", "rescale-late": "rescale", "dispatch": "balance", "task-weights": "balance",
	} {
		if e.given(flag) && !e.given(of) {
			return usagef("--%s says how --%s does it, and there is no --%[2]s", flag, of)
		}
	}
	if err := e.CheckRescales(); err != nil {
		return usagef("--rescale: %w", err)
	}
	if err := e.CheckAutoscales(); err != nil {
		return usagef("--auto: %w", err)
	}
	return e.checkBalance()
}

// sayRescale returns what shows the outcome of each rescale.
func (e *engine) sayRescale(line *status) func(*driver.Rescaled) {
	if e.quiet {
		return nil
	}
	return func(r *driver.Rescaled) { line.say(r.String() + "\n") }
}

// sayAutoscale returns what shows a line for each rescale of --auto.
func (e *engine) sayAutoscale(line *status) func(string) {
	if e.quiet {
		return nil
	}
	return func(text string) { line.say(text + "\n") }
}

// autos is the value of --auto.
type autos []tasks.Autoscale

// Set implements pflag.Value. A flag that is given again adds to the list.
func (a *autos) Set(text string) error {
	list := *a
	for _, part := range strings.Split(text, ",") {
		one, err := parseAuto(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		if slices.ContainsFunc(list, func(other tasks.Autoscale) bool { return other.Stage == one.Stage }) {
			return fmt.Errorf("%q: the stage is named before", part)
		}
		list = append(list, one)
	}
	*a = list
	return nil
}

// parseAuto parses STAGE=MIN..MAX, MIN..MAX, STAGE=off and off.
func parseAuto(text string) (a tasks.Autoscale, err error) {
	bounds := text
	if stage, after, ok := strings.Cut(text, "="); ok {
		if a.Stage, bounds = stage, after; stage == "" {
			return a, fmt.Errorf("no stage before the =; write %s for the stage with the most key groups", bounds)
		}
	}
	if bounds == "off" {
		return a, nil
	}
	low, high, ok := strings.Cut(bounds, "..")
	a.Min, err = strconv.Atoi(low)
	if err == nil {
		a.Max, err = strconv.Atoi(high)
	}
	if err != nil || !ok || a.Min < 1 || a.Max < a.Min {
		return a, errors.New("write the least and the largest number of tasks, as in 2..8, or off")
	}
	return a, nil
}

// String implements pflag.Value.
func (a *autos) String() string {
	var all []string
	for _, one := range *a {
		text := fmt.Sprintf("%d..%d", one.Min, one.Max)
		if one.Off() {
			text = "off"
		}
		if one.Stage != "" {
			text = one.Stage + "=" + text
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}

// Type implements pflag.Value.
func (*autos) Type() string { return "list" }

// surge is the value of --surge.
type surge generator.Surge

// Set implements pflag.Value.
func (s *surge) Set(text string) error {
	wrong := errors.New("write WHEN:LONG=RATE, as in 20s:30s=60000")
	left, rate, ok := strings.Cut(text, "=")
	at, long, ok2 := strings.Cut(left, ":")
	if !ok || !ok2 {
		return wrong
	}
	var err error
	var read surge
	if read.At, err = time.ParseDuration(at); err != nil {
		return wrong
	}
	if read.For, err = time.ParseDuration(long); err != nil || read.For < time.Millisecond {
		return wrong
	}
	if read.Rate, err = strconv.ParseInt(rate, 10, 64); err != nil {
		return wrong
	}
	*s = read
	return nil
}

// String implements pflag.Value.
func (s *surge) String() string {
	if s.For == 0 {
		return ""
	}
	return fmt.Sprintf("%v:%v=%d", s.At, s.For, s.Rate)
}

// Type implements pflag.Value.
func (*surge) Type() string { return "surge" }

// rescales is the value of --rescale.
type rescales []driver.Rescale

// Set implements pflag.Value. A flag that is given again adds to the list.
func (r *rescales) Set(text string) error {
	list := *r
	if text == "none" {
		return nil
	}
	for i, part := range strings.Split(text, ",") {
		one, err := parseRescale(strings.TrimSpace(part))
		if err == nil && len(list) > 0 {
			if b := &list[len(list)-1]; one.Events == 0 && b.Events == 0 && one.After < b.After {
				err = fmt.Errorf("%v is before %v: list them in the order of their times", one.After, b.After)
			}
		}
		if err != nil {
			return fmt.Errorf("rescale %d, %q: %w", i+1, part, err)
		}
		list = append(list, one)
	}
	*r = list
	return nil
}

// parseRescale parses WHEN:STAGE=TASKS and WHEN=TASKS.
func parseRescale(text string) (r driver.Rescale, err error) {
	left, n, ok := strings.Cut(text, "=")
	if !ok {
		return r, errors.New("it has no =TASKS; write WHEN:STAGE=TASKS, as in 10s:counts=4")
	}
	if r.Tasks, err = strconv.Atoi(n); err != nil || r.Tasks < 1 {
		return r, fmt.Errorf("%q tasks: use a whole number, at least 1", n)
	}
	when, stage, ok := strings.Cut(left, ":")
	if r.Stage = stage; ok && stage == "" {
		return r, fmt.Errorf("no stage behind the colon; write %s=%d for the stage with the most key groups", when, r.Tasks)
	}
	if r.Events, err = strconv.ParseUint(when, 10, 64); err == nil && r.Events > 0 {
		return r, nil
	}
	r.Events = 0
	if r.After, err = time.ParseDuration(when); err != nil || r.After < 0 {
		return r, fmt.Errorf("when is %q? use a time since the start, as 10s or 500ms, or a number of events", when)
	}
	return r, nil
}

// String implements pflag.Value.
func (r *rescales) String() string {
	var all []string
	for i := range *r {
		one := &(*r)[i]
		text := one.When()
		if one.Stage != "" {
			text += ":" + one.Stage
		}
		all = append(all, fmt.Sprintf("%s=%d", text, one.Tasks))
	}
	return strings.Join(all, ",")
}

// Type implements pflag.Value.
func (*rescales) Type() string { return "list" }
