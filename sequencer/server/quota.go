package server

import (
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// Quotas bound the tables that every sequencer, and every storage node, has in memory; a
// negative one is none.
type Quotas struct {
	// MetadataBytes is for keys and values of all, default 64 MiB, OwnerBytes for
	// those of one owner (a job, see sharedlog.Owner), default 16 MiB.
	MetadataBytes int
	OwnerBytes    int
	// TrimTags is how many tags may have a trim point, default 4 000 000.
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

// Quotas returns the limits that hold if this sequencer leads; below 0: none.
func (s *Server) Quotas() Quotas { return s.opt.Quotas }

// QuotaRefused returns how many changes and trims this process has refused for them.
func (s *Server) QuotaRefused() uint64 { return s.quotaRefused.Load() }

// check refuses a change of the metadata, or a trim, that makes a table too large. What makes
// it smaller passes.
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
