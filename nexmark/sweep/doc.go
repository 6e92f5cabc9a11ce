// Package sweep measures many cases, one after the other, and draws the results: the papers'
// figures and tables, from one declarative spec.
//
//	spec.yaml ──Parse──▶ Spec ──NewPlan──▶ Plan ──Next(rows)──▶ Case ──Command──▶ a child process
//	                                        ▲                                        │
//	                                        └──────────── rows.jsonl ◀───────────────┘
//	                                                          │
//	                                                        Report ──▶ report.html, plots/*.svg
//
// What it promises:
//
//  1. What is measured next is a function of the spec and the existing rows.
//     So a sweep that was killed resumes: it repeats no case and leaves none out.
//  2. Each case runs in a process of its own, on a log of its own; trial by trial, so
//     that a noisy minute affects all cases alike.
//  3. Each row is complete by itself: it says what was measured, with which program, on
//     which machine, how loaded it was, how many samples there are, and whether the rate
//     was sustained.
//  4. Answers are checked: under each protocol a run over the same events is compared
//     with package oracle. Rows of a protocol whose answer differs are void.
//  5. The report is a function of the rows. A run that did not keep up is marked,
//     never averaged in; a void one is crossed out.
//
// The figures and tables are those of Impeller (EuroSys 2025, §5): Figure 7 (latency over rate),
// Figure 8 (commit intervals), Figure 9 (against unsafe), Table 2 (the log's latency), Table 4
// (recovery). Two kinds of series have no model there:
//
//	over      quantities (throughput, log-bytes, visible-p99, …) over whatever a series can vary: a key
//	          that is a list (over: commit-intervals), or a flag (over: key-groups) that has a list of
//	          values in settings
//	timeline  quantities (throughput, visible-max, backlog, …) in steps of a tenth of a second, from
//	          nexmark bench --timeline; with fail-at a task loses its memory on the way, with a rescale in
//	          settings a stage gets another number of tasks; a line for each protocol, or (over: FLAG)
//	          for each value of a flag
//
// The specs meces-f1 to meces-f9 have the shapes of the figures of Meces (USENIX ATC 2022, §5), with its
// baselines as modes of the same engine (--rescale-mode). The specs trilink-* have the shapes of Trilink's:
// its Table 3 and Figure 7 need no engine (nexmark balance).
package sweep
