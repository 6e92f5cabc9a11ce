package sharedlog

import "strings"

// Names that begin with a capital letter and a slash belong to jobs: X/OWNER/… is a tag, or
// a metadata key, of the job OWNER. A group with such a tag has to be conditional on a
// reserved key of the same owner, as all of a job's own groups are, so nothing else gets
// into a job's streams, logs and change logs by mistake.

// Reserved reports whether a tag or metadata key belongs to a job.
func Reserved(name string) bool {
	return len(name) > 1 && name[1] == '/' && name[0] >= 'A' && name[0] <= 'Z'
}

// Owner returns whose a tag or metadata key is: the job of a reserved one, else the name up
// to its first slash.
func Owner(name string) string {
	if Reserved(name) {
		name = name[2:]
	}
	owner, _, _ := strings.Cut(name, "/")
	return owner
}

// jobOf returns the job under whose condition the group is; none: it is not a job's.
func (g *Group) jobOf() string {
	if !Reserved(g.If.Key) {
		return ""
	}
	return Owner(g.If.Key)
}

// checkReserved refuses a tag that belongs to another than the job, if it is reserved.
func checkReserved(t Tag, job string) error {
	name := string(t[2:])
	if job != "" && strings.HasPrefix(name, job) && (len(name) == len(job) || name[len(job)] == '/') {
		return nil
	}
	return Errorf(KindInvalid, "tag %q belongs to the job %q, whose own processes alone append to it, under a condition on one of its keys; use a tag that does not begin with a capital letter and a slash, or --force to repair the job's log by hand",
		t, Owner(string(t)))
}
