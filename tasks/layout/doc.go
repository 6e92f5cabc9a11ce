// Package layout gives a job's plan its numbers: the key groups of each stream, the tasks of each
// stage, which task owns which key groups, and the tags under which all of that is in the log. It
// reads and writes nothing.
package layout
