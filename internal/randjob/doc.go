// Package randjob runs random jobs on the engine: graphs of operators of every kind over
// random data, in the real runtime on the real embedded log, while processes die, tasks
// fail, machines lose power and jobs are restored elsewhere. The rows in the sinks are
// compared with what plain loops over the data give (docs/adr/0035).
//
//	model    a job as data: graph, sources, settings, faults; which answers are defined
//	draw     the job of a seed
//	answer   what the job must answer, by brute force: no code of the engine's
//	randjob  the engine's plan of the job, and a run: in test files, so that only its test
//	         compiles them
//
// A run is one process after the other. Each sees the log's disk (vfs.Mem), the sinks' files
// and the store of snapshots through a gate that closes when the process dies: what still
// runs in it has no effect from then on, and the next process finds what a killed process,
// or a machine without power, leaves. A job runs in a bubble of testing/synctest: time
// passes only while nothing can run, and a job that makes no progress is found by the
// virtual clock, on a busy machine too.
//
// Jobs have slots (docs/adr/0067), and their faults tables that place parts of key groups and keys there, unless a stage
// of theirs cannot have slots: then the engine refuses the job, and it runs without.
//
// Tasks of half of the jobs pause at steps that they reach (package observe): one starts after others have been rescaled and the log
// was trimmed, say, or is about to adopt a table while key groups move.
//
// A seed is a job, its data and its faults. With the overlay of internal/sim/seeded, which
// scripts/sim-jobs.sh uses, it is the interleaving of goroutines too, and a failure can be
// repeated, unless the job keeps state in pebble: that works on files of the machine.
//
//	go test ./internal/randjob     1 000 jobs, as CI does; with -short 100
//	make sim-jobs                  1 000, where a seed is an interleaving too
//	make sim-jobs SEED=N           one again
//	make sim-jobs-long             100 000
//
// A job that fails is shrunk (nodes, items, faults and settings are taken away as long as it
// fails in the same way) and printed as a Go test, with the rows that differ.
package randjob
