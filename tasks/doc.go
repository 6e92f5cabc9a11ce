// Package tasks runs jobs: it joins the operators of a job to the log. This package is the
// runtime's API; the packages below it are its parts.
//
//	log, err := embedded.Open(dir, embedded.Options{})
//	plan, err := job.Plan()
//	err = tasks.Run(ctx, log, plan, tasks.Options{})
//
// A job is exactly-once from its sources to its sinks under the protocols fused and marker: killed
// at any moment and run again with the same log, plan and settings, it resumes from its last
// commits. Run again after it has ended, it returns at once. Run with other settings, it is refused
// (ErrSettings).
//
// # What is in the log before the first task starts
//
//	metadata  J/<name>       id and settings, set once
//	          M/<id>         nonce of the process that manages the job now
//	control   K/<id>         the plan: stages, tasks, who owns which key groups
//	stream    X/<id>/<s>/all the producers of stream s (pitfall T4)
//
// The plan and all producers records are one atomic group under the condition that M/<id> still
// holds this process's nonce, so two processes that start the same job write it once.
//
// # Jobs on workers
//
// Describe makes a Spec of a plan: the job as data. Register writes it to the log, and a program
// that can build the plan again Joins it. The manager decides which worker runs which task.
// ReadInto gives any process a job's committed rows.
//
// Packages: envelope (the records), tags (their names), progress (when a record counts, and what a
// commit appends), runtime (the task), checkpoint (snapshots of state), state (state larger than
// memory); for jobs on workers manager (placement of tasks), meta (keys in etcd), worker (a program
// that runs tasks), jobs (operations on jobs), joblog (recent log entries). An Observer is told the
// steps of a job (package observe).
package tasks
