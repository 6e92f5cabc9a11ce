package envelope

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse passes any bytes to the parser of their kind. What a parser accepts must have the same
// meaning after being written again: Append and Parse agree on every value that can be read at all.
func FuzzParse(f *testing.F) {
	for _, g := range golden {
		data := unhex(f, g.bytes)
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Add(unhex(f, oldChanges))
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, err := KindOf(data)
		if err != nil {
			return
		}
		switch kind {
		case Data, Changes:
			got, err := parseSectioned(data)
			if err != nil {
				return
			}
			s := got.(*sectioned)
			again := s.Append(nil)
			require.Equal(t, again, new(Packer).Pack(s.Kind, s.Header, s.Sections))
			require.Equal(t, s.Header.version(kind), again[1])
			again[1] = data[1]
			require.Equal(t, data, again, "sections have one form only")
		case KindMarker:
			var m, again Marker
			if m.Parse(data) != nil {
				return
			}
			canonical := m.Append(nil)
			require.NoError(t, again.Parse(canonical))
			require.Equal(t, canonical, again.Append(nil))
			requireSameMarker(t, &m, &again)
		case KindProducers:
			var p, again Producers
			if p.Parse(data) != nil {
				return
			}
			require.NoError(t, again.Parse(p.Append(nil)))
			require.Equal(t, p, again)
		case KindCheckpoint:
			var c, again Checkpoint
			if c.Parse(data) != nil {
				return
			}
			canonical := c.Append(nil)
			require.NoError(t, again.Parse(canonical))
			require.Equal(t, canonical, again.Append(nil))
		case KindPlan:
			var p, again Plan
			if p.Parse(data) != nil {
				return
			}
			canonical := p.Append(nil)
			require.NoError(t, again.Parse(canonical))
			require.Equal(t, canonical, again.Append(nil))
		}
	})
}
