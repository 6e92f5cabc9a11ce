package operators

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/serde"
)

// Job is a dataflow under construction. It is built by one goroutine: sources,
// operators and sinks are added to it by this package's functions, and Plan
// ends the building. Mistakes are collected, so that functions need not return
// errors; Plan returns all of them.
type Job struct {
	name    string
	ids     int
	stages  []*stage
	streams []*stream
	names   map[string]string
	// stateful are the operators with state, in the order of their building.
	stateful []*identity
	errs     []error
}

// stage is a StageSpec under construction. Stages that turn out to be one (both
// sides of a join) are united; find returns who stands for all.
type stage struct {
	into   *stage
	id     int
	name   string
	inputs []input
	// outputs are stream ids.
	outputs     []int
	parts       int
	parallelism int
	sink        bool
	base        string // what says which key group a key is in: baseAhead, or a RouteBy; "": its hash
	appends     string
	shapes      []string
	grain       exec.Grain
	paths       int // Grain.Streams
	// roots build what a chain has besides its inputs: the source.
	roots []func(c *chain.Chain) error
}

type input struct {
	stream int
	build  func(c *chain.Chain) chain.SectionReader
}

type stream struct {
	spec exec.StreamSpec
	from *stage
	to   *stage
	// forward: items stay in their key group, the stream is Forward's.
	forward bool
}

// NewJob returns an empty job.
func NewJob(name string) *Job {
	j := &Job{name: name, names: map[string]string{}}
	if name == "" {
		j.errorf("the job has no name")
	}
	return j
}

func (j *Job) errorf(format string, args ...any) {
	j.errs = append(j.errs, fmt.Errorf("job %q: "+format, append([]any{j.name}, args...)...))
}

func (j *Job) nextID() int { j.ids++; return j.ids }

// claim reserves a name that the user gave to a source, stream, sink or state.
func (j *Job) claim(kind, name string) {
	switch other, taken := j.names[name]; {
	case name == "":
		j.errorf("a %s has no name", kind)
	case taken:
		j.errorf("%s %q: there is a %s of that name", kind, name, other)
	default:
		j.names[name] = kind
	}
}

func (j *Job) newStage(name string) *stage {
	st := &stage{id: len(j.stages), name: name}
	j.stages = append(j.stages, st)
	return st
}

func (st *stage) find() *stage {
	for st.into != nil {
		st = st.into
	}
	return st
}

// unite makes a and b one stage, named after the older.
func (j *Job) unite(a, b *stage, why string) *stage {
	a, b = a.find(), b.find()
	if a == b {
		return a
	}
	if a.id > b.id {
		a, b = b, a
	}
	if a.parts > 0 || b.parts > 0 {
		j.errorf("%s: %q and %q cannot be one stage, a source has its own; repartition (KeyBy, Rebalance) first", why, a.name, b.name)
	}
	if a.parallelism != 0 && b.parallelism != 0 && a.parallelism != b.parallelism {
		j.errorf("%s: %q has parallelism %d, %q has %d", why, a.name, a.parallelism, b.name, b.parallelism)
	}
	a.parallelism = max(a.parallelism, b.parallelism)
	a.inputs = append(a.inputs, b.inputs...)
	a.outputs = append(a.outputs, b.outputs...)
	a.roots = append(a.roots, b.roots...)
	a.sink, a.base = a.sink || b.sink, cmp.Or(a.base, b.base)
	if a.grain.Kind == "" {
		a.grain = b.grain // streams that have different ones do not meet (sameGrain)
	}
	a.paths = max(a.paths, b.paths)
	b.into = a
	return a
}

// sameJob records an error if two flows belong to different jobs.
func sameJob(a, b *Job, what string) {
	if a != b {
		a.errorf("%s: the other flow belongs to job %q", what, b.name)
	}
}

// sameKeys: keyed flows that meet in one operator encode keys alike. Whether two keys are
// one is decided by Go, but where a key goes by its encoding: equal keys of different
// encodings would never meet. (Key groups are compared when the plan is made, checkGroups,
// and there is one hash.)
func sameKeys[K any](j *Job, what string, keys ...serde.Serde[K]) {
	for _, k := range keys[1:] {
		if a, b := serde.NameOf(keys[0]), serde.NameOf(k); a != b {
			j.errorf("%s: the keys of one side are encoded as %s, of another as %s, and equal keys would not meet: use one serde for all", what, a, b)
		}
	}
}

// Plan cuts the job at its repartitions and returns the plan, or everything
// that is wrong with the job, joined. The job must not be changed afterwards.
func (j *Job) Plan() (*Plan, error) {
	p := &Plan{Name: j.name}
	j.nameTables()
	for _, s := range j.streams {
		p.Streams = append(p.Streams, s.spec)
	}
	sinks := 0
	var stages []*stage // of p
	for _, st := range j.stages {
		if st.into != nil {
			continue
		}
		j.checkGroups(st)
		spec := exec.StageSpec{
			Name: st.name, Outputs: st.outputs, Partitions: st.parts,
			Parallelism: st.parallelism, Sink: st.sink, Appends: st.appends, Shape: strings.Join(st.shapes, "; "),
		}
		if st.grain.Kind != "" {
			st.grain.Streams = st.paths
			spec.Grain = &st.grain
		}
		for _, in := range st.inputs {
			spec.Inputs = append(spec.Inputs, in.stream)
		}
		built := chain.Stage{Name: st.name, Outputs: st.outputs, Streams: spec.Inputs, Roots: st.roots, Auto: st.grain.Kind == exec.GrainAuto}
		for _, in := range st.inputs {
			built.Inputs = append(built.Inputs, in.build)
		}
		spec.New = func(rt Runtime) (exec.Chain, error) { return chain.New(built, rt) }
		if st.sink {
			sinks++
		}
		p.Stages, stages = append(p.Stages, spec), append(stages, st)
	}
	if sinks == 0 {
		j.errorf("there is no sink: the job would never finish")
	}
	if stream, into := p.Cycle(); stream >= 0 {
		j.errorf("stream %q leads back into stage %q: repartition the join's other side under a name of its own", p.Streams[stream].Name, p.Stages[into].Name)
	}
	if len(j.errs) == 0 {
		j.listTables(p, stages)
	}
	if len(j.errs) > 0 {
		return nil, errors.Join(j.errs...)
	}
	return p, nil
}

// listTables builds a chain of each stage, which never runs, to find its state tables.
func (j *Job) listTables(p *Plan, stages []*stage) {
	for i := range p.Stages {
		c, err := p.Stages[i].New(chain.NoRuntime{})
		if err != nil {
			j.errs = append(j.errs, fmt.Errorf("job %q: %w", j.name, err))
			continue
		}
		for _, t := range c.Tables() {
			spec := exec.TableSpec{Name: t.Name(), Type: t.(interface{ Describe() string }).Describe() + stages[i].routed()}
			spec.Operator, spec.Kind = j.ownerOf(p.Stages[i].Name, spec.Name)
			p.Stages[i].Tables = append(p.Stages[i].Tables, spec)
		}
	}
}

// checkGroups checks that the inputs of each stage have the same partitioning.
func (j *Job) checkGroups(st *stage) {
	for i, in := range st.inputs {
		a, b := j.streams[st.inputs[0].stream].spec, j.streams[in.stream].spec
		if i > 0 && a.Groups != b.Groups {
			j.errorf("streams %q (%s) and %q (%s) meet in one stage and must have the same number of key groups",
				a.Name, groupCount(a.Groups), b.Name, groupCount(b.Groups))
		}
	}
}

func groupCount(n int) string {
	if n == 0 {
		return "the job's setting"
	}
	return fmt.Sprintf("%d key groups", n)
}
