package savepoint

import (
	"bytes"
	"fmt"
)

// What is in the slots of a stage is the state of those keys that its routing table places there. So a job that takes the state over
// begins with that table, in all stages that read the same streams: one table routes these. State that is nowhere placed is in
// the hash groups, and any number of slots can be added, or left out.

// hashed returns the number of the stage's key groups that are no slots.
func (s *Stage) hashed() int { return s.Groups - s.Slots }

func (j *JobStage) hashed() int { return len(j.Changes) - j.Slots }

// routes returns the routing tables of the job's stages, and notes those that cannot be.
func (f *fitting) routes(fit map[string]*StageFit) [][]byte {
	first := map[int]*Stage{} // by domain: the stage whose table it has
	for _, keeps := range []bool{true, false} {
		for i := range f.job.Stages {
			n := &f.job.Stages[i]
			if sf := fit[n.Name]; sf != nil && sf.keeps() == keeps {
				f.route(sf.From, n, first, keeps)
			}
		}
	}
	all := make([][]byte, len(f.job.Stages))
	for i := range f.job.Stages {
		n := &f.job.Stages[i]
		if s := first[n.Domain]; s != nil && n.Slots > 0 {
			all[i] = s.Routes
		}
		if f.job.Started != nil && !bytes.Equal(all[i], f.job.Started[i]) {
			f.mismatch("stage %q: the job began with another routing table: the savepoint was made again since, under the same name; delete the job, and submit it again", n.Name)
		}
	}
	return all
}

// route makes the table of a stage that of its domain. State that the stage keeps needs it; otherwise it is taken if it can be.
func (f *fitting) route(s *Stage, n *JobStage, first map[int]*Stage, keeps bool) {
	placed := fmt.Sprintf("stage %q: the routing table of the savepoint places state in its %d slots", s.Name, s.Slots)
	other := first[n.Domain]
	switch fits := n.Slots == s.Slots && n.hashed() == s.hashed(); {
	case n.Slots == 0 && (len(s.Routes) == 0 || !keeps), !keeps && (other != nil || !fits):
	case n.Slots == 0:
		f.mismatch("%s, and it has none here; give the job as many (--slots %d) and the stage streams that can have some, or drop its state (--drop-state %s)", placed, s.Slots, s.Name)
	case len(s.Routes) > 0 && n.Slots != s.Slots:
		f.mismatch("%s, and it has %d here: their number cannot change; give the job as many (--slots %d), or drop its state (--drop-state %s)", placed, n.Slots, s.Slots, s.Name)
	case other == nil:
		first[n.Domain] = s
	case !bytes.Equal(other.Routes, s.Routes):
		f.mismatch("stages %q and %q read streams that meet here, which one table routes, and their routing tables in the savepoint differ; use a plan in which these streams do not meet, or drop the state of one of them (--drop-state %[2]s)", other.Name, s.Name)
	}
}
