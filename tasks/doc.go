// Package tasks runs jobs: it joins the operators of a job to the log. This is
// the runtime's door; its rooms are the folders below.
//
//	log, err := embedded.Open(dir, embedded.Options{})
//	plan, err := job.Plan()
//	err = tasks.Run(ctx, log, plan, tasks.Options{})
//
// A job is exactly-once from its sources to its sinks under the protocols fused
// and marker: killed at any moment and run again with the same log, plan and
// settings, it goes on where its last commits left it. Run again after it has
// ended, it returns at once. Run with other settings, it is refused (ErrSettings).
//
// # What is in the log before the first task starts
//
//	metadata  J/<name>       id and settings, set once
//	          M/<id>         nonce of the process that manages the job now
//	control   K/<id>         the plan: stages, tasks, who owns which key groups
//	stream    X/<id>/<s>/all the producers of stream s (pitfall T4)
//
// The plan and all producers records are one atomic group under the condition
// that M/<id> still holds this process's nonce, so two processes that start the
// same job write it once.
//
// # Jobs on workers
//
// Describe makes a Spec of a plan: a job as data, which Register makes known to the
// log and a program that can build the plan again Joins. Who runs which task is the
// manager's business; ReadInto gives a job's committed rows to anybody.
//
// Rooms: envelope (what a record looks like), tags (their names), progress (what
// counts when, and what a commit appends), runtime (the task), checkpoint (snapshots
// of state), state (what of it is larger than memory); for jobs on workers manager (who runs what), meta (what etcd holds),
// worker (a program that runs tasks), jobs (what people do with them), words (what was
// said lately).
package tasks
