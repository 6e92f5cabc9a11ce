package exec

// Mark records the contents of an Output at a moment, so that later additions can be undone.
type Mark struct {
	bytes, gone int
	sections    []sectionMark
}

type sectionMark struct {
	group, items, bytes int
	last                int64
}

// Mark sets m to the output's present contents.
func (o *Output) Mark(m *Mark) {
	m.bytes, m.gone, m.sections = o.bytes, o.gone, m.sections[:0]
	for _, g := range o.touched {
		s := &o.sections[g]
		m.sections = append(m.sections, sectionMark{g, s.Items, len(s.Data), s.Last})
	}
}

// Undo removes what was added since a mark. It returns false, and does nothing, if some of that has
// left the output.
func (o *Output) Undo(m *Mark) bool {
	if o.gone != m.gone {
		return false
	}
	for _, g := range o.touched[len(m.sections):] {
		s := &o.sections[g]
		s.Items, s.Data, s.Last = 0, s.Data[:0], 0
	}
	for i, was := range m.sections {
		s := &o.sections[was.group]
		s.Items, s.Data, s.Last = was.items, s.Data[:was.bytes], was.last
		o.touched[i] = was.group
	}
	o.touched, o.bytes = o.touched[:len(m.sections)], m.bytes
	return true
}
