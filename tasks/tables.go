package tasks

import (
	"fmt"
	"hash/fnv"

	"tailrace.dev/tailrace/operators/exec"
)

// tablesSetting is the name of tablesHash among a job's pinned settings.
const tablesSetting = "state tables"

// tablesHash returns a hash of the state tables of a plan, "" if it has none or does not list them.
// The job's change logs refer to tables by number, so their writers and readers must agree on all
// of them. The plan's own hash does not cover tables, so that it stays as it was before plans
// listed them.
func tablesHash(p *exec.Plan) string {
	h, any := fnv.New64a(), false
	for _, s := range p.Stages {
		for _, t := range s.Tables {
			fmt.Fprintf(h, "%q %q %q;", s.Name, t.Name, t.Type)
			any = true
		}
	}
	if !any {
		return ""
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// tablesDiffer says where the tables of a job differ from those of a program's plan, "" if they are
// the same or the job's are unknown.
func tablesDiffer(job, program *exec.Plan) string {
	if want := tablesHash(job); want == "" || want == tablesHash(program) {
		return ""
	}
	for i := range job.Stages {
		have, want := program.Stages[i].Tables, job.Stages[i].Tables
		for k := range max(len(have), len(want)) {
			switch {
			case k == len(have):
				return fmt.Sprintf("stage %q of the job has table %q (%s), which the program does not make", job.Stages[i].Name, want[k].Name, want[k].Type)
			case k == len(want):
				return fmt.Sprintf("the program gives stage %q another table, %q (%s)", job.Stages[i].Name, have[k].Name, have[k].Type)
			case have[k].Name != want[k].Name || have[k].Type != want[k].Type:
				return fmt.Sprintf("table %d of stage %q is %q (%s) in the job, and %q (%s) in the program", k, job.Stages[i].Name, want[k].Name, want[k].Type, have[k].Name, have[k].Type)
			}
		}
	}
	return ""
}
