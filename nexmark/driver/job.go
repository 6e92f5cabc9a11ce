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

// Program is the name under which jobs ask for this program.
const Program = "nexmark"

// Describe returns a query over its input as a job for workers. Files are named by
// absolute paths: they must be there on the hosts that run the stages "events" and
// "rows".
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
	plan, err := s.plan()
	if err != nil {
		return nil, err
	}
	o := s.options()
	o.Name = s.JobName()
	if o.Settings, err = s.held(); err != nil {
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

// Build makes the plan of a job that Describe described: what a worker does.
func Build(spec *tasks.Spec) (*operators.Plan, error) {
	var s Settings
	if err := json.Unmarshal(spec.Args, &s); err != nil {
		return nil, fmt.Errorf("job %q: its arguments: %w", spec.Name, err)
	}
	return s.plan()
}

// Rows returns the plan of a query whose rows go to a file, for who reads them from the
// log; nothing else of it is used.
func Rows(s Settings) (*operators.Plan, error) {
	s.Inputs, s.Generator.Events = nil, max(1, s.Generator.Events)
	return s.plan()
}

func (s *Settings) plan() (*operators.Plan, error) {
	if err := query.Check(s.Query); err != nil {
		return nil, err
	}
	src, err := s.source(source.NewFiles(s.Inputs, s.WatermarkDelay.Milliseconds(), s.SkipBad))
	if err != nil {
		return nil, err
	}
	return query.Build(s.params(), src, query.Output{File: s.Output, Sync: s.Sync})
}
