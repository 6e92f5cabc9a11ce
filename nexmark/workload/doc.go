// Package workload is the seam between the commands, which run, measure and check jobs, and the
// jobs themselves. A Workload is a plan over its own source, the right answer, and the defaults of
// its options. A new one is a file of this package and a line of the registry.
//
// The commands find their way through a workload's plan by the names of its stages:
//
//	events   polls the source
//	input    consumes the events from the log, with --source log
//	rows     writes the rows (Emit of package query)
//
// NEXMark's queries, which package query defines, have numbers (--query 5) and the names q1, q2, …;
// all other workloads have names only (--workload count).
package workload
