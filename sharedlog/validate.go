package sharedlog

// Validate checks what can be checked without a log: limits, empty groups, records without tags,
// repeated tags, and tags that belong to a job. All implementations call it, so all of them refuse
// the same groups.
func (g *Group) Validate() error {
	switch {
	case g.Writer == "" || len(g.Writer) > MaxNameBytes:
		return Errorf(KindInvalid, "writer name has %d bytes, 1 to %d are allowed", len(g.Writer), MaxNameBytes)
	case g.Number == 0:
		return Errorf(KindInvalid, "writer %q: group number 0; numbers start at 1", g.Writer)
	case len(g.Records) == 0:
		return Errorf(KindInvalid, "writer %q: group %d has no records", g.Writer, g.Number)
	case len(g.If.Key) > MaxNameBytes || len(g.If.Value) > MaxValueBytes:
		return Errorf(KindInvalid, "writer %q: condition too long", g.Writer)
	}
	tags, bytes, job := 0, 0, g.jobOf()
	for i := range g.Records {
		r := &g.Records[i]
		if err := validateTags(r.Tags); err != nil {
			return Errorf(KindInvalid, "writer %q: group %d, record %d: %w", g.Writer, g.Number, i, err)
		}
		for _, t := range r.Tags {
			if Reserved(string(t)) && !g.Force {
				if err := checkReserved(t, job); err != nil {
					return Errorf(KindInvalid, "writer %q: group %d, record %d: %w", g.Writer, g.Number, i, err)
				}
			}
		}
		tags += len(r.Tags)
		bytes += len(r.Data)
	}
	if tags > MaxGroupTags {
		return Errorf(KindInvalid, "writer %q: group %d has %d tags, at most %d are allowed", g.Writer, g.Number, tags, MaxGroupTags)
	}
	if bytes > MaxGroupBytes {
		return Errorf(KindInvalid, "writer %q: group %d has %d bytes, at most %d are allowed", g.Writer, g.Number, bytes, MaxGroupBytes)
	}
	return nil
}

// Validate checks a reader's options.
func (o *ReaderOptions) Validate() error { return validateTags(o.Tags) }

func validateTags(tags []Tag) error {
	if len(tags) == 0 {
		return Errorf(KindInvalid, "no tags")
	}
	for i, t := range tags {
		if t == "" || len(t) > MaxTagBytes {
			return Errorf(KindInvalid, "tag of %d bytes, 1 to %d are allowed", len(t), MaxTagBytes)
		}
		if i < 16 { // a few tags: compare them; more: use the map below
			for _, u := range tags[:i] {
				if t == u {
					return Errorf(KindInvalid, "tag %q occurs twice", t)
				}
			}
		}
	}
	if len(tags) > 16 {
		seen := make(map[Tag]struct{}, len(tags))
		for _, t := range tags {
			if _, dup := seen[t]; dup {
				return Errorf(KindInvalid, "tag %q occurs twice", t)
			}
			seen[t] = struct{}{}
		}
	}
	return nil
}
