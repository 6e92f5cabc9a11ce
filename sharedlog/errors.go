package sharedlog

import (
	"errors"
	"fmt"
)

// Kind says what an error means for the caller. It is kept across the network, so a program tests
// for the same kinds with an embedded and a remote log.
type Kind uint8

// The kinds. The comment beside each says whether the same request may be sent again.
const (
	KindOther           Kind = iota // no
	KindInvalid                     // no: the request is malformed
	KindConditionFailed             // no: the writer has been replaced
	KindConflict                    // after reading the current value
	KindOutOfOrder                  // after the missing number was appended
	KindSealed                      // yes, on another shard
	KindUnknown                     // only after promise 6 resolved it
	KindTrimmed                     // no: start at or above the trim point
	KindFull                        // after space was freed
	KindClosed                      // no
	KindLocked                      // after the other process has ended
	KindVersion                     // no: data of another version
	KindCorrupt                     // no: the data is damaged; an operator must repair it
	KindLost                        // no: a rescue gave the records up; start above them
	KindQuota                       // after usage fell or the limit was raised
	KindReadOnly                    // after space was freed; trims are accepted
)

var kindText = [...]string{
	"error", "invalid request", "condition failed", "conflict", "out of order", "shard sealed",
	"outcome unknown", "trimmed", "log full", "log closed", "data directory locked", "another version", "corrupt",
	"records lost", "limit reached", "read-only",
}

// String returns the kind's name in words.
func (k Kind) String() string {
	if int(k) < len(kindText) {
		return kindText[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is an error of the log. errors.Is compares kinds, so
// errors.Is(err, ErrTrimmed) holds for every error of that kind.
type Error struct {
	Kind Kind
	// Detail says where (tag, LSN, file and offset) and what the remedy is.
	Detail string
	// Cause, if any, is the underlying error, for example an *os.PathError.
	Cause error
}

// The sentinels, one for each kind.
var (
	ErrInvalid         = &Error{Kind: KindInvalid}
	ErrConditionFailed = &Error{Kind: KindConditionFailed}
	ErrConflict        = &Error{Kind: KindConflict}
	ErrOutOfOrder      = &Error{Kind: KindOutOfOrder}
	ErrSealed          = &Error{Kind: KindSealed}
	ErrUnknown         = &Error{Kind: KindUnknown}
	ErrTrimmed         = &Error{Kind: KindTrimmed}
	ErrFull            = &Error{Kind: KindFull}
	ErrClosed          = &Error{Kind: KindClosed}
	ErrLocked          = &Error{Kind: KindLocked}
	ErrVersion         = &Error{Kind: KindVersion}
	ErrCorrupt         = &Error{Kind: KindCorrupt}
	ErrLost            = &Error{Kind: KindLost}
	ErrQuota           = &Error{Kind: KindQuota}
	ErrReadOnly        = &Error{Kind: KindReadOnly}
)

// Errorf returns an error of kind k with a formatted detail; a %w operand becomes its cause.
func Errorf(k Kind, format string, args ...any) *Error {
	e := fmt.Errorf(format, args...)
	return &Error{Kind: k, Detail: e.Error(), Cause: errors.Unwrap(e)}
}

// Lost returns the error of a reader that reaches records which a rescue gave up: a number of
// records of one shard. Their LSNs, which include LSNs of other shards, were in [from, to).
func Lost(shard uint32, records uint64, from, to LSN) *Error {
	return Errorf(KindLost, "%d records of shard %d, between LSN %d and %d, were given up (tailrace log rescue); begin at %d, or read what is left in between (ReaderOptions.SkipLost, tailrace log read --skip-lost)",
		records, shard, from, to, to)
}

// Void returns the error of a group without effect: the condition of the group, or of an earlier one
// of its writer, does not hold.
func Void(writer string, number uint64) *Error {
	return Errorf(KindConditionFailed, "writer %q: what group %d (or one before it) is conditional on does not hold", writer, number)
}

// TakenLongAgo returns the error of a group whose number was used, but whose outcome is not known any
// more.
func TakenLongAgo(writer string, number uint64) *Error {
	return Errorf(KindUnknown, "group %d of writer %q was taken long ago", number, writer)
}

// OutOfOrder returns the error of a group that is not its writer's next one.
func OutOfOrder(writer string, number, next uint64) *Error {
	return Errorf(KindOutOfOrder, "writer %q sent group %d, its next is %d", writer, number, next)
}

// KindOf returns the kind of the first *Error in err's chain, KindOther if
// there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindOther
}

// Error implements error.
func (e *Error) Error() string {
	switch {
	case e.Detail == "":
		return e.Kind.String()
	case e.Kind == KindOther:
		return e.Detail // the detail says more than "error"
	}
	return e.Kind.String() + ": " + e.Detail
}

// Is reports whether target is an *Error of the same kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
