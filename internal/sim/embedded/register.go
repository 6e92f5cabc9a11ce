package embedded

import (
	"tailrace.dev/tailrace/sharedlog"
)

// register is a metadata key. No value is set twice, so the replacements form a chain. The
// operations are linearizable if each value is in the chain and no operation found a value that had
// been replaced before the operation began.
type register struct {
	changes []*change
	value   string // at the time of Open
}

// change is a compare-and-set that was made, or that may have been made.
type change struct {
	old, value string
	place      sharedlog.LSN // 0: unknown
	from, to   int           // when it began, and when it was known to be made
}

func (t *truth) register(key string) *register {
	if t.keys[key] == nil {
		t.keys[key] = &register{}
	}
	return t.keys[key]
}

// setting records that a change is requested.
func (t *truth) setting(key, old, value string) *change {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	c := &change{old: old, value: value, from: t.clock}
	r := t.register(key)
	r.changes = append(r.changes, c)
	return c
}

// set records the outcome of a change.
func (t *truth) set(key string, c *change, got sharedlog.Change, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return
	}
	r := t.register(key)
	t.clock++
	switch kind := sharedlog.KindOf(err); {
	case err == nil:
		t.counts["changes"]++
		c.place, c.to = got.Place, t.clock
		t.holds(key, c.old, c.from, "a change")
		for _, other := range r.changes {
			if other != c && other.to != 0 && other.old == c.old {
				t.fail("keys", "%s: %q was replaced by %q at %d and by %q at %d", key, c.old, other.value, other.place, c.value, c.place)
			}
		}
		return
	case kind == sharedlog.KindConflict:
		t.counts["conflicts"]++
		t.holds(key, string(got.Value), c.from, "a conflict")
		if string(got.Value) == c.old {
			t.fail("keys", "%s: a change from %q failed, which it holds", key, c.old)
		}
	case kind == sharedlog.KindFull, kind == sharedlog.KindReadOnly:
	case kind == sharedlog.KindClosed, kind == sharedlog.KindUnknown:
		return // it may have been made
	default:
		t.fail("errors", "%s: %v", key, err)
	}
	c.from = 0 // it was not made
}

// holds checks the value that an operation found, given when it began. Called with mu held.
func (t *truth) holds(key, value string, began int, who string) {
	r := t.register(key)
	known := value == r.value
	for _, c := range r.changes {
		if c.from != 0 && c.value == value {
			known = true
		}
		if c.to != 0 && c.to <= began && c.old == value {
			t.fail("keys", "%s of %s meets %q, which %q had replaced before", who, key, value, c.value)
		}
	}
	if !known {
		t.fail("keys", "%s of %s meets %q, which no client has set", who, key, value)
	}
}

// refusedFor checks that a group had to be without effect. Called with mu held.
func (t *truth) refusedFor(g *group) {
	for _, c := range t.register(g.cond.Key).changes {
		if c.from != 0 && c.old == string(g.cond.Value) {
			return
		}
	}
	t.fail("conditions", "%s is void, and no client has replaced %s = %q", g, g.cond.Key, g.cond.Value)
}

// conditions checks the groups with effect. Called with mu held.
func (t *truth) conditions() {
	for _, g := range t.order {
		if g.first == 0 || g.cond.Key == "" {
			continue
		}
		for _, c := range t.register(g.cond.Key).changes {
			if c.place != 0 && (c.old == string(g.cond.Value) && g.first >= c.place || c.value == string(g.cond.Value) && g.first < c.place) {
				t.fail("conditions", "%s lies at %d under %s = %q, and that was changed from %q to %q at %d", g, g.first, g.cond.Key, g.cond.Value, c.old, c.value, c.place)
			}
		}
	}
}

// reopened checks what a key holds after Open: every acknowledged change, or, after a loss, every
// one below the tail. Changes that do not lead to the value are forgotten.
func (t *truth) reopened(key, value string, lost bool, tail sharedlog.LSN) {
	r := t.register(key)
	chain := map[string]*change{}
	for _, c := range r.changes {
		if c.from != 0 {
			if chain[c.value] != nil {
				t.fail("keys", "%s: %q was set twice", key, c.value)
			}
			chain[c.value] = c
		}
	}
	var left []*change
	for v := value; v != r.value; v = left[len(left)-1].old {
		c := chain[v]
		if c == nil || len(left) > len(chain) {
			t.fail("keys", "%s holds %q when the log is opened, which does not follow from %q", key, value, r.value)
			break
		}
		left = append(left, c)
	}
	for _, c := range r.changes {
		if c.to == 0 {
			continue
		}
		there := false
		for _, l := range left {
			there = there || l == c
		}
		if !there && (!lost || c.place < tail) {
			t.fail("keys", "%s holds %q when the log is opened at %d, and was set to %q at %d", key, value, tail, c.value, c.place)
		}
	}
	// The conditions of earlier groups are checked against the remaining changes.
	r.changes, r.value = nil, value
}
