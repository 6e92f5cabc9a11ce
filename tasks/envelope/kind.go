package envelope

import (
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
)

// Kind is the kind of a record. Its value is the record's first byte.
type Kind byte

// The kinds of records. Those after Changes have a type of their own, so their constants have a
// prefix.
const (
	Data          Kind = 1 // items of a stream, in sections
	Changes       Kind = 2 // state changes, in sections
	KindMarker    Kind = 3 // a Marker
	KindProducers Kind = 4 // a Producers
	KindPlan      Kind = 5 // a Plan
	// KindTransaction is the state of a task's transactions (package txn).
	KindTransaction Kind = 6
	KindCheckpoint  Kind = 7 // a Checkpoint
)

// The versions of bodies. All versions from 1 on can be read. A record has the lowest version whose
// readers need not skip anything that it contains.
const (
	version = 1
	// Version 2 of Changes has items that a reader of version 1 does not know (ItemInsert); version
	// 3 is a part of a commit's changes (Header.Part).
	versionChanges     = 2
	versionChangesPart = 3
	// Version 2 of Data is a part of a commit's outputs (Header.Part).
	versionDataPart = 2
	// Version 2 of a Marker says that the record at its position, or what a source
	// reads from a position, is done in part.
	versionMarkerUnits = 2
	// Version 3 of a Marker is of a task that has acted on a plan that moves key groups.
	versionMarkerMoved = 3
	// Version 4 of a Marker is of such a task that reads a source.
	versionMarkerSource = 4
	// Version 2 of a Plan changes the owners of an earlier one.
	versionPlanMoves = 2
	// Version 3 of a Plan changes the grain of a stage.
	versionPlanGrain = 3
	// Version 4 of a Plan is of a job with slots.
	versionPlanSlots = 4
)

// newest returns the newest version of a kind's body that this build knows.
func (k Kind) newest() byte {
	switch k {
	case Data:
		return versionDataPart
	case Changes:
		return versionChangesPart
	case KindMarker:
		return versionMarkerSource
	case KindPlan:
		return versionPlanSlots
	}
	return version
}

// prefix is the length of kind and version.
const prefix = 2

var kindNames = [...]string{Data: "data", Changes: "changes", KindMarker: "marker", KindProducers: "producers", KindPlan: "plan", KindTransaction: "transaction", KindCheckpoint: "checkpoint"}

// String returns the kind's name.
func (k Kind) String() string {
	if k.known() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

func (k Kind) known() bool { return k >= Data && k <= KindCheckpoint }

// KindOf returns the kind of a record, from its first two bytes. The error is of kind
// sharedlog.KindVersion if this build does not know the record's kind or version, of kind
// sharedlog.KindCorrupt if the record is too short.
func KindOf(data []byte) (Kind, error) {
	if len(data) < prefix {
		return 0, sharedlog.Errorf(sharedlog.KindCorrupt, "a record of %d bytes, shorter than its kind and version", len(data))
	}
	k := Kind(data[0])
	if !k.known() {
		return 0, sharedlog.Errorf(sharedlog.KindVersion, "record of unknown %v (version %d); it was written by a newer build, or by something else: run the newest build that uses this log", k, data[1])
	}
	if data[1] < version || data[1] > k.newest() {
		return 0, sharedlog.Errorf(sharedlog.KindVersion, "%v record of version %d, this build reads versions up to %d: run a build that knows version %d", k, data[1], k.newest(), data[1])
	}
	return k, nil
}

// expect is KindOf for a parser of one kind; it returns the body.
func expect(want Kind, data []byte) ([]byte, error) {
	k, err := KindOf(data)
	if err != nil {
		return nil, err
	}
	if k != want {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a %v record where a %v record belongs", k, want)
	}
	return data[prefix:], nil
}

func damaged(k Kind, what string) error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "%v record: %s", k, what)
}
