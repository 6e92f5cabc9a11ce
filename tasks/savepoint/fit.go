package savepoint

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
)

// ErrMismatch is in the error of a job that cannot start from a savepoint, because the savepoint
// holds something that the job's plan does not have.
var ErrMismatch = errors.New("the savepoint does not fit the plan")

// Table is a table of keyed state.
type Table struct {
	Name string `json:"name"`
	// Type names the serdes of keys and values, and whatever else affects the encoding of entries.
	Type string `json:"type"`
	// Operator is the id of the operator that owns the table. Kind is set if that id was derived
	// from the operator's kind, by counting.
	Operator string `json:"operator"`
	Kind     string `json:"kind,omitempty"`
}

// StageFit describes how a stage of a job starts from a savepoint.
type StageFit struct {
	// From is the savepoint's stage.
	From *Stage
	// tables maps the number of a table in the savepoint to the number of the same table in the
	// job, or to -1 if it is dropped.
	tables []int
	// as: the numbers are the same in both.
	as bool
}

// Kept reports whether the stage takes over any table.
func (f *StageFit) Kept() bool { return f.as || slices.Max(append([]int{-1}, f.tables...)) >= 0 }

// keeps reports whether there is a table that the stage takes over.
func (f *StageFit) keeps() bool { return len(f.From.Tables) > 0 && f.Kept() }

// Translate returns entries of the savepoint with the job's table numbers, without those of dropped
// tables. It does not change es.
func (f *StageFit) Translate(es []checkpoint.Entry) ([]checkpoint.Entry, error) {
	if f.as {
		return es, nil
	}
	kept := make([]checkpoint.Entry, 0, len(es))
	for _, e := range es {
		table, key, err := envelope.SplitKey(e.Key)
		if err != nil {
			return nil, err
		}
		if table >= uint64(len(f.tables)) {
			return nil, fmt.Errorf("savepoint: stage %q has %d tables, and an entry of table %d: the savepoint is damaged", f.From.Name, len(f.tables), table)
		}
		if to := f.tables[table]; to >= 0 {
			it := envelope.Item{Table: uint64(to), Key: key}
			kept = append(kept, checkpoint.Entry{Key: it.AppendKey(nil), Value: e.Value})
		}
	}
	return kept, nil
}

// Fit returns, by the names of its stages, how a job starts from the savepoint; a stage that is
// missing starts empty. Tables are matched by stage and name, sources and sinks by name. What the
// savepoint holds and the job does not have is an error (ErrMismatch) that names all of it, unless
// drop names it: by its stage, or by stage and operator ("counts/window").
func (m *Manifest) Fit(j *Job, drop []string) (map[string]*StageFit, error) {
	fit, _, err := m.fit(j, drop)
	return fit, err
}

// Routes returns, by stage of the job, the routing tables with which a job begins that Fit allows; none: nothing is placed.
func (m *Manifest) Routes(j *Job, drop []string) ([][]byte, error) {
	_, routes, err := m.fit(j, drop)
	return routes, err
}

func (m *Manifest) fit(j *Job, drop []string) (map[string]*StageFit, [][]byte, error) {
	switch m.Format {
	case 0:
		fit, err := m.fitSame(j, drop)
		return fit, make([][]byte, len(j.Stages)), err
	case 1, FormatSlots:
	default:
		return nil, nil, fmt.Errorf("savepoint %q of job %q is of format %d, which this program does not know: %w: use a program at least as new as the one that made it", m.Name, m.Job, m.Format, ErrMismatch)
	}
	f := &fitting{man: m, job: j, drop: map[string]bool{}}
	for _, d := range drop {
		f.drop[d] = false
	}
	fit := map[string]*StageFit{}
	for i := range m.Stages {
		if sf := f.stage(&m.Stages[i]); sf != nil {
			fit[sf.From.Name] = sf
		}
	}
	for _, d := range drop {
		if !f.drop[d] {
			f.mismatch("there is nothing to drop by the name %q; it could be %s", d, strings.Join(m.droppable(), ", "))
			f.drop[d] = true
		}
	}
	routes := f.routes(fit)
	if len(f.wrong) > 0 {
		return nil, nil, fmt.Errorf("savepoint %q of job %q: %w: %s", m.Name, m.Job, ErrMismatch, strings.Join(f.wrong, "; "))
	}
	return fit, routes, nil
}

// fitSame is Fit for a savepoint that does not list its tables.
func (m *Manifest) fitSame(j *Job, drop []string) (map[string]*StageFit, error) {
	const remedy = "it was made by a program that did not list tables yet, so only a job of the same plan can start from it. Start with that plan, and make another savepoint to continue under a new one"
	switch {
	case m.Plan != j.Plan:
		return nil, fmt.Errorf("savepoint %q is of a job with plan %s, this one has %s: %w: %s", m.Name, m.Plan, j.Plan, ErrMismatch, remedy)
	case len(drop) > 0:
		return nil, fmt.Errorf("savepoint %q: nothing of it can be dropped: %w: %s", m.Name, ErrMismatch, remedy)
	}
	fit := map[string]*StageFit{}
	for i := range m.Stages {
		s := &m.Stages[i]
		n := j.stage(s.Name)
		if n == nil || len(n.Changes) != s.Groups {
			return nil, fmt.Errorf("savepoint %q: %w: %s", m.Name, ErrMismatch, groupsDiffer(s, n))
		}
		fit[s.Name] = &StageFit{From: s, as: true}
	}
	return fit, nil
}

// droppable returns the names of everything that could be dropped.
func (m *Manifest) droppable() (names []string) {
	for i := range m.Stages {
		s := &m.Stages[i]
		if s.placed() {
			names = append(names, s.Name)
		}
		for _, t := range s.Tables {
			if name := s.Name + "/" + t.Operator; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// fitting is one call of Fit.
type fitting struct {
	man   *Manifest
	job   *Job
	drop  map[string]bool // name → whether it has dropped something
	wrong []string
}

func (f *fitting) mismatch(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(f.wrong, s) {
		f.wrong = append(f.wrong, s)
	}
}

// dropped reports whether one of the names is to be dropped.
func (f *fitting) dropped(names ...string) bool {
	any := false
	for _, n := range names {
		if _, is := f.drop[n]; is {
			f.drop[n], any = true, true
		}
	}
	return any
}

func (f *fitting) stage(s *Stage) *StageFit {
	n := f.job.stage(s.Name)
	if n != nil && (n.Source != s.Source || n.Sink != s.Sink) {
		n = nil
	}
	f.place(s, n)
	sf := &StageFit{From: s, tables: make([]int, len(s.Tables))}
	for i := range s.Tables {
		sf.tables[i] = f.table(s, n, &s.Tables[i])
	}
	if n == nil {
		return nil
	}
	sf.as = len(s.Tables) == len(n.Tables)
	for i, to := range sf.tables {
		sf.as = sf.as && i == to
	}
	if sf.keeps() && s.hashed() != n.hashed() {
		f.mismatch("%s", groupsDiffer(s, n))
	}
	return sf
}

// table returns the number of a table in the job, or -1.
func (f *fitting) table(s *Stage, n *JobStage, t *Table) int {
	what := fmt.Sprintf("stage %q, table %q of operator %q (%s)", s.Name, t.Name, t.Operator, t.Type)
	dropIt := fmt.Sprintf("or drop it (--drop-state %s/%s)", s.Name, t.Operator)
	if f.dropped(s.Name, s.Name+"/"+t.Operator) {
		return -1
	}
	if n == nil {
		f.mismatch("%s: the plan has no such stage%s, %s", what, f.moved(s), dropIt)
		return -1
	}
	i := slices.IndexFunc(n.Tables, func(o Table) bool { return o.Name == t.Name })
	if i < 0 {
		f.mismatch("%s: no operator of the stage has it now; give the operator that continues it the Uid %q, %s", what, t.Operator, dropIt)
		return -1
	}
	to := &n.Tables[i]
	switch was, is := numbered(s.Tables, to.Kind), numbered(n.Tables, to.Kind); {
	case to.Kind != "" && !slices.Equal(was, is):
		f.mismatch("stage %q: of its operators of the kind %q without a Uid there were %d (%s), and there are %d (%s): which one continues which state is ambiguous; give each that had state the Uid that it was named by",
			s.Name, to.Kind, len(was), strings.Join(was, ", "), len(is), strings.Join(is, ", "))
	case !reads(to.Type, t.Type):
		f.mismatch("%s: it is of type (%s) now, which does not read that; use the serdes and windows of before, or newer versions of them (serde.Versions), give the operator another Uid and drop the state of %[3]q, or drop it to begin with an empty table (--drop-state %[4]s/%[3]s)",
			what, to.Type, t.Operator, s.Name)
	default:
		return i
	}
	return -1
}

// versions matches the part of a serde's name that says that it has several versions
// (serde.Versions).
var versions = regexp.MustCompile(`, versions 1 to ([0-9]+)`)

// reads reports whether a table of type now can read what a table of type was has written: the two
// are the same, except that now may have newer versions.
func reads(now, was string) bool {
	if versions.ReplaceAllString(now, "") != versions.ReplaceAllString(was, "") {
		return false
	}
	written := versions.FindAllStringSubmatch(was, -1)
	known := versions.FindAllStringSubmatch(now, -1)
	for i := range written {
		if i == len(known) {
			return false
		}
		w, _ := strconv.Atoi(written[i][1])
		if k, _ := strconv.Atoi(known[i][1]); k < w {
			return false
		}
	}
	return len(written) == len(known)
}

// numbered returns the operators whose ids were derived from their kind.
func numbered(tables []Table, kind string) (ids []string) {
	for _, t := range tables {
		if t.Kind == kind && !slices.Contains(ids, t.Operator) {
			ids = append(ids, t.Operator)
		}
	}
	slices.Sort(ids)
	return ids
}

// place compares the stage's source or sink.
func (f *fitting) place(s *Stage, n *JobStage) {
	if !s.placed() {
		return
	}
	what := "sink"
	if s.Source {
		what = "source"
	}
	switch {
	case n == nil:
		if !f.dropped(s.Name) {
			f.mismatch("%s %q: the plan has no %[1]s of that name; name the one that resumes there %[2]q, or drop its position (--drop-state %[2]s)", what, s.Name)
		}
	case s.Source && s.Groups != len(n.Changes):
		f.mismatch("%s", groupsDiffer(s, n))
	default:
		if _, err := s.Task(0, n.Tasks); err != nil {
			f.mismatch("%v", err)
		}
	}
}

// moved suggests where a stage may have gone that no longer exists.
func (f *fitting) moved(s *Stage) string {
	for _, n := range f.job.Stages {
		if slices.Contains(n.Inputs, s.Name) && n.Name != s.Name {
			return fmt.Sprintf(" (the stream %q is read by stage %q: a stage has the name of the stream that was built first; build %[1]q before its others)", s.Name, n.Name)
		}
	}
	return ""
}

// groupsDiffer says how the key groups of a stage differ from those of a savepoint.
func groupsDiffer(s *Stage, n *JobStage) string {
	if n == nil {
		return fmt.Sprintf("the plan has no stage %q", s.Name)
	}
	what := "key groups"
	if s.Source {
		what = "source partitions"
	}
	return fmt.Sprintf("stage %q has %d %s in the savepoint, and %d here: their number cannot change", s.Name, s.hashed(), what, n.hashed())
}

// placed reports whether a source or a sink of the stage has a position.
func (s *Stage) placed() bool {
	for _, ps := range s.Positions {
		for _, p := range ps {
			if len(p.Value) > 0 || p.Units > 0 || s.Source {
				return true
			}
		}
	}
	return false
}

// stage returns the stage with this name, or nil.
func (j *Job) stage(name string) *JobStage {
	for i := range j.Stages {
		if j.Stages[i].Name == name {
			return &j.Stages[i]
		}
	}
	return nil
}
