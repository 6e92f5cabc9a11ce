package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Holds is the predicate number fn.
func Holds(fn int, r *Row) bool {
	switch fn % 6 {
	case 0:
		return r.N%2 == 0
	case 1:
		return r.N%3 != 1
	case 2:
		return len(r.K) < 2
	case 3:
		return true
	case 4:
		return r.hash()%4 != 0
	default:
		return r.N < 0
	}
}

// Mapped is the mapping number fn. The odd ones leave K as it is.
func Mapped(fn int, r *Row) Row {
	switch fn % 6 {
	case 0:
		return Row{r.K + "'", r.N, r.S}
	case 1:
		return Row{r.K, r.N + 1, r.S}
	case 2:
		return Row{strconv.FormatInt(r.N%5, 10), int64(len(r.K)), r.S}
	case 3:
		return Row{r.K, r.N * 3, ""}
	case 4:
		return Row{r.K[:min(1, len(r.K))], r.N, r.K}
	default:
		return Row{r.K, int64(len(r.S)), r.S[len(r.S)/2:]} // a part of the item
	}
}

// KeepsK says that mapping fn leaves K as it is.
func KeepsK(fn int) bool { return fn%2 == 1 }

// FilterMapped is predicate and mapping in one.
func FilterMapped(fn int, r *Row) (Row, bool) { return Mapped(fn, r), Holds(fn/6, r) }

// Exploded calls emit for what flat mapping fn makes of a row.
func Exploded(fn int, r *Row, emit func(Row)) {
	n := 0
	switch fn % 5 {
	case 0:
		n = int((r.N%4 + 4) % 4)
	case 1:
		n = 2
	case 2:
		n = len(strings.Fields(r.K)) + 1
	case 3:
		n = 12
	default:
		n = 40
	}
	for i := range n {
		emit(Row{r.K, r.N*8 + int64(i), r.S})
	}
}

// Fan is how many rows flat mapping fn makes of one, at most.
func Fan(fn int) int { return []int{3, 2, 3, 12, 40}[fn%5] }

// Joined is the joining function number fn.
func Joined(fn int, l, r *Row) Row {
	if fn%2 == 0 {
		return Row{short(l.K + "+" + r.K), l.N*31 + r.N, l.S[:min(8, len(l.S))] + r.S[:min(8, len(r.S))]}
	}
	return Row{l.K, l.N - r.N, l.S + r.S}
}

// Alone is what a left join makes of a row without a partner.
func Alone(l *Row) Row { return Row{l.K, -1, l.S} }

// RightAlone is what an outer join makes of a right row without a partner.
func RightAlone(r *Row) Row { return Row{r.K, -2, r.S} }

// Greater folds v into acc: the greater row remains.
func Greater(acc, v *Row) {
	if v.N > acc.N || v.N == acc.N && (v.K > acc.K || v.K == acc.K && v.S > acc.S) {
		*acc = *v
	}
}

// Unkeyed is what Unkey makes of an item.
func Unkeyed(fn int, k Key, r *Row) Row {
	if fn%2 == 0 {
		return *r
	}
	return Row{k.Text(), r.N, r.S}
}

// Numbered is what Number makes of the n-th item of a key.
func Numbered(n int64) Row { return Row{"#", n, ""} }

// Stamped is a row with its time.
func Stamped(t int64, r *Row) Row { return Row{r.K, r.N, fmt.Sprintf("@%d %s", t, short(r.S))} }

// Ticked is what Timers emits at t for the n items, of this sum, that are older than a step.
func Ticked(t int64, n int, sum int64) Row {
	return Row{strconv.FormatInt(t, 10), int64(n), strconv.FormatInt(sum, 10)}
}

// GapOf is the gap behind a row in sessions that have one by item, of Gap's size.
func GapOf(fn int, gap int64, r *Row) int64 {
	return max(gap*(1+int64((r.hash()>>(fn%8))%4))/2, 1)
}

// The kinds of updates.
const (
	Insert       = "+I"
	UpdateBefore = "-U"
	UpdateAfter  = "+U"
	Delete       = "-D"
)

// Updated is the row of an update.
func Updated(kind string, r *Row) Row { return Row{r.K, r.N, kind + " " + r.S} }

// AddTo folds v into a row that is a sum, or takes it out (sign −1). The order does not matter.
func AddTo(acc, v *Row, sign int64) {
	var hash uint64
	if acc.S != "" {
		hash, _ = strconv.ParseUint(acc.S, 16, 64)
	}
	acc.N += sign * v.N
	acc.S = strconv.FormatUint(hash+uint64(sign)*v.hash(), 16)
}

// Sided is what the side output of Split makes of a number.
func Sided(n int64) Row { return Row{"side", n, ""} }

// TallyKey is the key in the map of Tallies that a row goes to.
func TallyKey(r *Row) int64 { return modulo(r.N, 5) }

// What Tallies does to its map in the order of time.
const (
	TallyAdd = iota
	TallyPut
	TallyDelete
	TallyClear
	TallyRead
)

// TallyDo says what a row does to the map.
func TallyDo(r *Row) int {
	switch modulo(int64(r.hash()>>1), 11) {
	case 0:
		return TallyClear
	case 1, 2:
		return TallyDelete
	case 3:
		return TallyRead
	case 4, 5:
		return TallyPut
	}
	return TallyAdd
}

// Tallied is the row for a map with these entries, k=v.
func Tallied(entries []string) Row {
	return Row{"tally", int64(len(entries)), strings.Join(entries, " ")}
}

// TallyEntry is an entry of the map in a row.
func TallyEntry(k, v int64) string { return fmt.Sprintf("%d=%d", k, v) }

// What Lists does to its list.
const (
	ListAdd = iota
	ListDrop
	ListDelete
	ListRead
)

// ListDo says what a row does to the list.
func ListDo(r *Row) int {
	switch modulo(int64(r.hash()>>1), 13) {
	case 0:
		return ListDelete
	case 1, 2:
		return ListDrop
	case 3:
		return ListRead
	}
	return ListAdd
}

// ListBack is how far before its item a row adds to the list, and what is older than that is dropped.
func ListBack(gap int64, r *Row) int64 { return int64((r.hash()>>5)%4) * gap / 2 }

// Listed is the row for a list with these entries, t/n.
func Listed(entries []string) Row {
	return Row{"list", int64(len(entries)), strings.Join(entries, " ")}
}

// ListEntry is an entry of the list in a row.
func ListEntry(t, n int64) string { return fmt.Sprintf("%d/%d", t, n) }

// TallyMost is the count at which Tallies, when items are not in order, deletes an entry.
const TallyMost = 3

// TallyCount is the row for the n-th item of an entry.
func TallyCount(k, n int64) Row { return Row{strconv.FormatInt(k, 10), n, ""} }

// Probed is what Ending's timer finds.
func Probed(t, n int64) Row { return Row{"probe", n, strconv.FormatInt(t, 10)} }

func modulo(a, b int64) int64 { return (a%b + b) % b }

// KeyKind is a type of keys, with a serde.
type KeyKind string

// The kinds of keys. Those that stand together are of one Go type.
const (
	KeyString   KeyKind = "string"
	KeyString16 KeyKind = "string16" // its length as two bytes
	KeyBytes4   KeyKind = "bytes4"   // four bytes, nothing before them
	KeyUnit     KeyKind = "unit"     // one key for all, of no bytes
	KeyInt64    KeyKind = "int64"
	KeyInt64BE  KeyKind = "int64be" // eight bytes
	KeyPair     KeyKind = "pair"    // serde.Tuple
	KeyJSON     KeyKind = "json"    // the same, as a document
)

// KeyKinds returns all of them.
func KeyKinds() []KeyKind {
	return []KeyKind{KeyString, KeyString16, KeyInt64, KeyInt64BE, KeyBytes4, KeyPair, KeyJSON, KeyUnit}
}

// StringKinds returns those whose Go type is string.
func StringKinds() []KeyKind { return []KeyKind{KeyString, KeyString16, KeyBytes4, KeyUnit} }

// GoType names the type of a kind's keys.
func (k KeyKind) GoType() string {
	switch k {
	case KeyString16, KeyBytes4, KeyUnit:
		return string(KeyString)
	case KeyInt64BE:
		return string(KeyInt64)
	case KeyJSON:
		return string(KeyPair)
	}
	return string(k)
}

// Key is a key of any kind; what the kind does not have is zero.
type Key struct {
	S string
	I int64
}

// Text is the key in a line of a sink.
func (k Key) Text() string { return fmt.Sprintf("%q/%d", short(k.S), k.I) }

// KeyOf is what function fn makes of a row, as a key of this kind.
func KeyOf(kind KeyKind, fn int, r *Row) Key {
	var k Key
	switch fn % 5 {
	case 0:
		k = Key{r.K, int64(Hash(r.K) % 1000)}
	case 1:
		k = Key{r.K + strconv.FormatInt(r.N%3, 10), r.N % 7}
	case 2:
		k = Key{r.K[:min(1, len(r.K))], int64(len(r.K))}
	case 3:
		k = Key{"all", 0}
	default:
		k = Key{strconv.FormatUint(r.hash()%50, 10), int64(r.hash() % 50)}
	}
	switch kind {
	case KeyString, KeyString16:
		k.I = 0
	case KeyInt64, KeyInt64BE:
		k.S = ""
	case KeyBytes4:
		var b [4]byte
		copy(b[:], k.S)
		k = Key{S: string(b[:])}
	case KeyPair:
	case KeyJSON:
		k.S = fmt.Sprintf("%x", k.S) // a document holds no invalid UTF-8
	case KeyUnit:
		k = Key{}
	}
	return k
}

// OfK says that key function fn, as this kind, is a function of Row.K alone, by which
// different K have different keys.
func OfK(kind KeyKind, fn int) bool {
	return fn%5 == 0 && (kind == KeyString || kind == KeyString16 || kind == KeyPair || kind == KeyJSON)
}
