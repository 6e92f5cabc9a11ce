// Package aligned commits the tasks of a job together, in checkpoints of the whole job
// (docs/protocol-aligned.md). The tasks, except the job's sinks, are participants (participant.go) of
// an attempt of the job (attempt.go), in one process or in many. They do not fence, but start from
// the newest complete checkpoint and read from where the attempt begins; their commits between
// barriers are provisional; the failure of one restarts all. Their state is in the checkpoint store
// (state.go). Beside the first of them runs the coordinator of checkpoints (coordinate.go). Sinks
// read the committed output, as outside readers do, and commit one by one (package direct).
package aligned
