package driver

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"

	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/tasks"
)

// Program is the program name that jobs ask their workers for.
const Program = "nexmark"

// Describe returns a query over its input as a job for workers. Files are named by absolute paths:
// they must exist on the hosts that run the stages "events" and "rows".
func Describe(s Settings) (*tasks.Spec, error) {
	for i, in := range s.Inputs {
		abs, err := filepath.Abs(in)
		if err != nil {
			return nil, err
		}
		s.Inputs[i] = abs
	}
	if s.Output == "-" {
		return nil, fmt.Errorf("--output: the rows are written by a worker, not by this process: give a file, or read them from the log (nexmark read)")
	}
	var err error
	if s.Output, err = filepath.Abs(s.Output); err != nil {
		return nil, err
	}
	j, err := s.job()
	if err != nil {
		return nil, err
	}
	spec, err := tasks.Describe(j.plan, j.options)
	if err != nil {
		return nil, err
	}
	s.Workload, s.Query = j.workload.Name, j.workload.Query
	spec.Program, spec.Labels = Program, Labels(j.workload)
	spec.Args, err = json.Marshal(s)
	return spec, err
}

// Labels returns the labels of a workload's jobs, by which workers select jobs.
func Labels(w *workload.Workload) map[string]string {
	l := map[string]string{"workload": w.Name}
	if w.Query > 0 {
		l["query"] = strconv.Itoa(w.Query)
	}
	return l
}

// Build makes the plan of a job that Describe described. A worker calls it.
func Build(spec *tasks.Spec) (*operators.Plan, error) {
	var s Settings
	if err := json.Unmarshal(spec.Args, &s); err != nil {
		return nil, fmt.Errorf("job %q: its arguments: %w", spec.Name, err)
	}
	if err := s.upgrade(spec.Args); err != nil {
		return nil, fmt.Errorf("job %q: its arguments: %w", spec.Name, err)
	}
	j, err := s.build()
	if err != nil {
		return nil, err
	}
	return j.plan, nil
}

// upgrade reads the arguments of jobs that were described before workloads had names: query 9 was
// the count, and its number of keys a field.
func (s *Settings) upgrade(args []byte) error {
	if s.Workload != "" || s.Query != 9 {
		return nil
	}
	var old struct{ Keys json.Number }
	if err := json.Unmarshal(args, &old); err != nil {
		return err
	}
	s.Workload, s.Query = "count", 0
	if n := old.Keys.String(); n != "" && n != "0" { // 0 meant the default
		s.Own = map[string]string{"keys": n}
	}
	return nil
}

// Rows returns the plan of a query whose rows go to a file, without opening its input: for readers of
// the job's rows in the log, which use the rows' types, and for those who ask for its stages.
func Rows(s Settings) (*operators.Plan, error) {
	s.Inputs, s.Generator.Events = nil, max(1, s.Generator.Events)
	j, err := s.build()
	if err != nil {
		return nil, err
	}
	return j.plan, nil
}

// job is what runs.
type job struct {
	workload *workload.Workload
	params   *workload.Params
	input    *workload.Input
	plan     *operators.Plan
	options  tasks.Options
}

// build returns the job without its pinned settings.
func (s *Settings) build() (*job, error) {
	out := query.Output{File: s.Output, Sync: s.Sync}
	if s.Discard {
		out = query.Output{Rows: func([]int64) {}}
	}
	return s.buildTo(s.input(s.Live), out)
}

func (s *Settings) buildTo(in *workload.Input, out query.Output) (j *job, err error) {
	j = &job{params: s.params(), input: in, options: s.options()}
	j.options.Name = s.JobName()
	if j.workload, err = s.workload(); err != nil {
		return nil, err
	}
	j.plan, err = j.workload.Build(j.params, j.input, out)
	return j, err
}

// job returns the job, including the pinned settings.
func (s *Settings) job() (*job, error) {
	j, err := s.build()
	if err != nil {
		return nil, err
	}
	j.options.Settings, err = s.held(j.workload)
	return j, err
}
