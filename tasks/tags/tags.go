package tags

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"tailrace.dev/tailrace/sharedlog"
)

// MaxName is the longest name of a job, stream or stage, in bytes.
const MaxName = 128

// CheckName reports whether a job id, a job, stream or stage name can be part of
// a tag: 1 to MaxName bytes of valid UTF-8, no '/', nothing unprintable. The
// error is of kind sharedlog.KindInvalid and says what is wrong with which name.
func CheckName(name string) error {
	switch {
	case name == "":
		return sharedlog.Errorf(sharedlog.KindInvalid, "a name is empty")
	case len(name) > MaxName:
		return sharedlog.Errorf(sharedlog.KindInvalid, "name %.20q… has %d bytes, at most %d are allowed", name, len(name), MaxName)
	case !utf8.ValidString(name):
		return sharedlog.Errorf(sharedlog.KindInvalid, "name %q is not valid UTF-8", name)
	}
	for _, r := range name {
		if r == '/' || !unicode.IsPrint(r) {
			return sharedlog.Errorf(sharedlog.KindInvalid, "name %q holds %q; names are printable and have no '/'", name, r)
		}
	}
	return nil
}

// Data is the tag of one key group's data in a stream.
func Data(job, stream string, group int) sharedlog.Tag { return numbered("X/", job, stream, group) }

// All is the tag of the records that every consumer of a stream must see: its producers' markers
// and the Producers record.
func All(job, stream string) sharedlog.Tag {
	return sharedlog.Tag("X/" + job + "/" + stream + "/all")
}

// Task is the tag of a task's log, which has all of its markers.
func Task(job, stage string, task int) sharedlog.Tag { return numbered("T/", job, stage, task) }

// Changes is the tag of a key group's change log.
func Changes(job, stage string, group int) sharedlog.Tag { return numbered("C/", job, stage, group) }

// Determinants is the tag of a task's determinants (protocol causal).
func Determinants(job, stage string, task int) sharedlog.Tag { return numbered("D/", job, stage, task) }

// Control is the tag of a job's plans and control records.
func Control(job string) sharedlog.Tag { return sharedlog.Tag("K/" + job) }

// Checkpoints is the tag of a job's complete checkpoints (protocol aligned). It is separate from
// Control because each of the two is read, and trimmed, by its own newest record.
func Checkpoints(job string) sharedlog.Tag { return sharedlog.Tag("K/" + job + "/checkpoints") }

// Acks is the tag of the tasks' parts of checkpoints that are not complete yet (protocol aligned):
// acknowledgements, and the barriers of tasks that have no outputs.
func Acks(job string) sharedlog.Tag { return sharedlog.Tag("K/" + job + "/acks") }

// Ordered is the tag of one data path of a stream that keeps source order.
func Ordered(job, stream string, path int) sharedlog.Tag { return numbered("O/", job, stream, path) }

// Transactions is the tag of a task's transaction stream (protocol txn).
func Transactions(job, stage string, task int) sharedlog.Tag {
	return numbered("Z/", job, stage, task)
}

// CoordinatorKey is the metadata key that names the coordinator of a task's transactions; every
// append of the coordinator is conditional on its value.
func CoordinatorKey(job, stage string, task int) string {
	return string(numbered("Y/", job, stage, task))
}

// InstanceKey is the metadata key of a task's instance; every append of the task
// is conditional on its value.
func InstanceKey(job, stage string, task int) string {
	return string(numbered("I/", job, stage, task))
}

// AttemptKey is the metadata key of a job's attempt; the appends of tasks that commit
// together are conditional on its value (protocol aligned).
func AttemptKey(job string) string { return "A/" + job }

// JobKey is the metadata key that maps a job's name to its id.
func JobKey(name string) string { return "J/" + name }

// ManagerKey is the metadata key of a job's manager; appends to Control(job) are
// conditional on its value (pitfall L10).
func ManagerKey(job string) string { return "M/" + job }

// HoldsKey is the metadata key of a job's holds: leases of readers that need its change logs for a
// while.
func HoldsKey(job string) string { return "H/" + job }

// AutoscaleKey is the metadata key of the bounds between which the tasks of a job's stages are scaled.
func AutoscaleKey(job string) string { return "S/" + job }

func numbered(kind, job, name string, n int) sharedlog.Tag {
	return sharedlog.Tag(kind + job + "/" + name + "/" + strconv.Itoa(n))
}
