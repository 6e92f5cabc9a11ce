package delivery

import (
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// puller reads the groups that a lagging cursor has missed, with the index. It belongs to one
// reading goroutine and reuses its memory.
type puller struct {
	places []tagindex.Place
	groups []Group
}

// next returns the groups with one of tags in [pos, upto), in order: about credit bytes of them, at
// least one if there is any, and the LSN below which there are no others. They are valid until the
// next call.
func (p *puller) next(h *Hub, tags []sharedlog.Tag, pos, upto sharedlog.LSN, credit int64) ([]Group, sharedlog.LSN, error) {
	var frontier sharedlog.LSN
	var err error
	clear(p.groups)
	p.groups = p.groups[:0]
	if p.places, frontier, err = h.index.Find(p.places[:0], tags, pos, upto, credit); err != nil {
		return nil, 0, err
	}
	for _, place := range p.places {
		g, err := h.Group(place)
		if err != nil {
			return nil, 0, err
		}
		p.groups = append(p.groups, g)
	}
	return p.groups, frontier, nil
}

// Group returns an ordered group with effect, from memory or from disk.
func (h *Hub) Group(place tagindex.Place) (Group, error) {
	if g, ok := h.find(place.First); ok {
		return g, nil
	}
	var d segment.Decoded // not reused: the returned group aliases it
	if _, err := h.store.Read(place.Location, nil, &d); err != nil {
		return Group{}, err
	}
	g := Group{First: place.First, Records: d.Group.Records, Sums: d.Sums}
	for i := range g.Records {
		g.Bytes += int64(len(g.Records[i].Data))
	}
	return g, nil
}
