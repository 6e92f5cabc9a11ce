// Package tags owns every tag and metadata key of Tailrace: no other package builds one. It is
// pure: strings in, strings out.
//
//	tag                        carries                                     read by
//	X/<job>/<stream>/<group>   data of one key group                       its owner
//	X/<job>/<stream>/all       markers, producers: what all must see       every consumer task
//	T/<job>/<stage>/<task>     a task's own markers (the task log)         its next instance
//	C/<job>/<stage>/<group>    state changes of one key group              the task that restores it
//	D/<job>/<stage>/<task>     determinants                                a replaying instance
//	K/<job>                    plans and control records                   every task, the manager
//	Z/<job>/<stage>/<task>     a task's transactions (protocol txn)        its coordinator
//	K/<job>/checkpoints        complete checkpoints (protocol aligned)     sources, the next attempt
//	K/<job>/acks               the tasks' parts of a checkpoint (aligned)  its coordinator
//	O/<job>/<stream>/<path>    one data path of an ordered stream          the k-way merger
//
//	metadata key               value                                       changed by
//	I/<job>/<stage>/<task>     instance: (number, nonce)                   the process that starts the task
//	A/<job>                    attempt of the job: (number, nonce, from)   the attempt's first task (aligned)
//	J/<name>                   the id of the job that has this name        job start
//	Y/<job>/<stage>/<task>     nonce of its transactions' coordinator      a coordinator that takes over
//	M/<job>                    the manager's election: (number, nonce)     a new manager
//	H/<job>                    leases on its change logs, with expiry      standbys, savepoints
//	S/<job>                    how many tasks its stages may be given      users of autoscaling
//
// # Invariants
//
//  1. <job> is the job's id, which is never used twice, so a job that is deleted
//     and created again shares no tag with its predecessor (pitfall T16). Only
//     JobKey takes the name that the user gave.
//  2. Different arguments give different strings: names hold no '/' (CheckName),
//     numbers are decimal without sign or leading zeros, and "all" is not a number.
//  3. With names that pass CheckName every tag and key stays within
//     sharedlog.MaxTagBytes and sharedlog.MaxNameBytes.
//
// The functions do not check names: they are called for every record kind of every task, and names
// are checked once, when a job is created.
package tags
