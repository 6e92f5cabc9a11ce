package driver

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"

	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/nexmark/source"
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
	plan, _, o, err := s.job()
	if err != nil {
		return nil, err
	}
	spec, err := tasks.Describe(plan, o)
	if err != nil {
		return nil, err
	}
	spec.Program, spec.Labels = Program, map[string]string{"query": strconv.Itoa(s.Query)}
	spec.Args, err = json.Marshal(s)
	return spec, err
}

// Build makes the plan of a job that Describe described. A worker calls it.
func Build(spec *tasks.Spec) (*operators.Plan, error) {
	var s Settings
	if err := json.Unmarshal(spec.Args, &s); err != nil {
		return nil, fmt.Errorf("job %q: its arguments: %w", spec.Name, err)
	}
	plan, _, err := s.plan()
	return plan, err
}

// Rows returns the plan of a query whose rows go to a file. Only a reader of the job's rows in the
// log uses it, and only for the rows' types.
func Rows(s Settings) (*operators.Plan, error) {
	s.Inputs, s.Generator.Events = nil, max(1, s.Generator.Events)
	plan, _, err := s.plan()
	return plan, err
}

// plan returns the query's plan and the files that it reads.
func (s *Settings) plan() (*operators.Plan, *source.Files, error) {
	if err := query.Check(s.Query); err != nil {
		return nil, nil, err
	}
	files := source.NewFiles(s.Inputs, s.WatermarkDelay.Milliseconds(), s.SkipBad)
	src, err := s.source(files)
	if err != nil {
		return nil, nil, err
	}
	out := query.Output{File: s.Output, Sync: s.Sync}
	if s.Discard {
		out = query.Output{Rows: func([]int64) {}}
	}
	plan, err := query.Build(s.params(), src, out)
	return plan, files, err
}

// job returns the plan, the files and the job's options, including the pinned settings.
func (s *Settings) job() (*operators.Plan, *source.Files, tasks.Options, error) {
	o := s.options()
	o.Name = s.JobName()
	plan, files, err := s.plan()
	if err == nil {
		o.Settings, err = s.held()
	}
	return plan, files, o, err
}
