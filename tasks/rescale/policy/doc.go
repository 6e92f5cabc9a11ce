// Package policy decides how many tasks a stage of a job is to have, from what its tasks measure each
// second. It is pure: samples in, decisions out. Package autoscale measures, and rescales.
//
//	busy      share of the time in which a task was not asleep
//	lag       how long ago the log ended where the task stands now
//	load      tasks that the stage would need at 100 % busy: the sum over tasks of busy ÷ (1 − growth of lag)
//
// A task that is busy all the time processes what it can, not what arrives. Its lag grows by
// 1 − processed ÷ arrived a second, so the load says how much arrives even then. Items a second drop
// out of the formula: load = arrival rate ÷ true rate of one task.
//
// # Rules
//
//  1. There is no decision while key groups move, and none for 10 s, or five times its duration,
//     after a rescale ended, or after the policy began, for example in another manager.
//  2. Out: in 3 of the newest 5 samples a task is above 85 % busy, or is more than 1 s behind and
//     above 50 % busy. The stage gets 1.2 × the load, and more for a backlog, such that it is
//     processed within 30 s; at least half as many tasks again, at most twice as many. A stage that
//     has that many tasks, and whose lag falls, stays as it is.
//  3. In: with the fewer tasks the busiest one would be at most 62.5 % busy, as of each window of 5
//     samples in the last minute, and no task was 0.2 s behind in 3 of them. The stage loses at least
//     a third of its tasks, at most half.
//  4. If a stage is scaled out within 10 min after it was scaled in, the next in waits twice as long,
//     up to 10 min.
//  5. A task that has input and processes nothing, or that is busy with one key group (60 % of its
//     time), gets no relief from more tasks: the decision says so, and does not count it.
//  6. A scale-out that has never shown a fifth of the capacity that it should have added is not
//     followed by another one for 10 min: the tasks compete for something else, such as the cores
//     of the machine.
//
// Steps are large (rules 2 and 3), because a rescale costs latency whatever its size: a load that
// varies by a factor of up to two needs one out and one in. The distance between 85 % and 62.5 % is
// what keeps noise from alternating. Bounds are stronger than rules: a stage outside of them gets the
// nearest number of tasks inside at once, and next to a bound a step may be smaller.
package policy
