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
// A workload reads NEXMark's events (Input.Events), or items that it makes itself (made): a generator
// sets item k as a function of its seed and k, so the right answer is computed from the same items.
//
//	count         NEXMark's events by key
//	kw            sums by key and window; one of three sources has a slow clock (Trilink, section 3)
//	ysb           views of campaigns (Yahoo Streaming Benchmark; Trilink, section 6)
//	lvd, bridge   low voltage and bridge crown (Trilink, section 6)
//	ride          rides that last too long: each key has two items (Trilink, section 3.1)
//
// What kw, ysb, lvd and count exchange between their stages is an option (exchange.go).
//
// NEXMark's queries, which package query defines, have numbers (--query 5) and the names q1, q2, …;
// all other workloads have names only (--workload count).
package workload
