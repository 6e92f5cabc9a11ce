package sharedlog

import "strings"

// Names that begin with a capital letter and a slash are reserved for jobs: X/OWNER/… is a tag or a
// metadata key of the job OWNER. A group with such a tag must be conditional on a reserved key of
// the same owner, as all groups of the job itself are. This keeps other programs from writing into
// a job's streams, task logs and change logs by mistake.

// Reserved reports whether a tag or metadata key belongs to a job.
func Reserved(name string) bool {
	return len(name) > 1 && name[1] == '/' && name[0] >= 'A' && name[0] <= 'Z'
}

// Owner returns the owner of a tag or metadata key: the job if the name is reserved, otherwise the
// part of the name before its first slash.
func Owner(name string) string {
	if Reserved(name) {
		name = name[2:]
	}
	owner, _, _ := strings.Cut(name, "/")
	return owner
}

// jobOf returns the job whose key the group is conditional on, or "" if it is not a job's group.
func (g *Group) jobOf() string {
	if !Reserved(g.If.Key) {
		return ""
	}
	return Owner(g.If.Key)
}

// checkReserved returns an error if the reserved tag t does not belong to job.
func checkReserved(t Tag, job string) error {
	name := string(t[2:])
	if job != "" && strings.HasPrefix(name, job) && (len(name) == len(job) || name[len(job)] == '/') {
		return nil
	}
	return Errorf(KindInvalid, "tag %q belongs to the job %q, whose own processes alone append to it, under a condition on one of its keys; use a tag that does not begin with a capital letter and a slash, or --force to repair the job's log by hand",
		t, Owner(string(t)))
}
