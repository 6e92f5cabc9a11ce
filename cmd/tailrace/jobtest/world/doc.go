// Package world is what the suites of jobs share: a cluster of real processes, jobs on it, and their
// right answers, which are those of an undisturbed run on the embedded log. It is for ginkgo specs,
// and builds the programs before the first one.
package world
