package delivery

import (
	"context"
	"errors"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// Last implements sharedlog.Log's Last for this shard. sum is the checksum of the record. It
// returns ErrCorrupt if the index keeps returning a segment that is gone.
func (h *Hub) Last(ctx context.Context, tag sharedlog.Tag, below sharedlog.LSN, trimPoint func(sharedlog.Tag) sharedlog.LSN) (e sharedlog.Entry, sum wire.Sum, ok bool, err error) {
	asked := below
	for try := 0; ; {
		if err := ctx.Err(); err != nil {
			return e, 0, false, err
		}
		// The segments of a closed hub may disappear without a change of its index.
		if err := h.Err(); err != nil {
			return e, 0, false, err
		}
		place, found, err := h.index.Last(tag, min(below, h.Tail()))
		// A segment may be deleted during the query; the index does not return it again.
		if errors.Is(err, sharedlog.ErrTrimmed) && try < pullTries {
			try++
			continue
		}
		if err != nil {
			return e, 0, false, gone(tag, err)
		}
		trim := trimPoint(tag)
		if !found {
			if min(trim, asked) > sharedlog.First {
				return e, 0, false, sharedlog.Errorf(sharedlog.KindTrimmed, "tag %q begins at %d; its last record below %d may have been trimmed", tag, trim, asked)
			}
			return e, 0, false, nil
		}
		g, err := h.Group(place)
		if errors.Is(err, sharedlog.ErrTrimmed) && try < pullTries {
			try++
			continue
		}
		if err != nil {
			return e, 0, false, gone(tag, err)
		}
		// The newest record of the group below that LSN that carries the tag.
		for i := len(g.Records) - 1; i >= 0; i-- {
			lsn := g.First + sharedlog.LSN(i)
			if lsn >= below || !has(g.Records[i].Tags, tag) {
				continue
			}
			if lsn < trim {
				return e, 0, false, sharedlog.Errorf(sharedlog.KindTrimmed, "tag %q begins at %d; its last record below %d was trimmed", tag, trim, asked)
			}
			r := sharedlog.Record{
				Tags: append([]sharedlog.Tag(nil), g.Records[i].Tags...), Data: append([]byte(nil), g.Records[i].Data...),
			}
			return sharedlog.Entry{LSN: lsn, Record: r}, wire.SumOf(g.Sums, i), true, nil
		}
		// The group starts below that LSN, but its record with the tag does not.
		below = g.First
	}
}

// gone returns err, or ErrCorrupt if err says that the index keeps returning a deleted segment.
func gone(tag sharedlog.Tag, err error) error {
	if !errors.Is(err, sharedlog.ErrTrimmed) {
		return err
	}
	return sharedlog.Errorf(sharedlog.KindCorrupt, "newest record of tag %q: the index names a segment that is gone: %v", tag, err)
}

func has(tags []sharedlog.Tag, tag sharedlog.Tag) bool {
	for _, t := range tags {
		if t == tag {
			return true
		}
	}
	return false
}
