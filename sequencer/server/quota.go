package server

import (
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// Quotas bounds the tables that every sequencer, and every storage node, has in memory. Negative:
// no limit.
type Quotas struct {
	// MetadataBytes bounds all metadata keys and values together, default 64 MiB; OwnerBytes those
	// of one owner (a job, see sharedlog.Owner), default 16 MiB.
	MetadataBytes int
	OwnerBytes    int
	// TrimTags bounds the number of tags with a trim point, default 4 000 000.
	TrimTags int
}

func (q Quotas) withDefaults() Quotas {
	for _, f := range []struct {
		value *int
		or    int
	}{{&q.MetadataBytes, 64 << 20}, {&q.OwnerBytes, 16 << 20}, {&q.TrimTags, 4_000_000}} {
		if *f.value == 0 {
			*f.value = f.or
		}
	}
	return q
}

// Quotas returns the limits that apply if this sequencer leads; negative: none.
func (s *Server) Quotas() Quotas { return s.opt.Quotas }

// QuotaRefused returns the number of changes and trims that this process has refused because of
// Quotas.
func (s *Server) QuotaRefused() uint64 { return s.quotaRefused.Load() }

// check returns an error for a change of the metadata, or a trim, that makes a table too large.
// Changes that make it smaller pass.
func (q Quotas) check(state *sequencer.State, e sequencer.Entry) error {
	w := state.Weight()
	switch e.Kind {
	case sequencer.KindChange:
		bytes := len(e.Key) + len(e.New)
		if old := state.Value(e.Key); len(old) > 0 {
			bytes -= len(e.Key) + len(old)
		}
		owner := sharedlog.Owner(e.Key)
		switch owned := state.Owned(owner); {
		case len(e.New) == 0 || bytes <= 0:
		case q.OwnerBytes >= 0 && owned+bytes > q.OwnerBytes:
			return sharedlog.Errorf(sharedlog.KindQuota, "%q has %d bytes of metadata, and metadata key %q would make more than the %d that the sequencers allow one owner (--owner-metadata-bytes): delete keys, or raise the limit at all sequencers",
				owner, owned, e.Key, q.OwnerBytes)
		case q.MetadataBytes >= 0 && w.KeyBytes+bytes > q.MetadataBytes:
			return sharedlog.Errorf(sharedlog.KindQuota, "there are %d bytes of metadata (%d of %q), and metadata key %q would make more than the %d that the sequencers allow (--metadata-bytes): delete jobs or keys that are not used, or raise the limit at all sequencers",
				w.KeyBytes, owned, owner, e.Key, q.MetadataBytes)
		}
	case sequencer.KindTrim:
		if q.TrimTags >= 0 && w.Trims >= q.TrimTags && e.Before > state.Floor() && state.TrimPoint(e.Tag) == 0 {
			return sharedlog.Errorf(sharedlog.KindQuota, "%d tags have a trim point, and tag %q (of %q) would be one more than the sequencers allow (--trim-tags): trim all tags up to where the log is not needed, so that their points are forgotten, use fewer tags, or raise the limit at all sequencers",
				w.Trims, e.Tag, sharedlog.Owner(string(e.Tag)))
		}
	}
	return nil
}
