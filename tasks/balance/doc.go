// Package balance moves the key groups of a stage of a running job to tasks that have room for them, and places parts of them in
// slots where the job can (Router): a
// Balancer reads how many items the tasks before the stage have sent to each group, a core of package
// operators/route decides, and the job is asked for a rescale to the same number of tasks with other
// owners.
//
// What a Balancer has learned is in memory only: in a later process of the job it begins with the
// owners that the log has, and no load.
//
// # Invariants
//
//  1. A step never changes the number of tasks, and is void if the owners that it was planned for are
//     not those of the newest plan any more (rescale.Request.Have): a rescale that was asked for in
//     between counts, and is not taken back.
//  2. Nothing of what a Balancer does decides what a row is: owners are in the log, and only they.
package balance
