// Package model describes a random job as data: its graph, what its sources hold, its
// settings, and the faults that happen to it. It says nothing of how a job is run, and
// knows nothing of the engine: internal/randjob builds the engine's plan from it,
// internal/randjob/answer computes by plain loops what the job must answer.
//
//	Job ── Nodes      the graph, in an order in which inputs come first
//	   ├── Settings   protocol, parallelism, sizes, where state lives
//	   └── Faults     what happens while it runs, in order
//
// A node's parameters are fields of one struct; Op says which of them it uses. The
// functions that a user would write (predicates, mappings, keys) are numbered and live here
// (functions.go): both sides call the same ones, as one user's program would.
//
// # Which answers are defined
//
// The answer of a job must be a function of its sources' items and their times, or no model
// could check it. Not every graph of operators has such an answer, and the engine promises
// none there. Class says for each node what is defined of what it emits; Classes computes it
// from the graph and says which graphs make sense at all. Where less than everything is
// defined, less is compared:
//
//	Exact   every row, as a multiset
//	Last    the last row of each identity: a table's key; a window of a key whose result is
//	        emitted again when it changes
//	Some    windows whose late items may or may not count: the last row of each identity lies
//	        between the row without them and the row with them
//
// Times says whether the times of the items are defined as well, Late how far behind the
// watermark items may come, Ordered whether the items of each value of Row.K come in the
// order of their times.
package model
