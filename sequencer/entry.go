package sequencer

import (
	"encoding/binary"
	"errors"

	"tailrace.dev/tailrace/sharedlog"
)

// ShardID identifies a shard. State.Apply assigns ids from 1 on and never reuses them.
type ShardID uint32

// Kind is the kind of an Entry.
type Kind uint8

// The kinds of entries. The numbers are on disk.
const (
	KindCut        Kind = 1 // Cut
	KindChange     Kind = 2 // Key, Old, New
	KindOpen       Kind = 3 // Incarnation, Addrs
	KindSeal       Kind = 4 // Shard
	KindTrim       Kind = 5 // Tag, Before
	KindGeneration Kind = 6 // nothing: the order continues after a power failure
	KindPlace      Kind = 7 // Shard, Addrs: the replicas of a sealed shard from now on

	// Since level 2:
	KindNode      Kind = 8  // Node: a storage node's state
	KindRescue    Kind = 9  // Shard, Length: the positions of a sealed shard from Length on are lost
	KindForget    Kind = 10 // Shards, Floor: nothing is left in the sealed shards; no record is below Floor
	KindLevel     Kind = 11 // Level: every process supports it, and it may be used from now on
	KindSequencer Kind = 12 // Sequencer: a member of the sequencers
)

// Level returns the feature level that a program must support to read entries of kind k; 0 for a
// kind that this program does not know.
func (k Kind) Level() uint32 {
	switch {
	case k >= KindCut && k <= KindPlace:
		return 1
	case k >= KindNode && k <= KindSequencer:
		return 2
	}
	return 0
}

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindCut:
		return "cut"
	case KindChange:
		return "change"
	case KindOpen:
		return "open"
	case KindSeal:
		return "seal"
	case KindTrim:
		return "trim"
	case KindGeneration:
		return "generation"
	case KindPlace:
		return "place"
	case KindNode:
		return "node"
	case KindRescue:
		return "rescue"
	case KindForget:
		return "forget"
	case KindLevel:
		return "level"
	case KindSequencer:
		return "sequencer"
	}
	return "unknown"
}

// Length is the number of records of a shard's sublog that are covered, always at the end of a
// group.
type Length struct {
	Shard  ShardID
	Length uint64
}

// Entry is one entry of the metalog. Only the fields listed at its Kind are meaningful. Entries are
// values; their slices must not be changed after they were proposed.
type Entry struct {
	Kind Kind
	// Cut holds the shards that advanced, ids strictly ascending.
	Cut []Length
	// Key is set to New if its value is Old (empty = absent).
	Key      string
	Old, New []byte
	// Incarnation is the number of the primary process; reports of any other process are ignored.
	// Addrs are opaque: the primary's first, then the backups'.
	Incarnation uint64
	Addrs       [][]byte
	Shard       ShardID
	// Before is the new trim point of Tag: its records below are not needed any more.
	Tag    sharedlog.Tag
	Before sharedlog.LSN
	// Length (rescue) is the end of a group; the records of Shard from this
	// position on are lost.
	Length uint64
	// Shards (forget) are sealed and all their records are trimmed; ids strictly ascending. No
	// record of any shard has an LSN below Floor.
	Shards    []ShardID
	Floor     sharedlog.LSN
	Level     uint32
	Node      Node
	Sequencer Sequencer
}

// ErrEncoding is returned for bytes that no Append function of this package has encoded. Framing
// and checksums are up to the caller.
var ErrEncoding = errors.New("sequencer: malformed encoding")

// AppendEntry appends e's encoding to dst:
//
//	entry      = kind(1 byte) body
//	cut        = n { shard length }      n ≥ 1, shard ids strictly ascending
//	change     = key old new
//	open       = incarnation n { addr }
//	seal       = shard
//	trim       = tag before
//	generation = (nothing)
//	place      = shard n { addr }
//	node       = addr state
//	rescue     = shard length
//	forget     = floor n { shard }       shard ids strictly ascending
//	level      = level
//	sequencer  = id addr store state
//
// Numbers are minimal uvarints; strings are encoded as their length (uvarint) and bytes. Each entry
// has exactly one encoding.
func AppendEntry(dst []byte, e Entry) []byte {
	dst = append(dst, byte(e.Kind))
	switch e.Kind {
	case KindCut:
		dst = binary.AppendUvarint(dst, uint64(len(e.Cut)))
		for _, l := range e.Cut {
			dst = binary.AppendUvarint(dst, uint64(l.Shard))
			dst = binary.AppendUvarint(dst, l.Length)
		}
	case KindChange:
		dst = appendBytes(dst, e.Key)
		dst = appendBytes(dst, e.Old)
		dst = appendBytes(dst, e.New)
	case KindOpen:
		dst = appendAddrs(binary.AppendUvarint(dst, e.Incarnation), e.Addrs)
	case KindSeal:
		dst = binary.AppendUvarint(dst, uint64(e.Shard))
	case KindPlace:
		dst = appendAddrs(binary.AppendUvarint(dst, uint64(e.Shard)), e.Addrs)
	case KindTrim:
		dst = appendBytes(dst, e.Tag)
		dst = binary.AppendUvarint(dst, uint64(e.Before))
	case KindNode:
		dst = appendNode(dst, e.Node)
	case KindRescue:
		dst = binary.AppendUvarint(dst, uint64(e.Shard))
		dst = binary.AppendUvarint(dst, e.Length)
	case KindForget:
		dst = binary.AppendUvarint(dst, uint64(e.Floor))
		dst = binary.AppendUvarint(dst, uint64(len(e.Shards)))
		for _, id := range e.Shards {
			dst = binary.AppendUvarint(dst, uint64(id))
		}
	case KindLevel:
		dst = binary.AppendUvarint(dst, uint64(e.Level))
	case KindSequencer:
		dst = appendSequencer(dst, e.Sequencer)
	}
	return dst
}

func appendNode(dst []byte, n Node) []byte {
	return binary.AppendUvarint(appendBytes(dst, n.Addr), uint64(n.State))
}

func appendSequencer(dst []byte, q Sequencer) []byte {
	dst = appendBytes(binary.AppendUvarint(dst, q.ID), q.Addr)
	dst = binary.AppendUvarint(dst, q.StoreID)
	return binary.AppendUvarint(dst, uint64(q.State))
}

// DecodeEntry decodes one entry, which must be all of b. The entry shares no memory with b. It
// returns sharedlog.ErrVersion for an unknown kind or level, and ErrEncoding for other bytes that
// no Append function has encoded.
func DecodeEntry(b []byte) (Entry, error) {
	r := reader{b: b}
	e := Entry{Kind: Kind(r.byte())}
	switch e.Kind {
	case KindCut:
		n := r.count(2)
		if n == 0 {
			r.bad = true
		}
		e.Cut = make([]Length, 0, n)
		for i := 0; i < n; i++ {
			l := Length{Shard: r.shard(), Length: r.uvarint()}
			if i > 0 && l.Shard <= e.Cut[i-1].Shard {
				r.bad = true
			}
			e.Cut = append(e.Cut, l)
		}
	case KindChange:
		e.Key, e.Old, e.New = r.string(), r.bytes(), r.bytes()
	case KindOpen:
		e.Incarnation, e.Addrs = r.uvarint(), r.addrs()
	case KindSeal:
		e.Shard = r.shard()
	case KindPlace:
		e.Shard, e.Addrs = r.shard(), r.addrs()
	case KindTrim:
		e.Tag, e.Before = sharedlog.Tag(r.string()), sharedlog.LSN(r.uvarint())
	case KindGeneration:
	case KindNode:
		e.Node = r.node()
	case KindRescue:
		e.Shard, e.Length = r.shard(), r.uvarint()
	case KindForget:
		e.Floor = sharedlog.LSN(r.uvarint())
		n := r.count(1)
		e.Shards = make([]ShardID, 0, n)
		for i := range n {
			id := r.shard()
			r.bad = r.bad || i > 0 && id <= e.Shards[i-1]
			e.Shards = append(e.Shards, id)
		}
	case KindLevel:
		e.Level = r.uint32()
	case KindSequencer:
		e.Sequencer = r.sequencer()
	default:
		if e.Kind > KindSequencer {
			return Entry{}, sharedlog.Errorf(sharedlog.KindVersion,
				"the metalog has an entry of kind %d, which this program (feature level %d) does not know: run the newer program that the rest of the cluster runs", e.Kind, Level)
		}
		r.bad = true
	}
	if r.bad || len(r.b) != 0 {
		return Entry{}, ErrEncoding
	}
	if e.Level > Level {
		return Entry{}, sharedlog.Errorf(sharedlog.KindVersion,
			"the cluster was raised to feature level %d, this program supports level %d: run the newer program that the rest of the cluster runs", e.Level, Level)
	}
	return e, nil
}

func appendAddrs(dst []byte, addrs [][]byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(addrs)))
	for _, a := range addrs {
		dst = appendBytes(dst, a)
	}
	return dst
}

func appendBytes[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// reader decodes fields from the front of b. bad is set by the first error and stays set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || (n > 1 && r.b[n-1] == 0) { // truncated, too long, not minimal
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads the number of elements of at least size bytes each, so that a damaged number cannot
// cause an allocation of more memory than there is input.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) addrs() [][]byte {
	n := r.count(1)
	addrs := make([][]byte, 0, n)
	for range n {
		addrs = append(addrs, r.bytes())
	}
	return addrs
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.bad = true
	}
	return uint32(v)
}

func (r *reader) shard() ShardID { return ShardID(r.uint32()) }

func (r *reader) node() Node {
	n := Node{Addr: r.string()}
	state := r.uvarint()
	r.bad = r.bad || state > uint64(NodeRemoved)
	n.State = NodeState(state)
	return n
}

func (r *reader) sequencer() Sequencer {
	q := Sequencer{ID: r.uvarint(), Addr: r.string(), StoreID: r.uvarint()}
	state := r.uvarint()
	r.bad = r.bad || state > uint64(SequencerRemoved)
	q.State = SequencerState(state)
	return q
}

func (r *reader) view() []byte {
	n := r.count(1)
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.view()) }

// bytes returns a copy, nil when empty: absent and empty are the same here.
func (r *reader) bytes() []byte { return append([]byte(nil), r.view()...) }
