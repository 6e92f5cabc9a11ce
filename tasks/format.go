package tasks

import (
	"slices"
	"strconv"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/progress"
)

// Format is the version of jobs on workers: of the messages between tasks, managers and workers, and
// of their records in the log. All processes of a job must know the format of the program that
// described it:
//
//	1  ownership of key groups is that of the job's first plan
//	2  the stages of the job can be rescaled
//	3  keys of a stage have clocks of their own
//	4  the stages that read a source can be rescaled
//	5  keys of a stage may get clocks of their own while the job runs: plans say so (docs/adr/0075)
//	6  streams of the job have slots, and routing tables (docs/adr/0083)
//
// It is a variable so that a test can build a program of another format.
var Format = "6"

// formatOf returns the format in which a program describes a job: the earliest one that has all that the
// job uses, or may use at any moment, so that older processes run those jobs that they know (docs/adr/0059).
func formatOf(p *exec.Plan, protocol progress.Protocol) string {
	of := "2"
	for i := range p.Stages {
		switch s := &p.Stages[i]; {
		case of == switching:
		case s.Switches():
			of = switching
		case s.Partitions > 1 && protocol.Capabilities().Rescales:
			of = partitioned
		case s.Grain != nil && of == "2":
			of = "3"
		}
	}
	if slices.ContainsFunc(p.Streams, func(s exec.StreamSpec) bool { return s.Slots > 0 }) {
		of = routed
	}
	if !RunsFormat(Format, of) {
		return Format
	}
	return of
}

// partitioned is the earliest format of jobs in which partitions of a source move: the tasks of an older
// program would not release them.
const partitioned = "4"

// switching is the format of jobs whose plans may change grains: the tasks of an older program would refuse the plans.
const switching = "5"

// routed is the format of jobs with slots: an older program knows neither the setting nor the key groups.
const routed = "6"

// RunsFormat reports whether a program of one format runs jobs that were described in another one.
// It runs those of its own format and of earlier ones, so that the processes of a cluster can be
// replaced one by one while jobs run. A later format is refused: its tasks may read records that the
// program would misunderstand.
func RunsFormat(program, job string) bool {
	p, perr := strconv.Atoi(program)
	j, jerr := strconv.Atoi(job)
	return program == job || perr == nil && jerr == nil && 0 < j && j < p
}
