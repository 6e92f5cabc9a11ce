package progress

import (
	"fmt"
	"slices"
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// Protocol is a commit protocol, as described in the package comment. A job selects one by name.
type Protocol interface {
	Name() string
	Capabilities() Capabilities
	// Commit returns the atomic groups of one commit, in the order in which they are appended.
	// outputs may be empty; changes has at most one record; the marker is the last record of the
	// last group.
	Commit(outputs, changes []sharedlog.Record, marker sharedlog.Record) [][]sharedlog.Record
	// NewInbox returns the consumer's half for a task that resumes at position and reads from low,
	// as in its newest marker, sharing the task's table.
	NewInbox(table *Table, position, low sharedlog.LSN) Inbox
	// NewChangeLog returns the reader's half for change logs.
	NewChangeLog() ChangeLog
}

// Capabilities is what others need to know of a protocol. They ask for these and never for its
// name.
type Capabilities struct {
	// Flushes: outputs are appended between commits. If not, a flush is a commit.
	Flushes bool
	// KeepsChanges: state changes are logged (and so state survives a crash without checkpoints).
	KeepsChanges bool
	// Parts: outputs that are appended before their commit, because they are too many for a group,
	// are marked as parts (envelope.Header.Part), unlike other outputs, which count where they are.
	Parts bool
	// Rescales: key groups can move between the running tasks of a stage.
	Rescales bool
	// Coordinator: a coordinator decides and appends the commits instead of the task (package txn).
	Coordinator bool
	// Together: the tasks commit together, in checkpoints of the whole job
	// (docs/protocol-aligned.md), except its sinks (TakesPart). A marker with Checkpoint = n is the barrier of
	// checkpoint n; what a task emits between two barriers is provisional. NewInbox is for outside
	// readers: sinks, and readers that are not tasks. Only their inboxes take complete checkpoints.
	Together bool
}

// TakesPart reports whether a task commits together with others: all that are not sinks do, if any
// do.
func (c Capabilities) TakesPart(sink bool) bool { return c.Together && !sink }

type fused struct{}

func (fused) Name() string { return "fused" }
func (fused) Capabilities() Capabilities {
	return Capabilities{KeepsChanges: true, Parts: true, Rescales: true}
}
func (fused) NewChangeLog() ChangeLog { return new(inParts) }
func (fused) Commit(outputs, changes []sharedlog.Record, marker sharedlog.Record) [][]sharedlog.Record {
	return [][]sharedlog.Record{slices.Concat(outputs, changes, []sharedlog.Record{marker})}
}

func (fused) NewInbox(table *Table, position, low sharedlog.LSN) Inbox {
	return &atMarker{independent: independent{"fused"}, table: table, parts: true, place: place{position, low}, waiting: make(map[source][]waiting)}
}

type marker struct{}

func (marker) Name() string { return "marker" }
func (marker) Capabilities() Capabilities {
	return Capabilities{Flushes: true, KeepsChanges: true, Rescales: true}
}
func (marker) NewChangeLog() ChangeLog { return new(inParts) }

// Commit appends the remaining outputs, and then changes and marker. The same writer appends them,
// so they follow the outputs in the order (pitfall T3). The changes share the marker's group, so
// the change log holds nothing uncommitted.
func (marker) Commit(outputs, changes []sharedlog.Record, m sharedlog.Record) [][]sharedlog.Record {
	groups := make([][]sharedlog.Record, 0, 2)
	if len(outputs) > 0 {
		groups = append(groups, outputs)
	}
	return append(groups, append(slices.Clone(changes), m))
}

func (marker) NewInbox(table *Table, position, low sharedlog.LSN) Inbox {
	return &atMarker{independent: independent{"marker"}, table: table, place: place{position, low}, waiting: make(map[source][]waiting)}
}

type unsafeProtocol struct{}

func (unsafeProtocol) Name() string               { return "unsafe" }
func (unsafeProtocol) Capabilities() Capabilities { return Capabilities{} }
func (unsafeProtocol) NewChangeLog() ChangeLog    { return new(inParts) }

func (unsafeProtocol) Commit(outputs, _ []sharedlog.Record, m sharedlog.Record) [][]sharedlog.Record {
	return [][]sharedlog.Record{append(slices.Clone(outputs), m)}
}

func (unsafeProtocol) NewInbox(table *Table, position, low sharedlog.LSN) Inbox {
	return &atOnce{independent: independent{"unsafe"}, table: table, place: place{position, low}}
}

// The protocols.
var (
	// Fused makes the flush the commit: one atomic group carries outputs, state changes and marker,
	// so everything in the log is committed.
	Fused Protocol = fused{}
	// Marker is Impeller's progress marking (§3.3): outputs wait at the
	// consumer for the marker that covers them.
	Marker Protocol = marker{}
	// Txn is Kafka Streams' transaction protocol (Impeller §3.6, §5.1): outputs and
	// changes wait for commit records, which a coordinator appends.
	Txn Protocol = txn{}
	// Unsafe gives no guarantee: outputs count at once, state is not logged, a crash may lose or
	// repeat items (the lower bound of Impeller §5.3.4). It is fused without state changes, so that
	// the two differ by the guarantee alone.
	Unsafe Protocol = unsafeProtocol{}
	// Aligned is Flink's aligned checkpoints: tasks commit together, and rows are visible when the
	// checkpoint that covers them is complete (Impeller §5.3.3). AlignedEarly shows rows at once,
	// and some of them again after a failure.
	Aligned      Protocol = aligned{}
	AlignedEarly Protocol = aligned{early: true}
)

// Protocols lists all protocols, the default first.
func Protocols() []Protocol {
	return []Protocol{Fused, Marker, Txn, Aligned, AlignedEarly, Unsafe}
}

// ByName returns the protocol with this name, or an error that lists all protocols.
func ByName(name string) (Protocol, error) {
	var names []string
	for _, p := range Protocols() {
		if p.Name() == name {
			return p, nil
		}
		names = append(names, p.Name())
	}
	return nil, fmt.Errorf("unknown protocol %q; choose one of %s", name, strings.Join(names, ", "))
}
