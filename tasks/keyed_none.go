//go:build nokeyed

package tasks

import (
	"fmt"

	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// A program that is built with the tag nokeyed refuses a job that has slots or clocks of keys, also if another
// program has described it, and one whose newest plan in the log has routing tables or grains. Otherwise a
// task would process an item in the key group that its hash names, while a table has placed its key elsewhere.

func (s *Spec) checkKeyed() error {
	if s.Slots > 0 {
		return fmt.Errorf("slots: %d, but this program is built without routing tables (tag nokeyed): use no slots, or one that is built without that tag", s.Slots)
	}
	for i := range s.Plan.Stages {
		if g := s.Plan.Stages[i].Grain; g != nil {
			return fmt.Errorf("stage %q has clocks of grain %s, but this program is built without clocks of keys (tag nokeyed): use one that is built without that tag", s.Plan.Stages[i].Name, g.Kind)
		}
	}
	return nil
}

func checkSaved(m *savepoint.Manifest) error {
	for i := range m.Stages {
		if st := &m.Stages[i]; len(st.Routes) > 0 {
			return fmt.Errorf("savepoint %q has a routing table of stage %q, by which its state is in slots, but this program is built without routing tables (tag nokeyed): use one that is built without that tag", m.Name, st.Name)
		}
	}
	return nil
}

func (s *Spec) checkNewest(id string, p *envelope.Plan) error {
	if err := s.checkKeyed(); err != nil {
		return fmt.Errorf("job %q: %w", id, err)
	}
	found := ""
	if p.Epoch > 0 || len(p.Routes) > 0 {
		found = fmt.Sprintf("routing tables of epoch %d", p.Epoch)
	}
	for i := range p.Stages {
		if p.Stages[i].Grain != nil {
			found = fmt.Sprintf("a grain of stage %q", p.Stages[i].Name)
		}
	}
	if found == "" {
		return nil
	}
	return fmt.Errorf("job %q has %s in the log, which this program cannot continue: it is built without them (tag nokeyed); use one that is built without that tag", id, found)
}
