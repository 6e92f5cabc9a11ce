package operators

import (
	"fmt"
	"reflect"

	"tailrace.dev/tailrace/operators/internal/chain"
)

// router is the option RouteBy; of is a chain.Router of the keys.
type router struct {
	name string
	of   any
}

// RouteBy is an option of KeyBy, PreAggregate and GlobalMerge that says which key group a key is in: the one
// that group returns, in [0, groups), for the same key always the same. Without it that is the group of the hash
// of the encoded key, which makes groups about equal. group must not keep the key.
//
// The name stands for the function: streams that meet in one operator have one RouteBy of the same name, or none.
// A job that is started again, and one that begins from its savepoint, must have the name that the state was written
// with. Such streams have no slots, and a rescaled task waits for whole key groups.
//
//	byDistrict := operators.RouteBy("district", func(s *Sensor, groups int) int { return s.District % groups })
func RouteBy[K any](name string, group func(key *K, groups int) int) RouteOption {
	return func(o *routeOptions) {
		if o.router = (router{name, chain.Router[K](group)}); group == nil || name == "" {
			o.bad = "RouteBy needs a name and a function"
		}
	}
}

// Modulo is RouteBy for keys that are integers: a key is in the group that is its remainder by their number. Keys
// in a row make groups equal; those that have a divisor in common with the number leave groups empty.
func Modulo[K ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64]() RouteOption {
	return RouteBy("modulo", func(key *K, groups int) int {
		if *key < 0 {
			return (int(int64(*key)%int64(groups)) + groups) % groups
		}
		return int(uint64(*key) % uint64(groups))
	})
}

// routedBy takes the RouteBy of a stream with keys K out of its options; nil: there is none.
func routedBy[K any](j *Job, name string, o *routeOptions) chain.Router[K] {
	r := o.router
	if o.router = (router{}); r.of == nil {
		return nil
	}
	by, ok := r.of.(chain.Router[K])
	if !ok {
		j.errorf("stream %q: RouteBy has a function of %v, for keys that are %v", name, reflect.TypeOf(r.of).In(0).Elem(), reflect.TypeFor[K]())
	}
	o.base = fmt.Sprintf("RouteBy %q", r.name)
	return by
}

// baseAhead is the base of a stage whose key groups are the partitions of KeyAhead.
const baseAhead = "KeyAhead"

// routed returns what RouteBy, or KeyAhead, adds to the types of a stage's inputs and tables.
func (st *stage) routed() string {
	if st.base == "" {
		return ""
	}
	return ", key groups by " + st.base
}

// sameGroups records an error if two keyed streams that meet in one operator have a key in different
// key groups.
func (j *Job) sameGroups(what string, a, b *stage) {
	switch a, b := a.find().base, b.find().base; {
	case a == b:
	case a == baseAhead || b == baseAhead:
		j.errorf("%s: one of the streams that meet there is KeyAhead, and the other is not, so that equal keys would not meet: use KeyBy or KeyAhead for all", what)
	default:
		j.errorf("%s: one of the streams that meet there has %s, and the other one %s, so that equal keys would not meet: use the same for all", what, orHash(a), orHash(b))
	}
}

func orHash(base string) string {
	if base == "" {
		return "no RouteBy"
	}
	return base
}
