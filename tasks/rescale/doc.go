// Package rescale decides how key groups move between the tasks of a running stage: which groups
// move, in which steps, and when a task owns what. It is pure: its inputs are records of the log at
// their LSNs, its outputs are decisions; package runtime reads, appends and waits.
//
// A plan record orders moves at its LSN P; one record of the giver, the release, carries out each. A
// release is an ordinary marker: it says that everything below its position Q that counts has been
// processed by the giver, and nothing above, so the receiver continues from there as an instance
// continues from its predecessor's marker. There is no moment with two owners.
//
//	                       P: plan 2 moves g from A to B
//	log   … g … g … ──────────┬──────── g ──────── g ─────── g ───
//	A     processes g up to P,│ commits [changes marker released g, position P+1]
//	B     (has tasks already) │ g is pending: waits at g      └─ reads it in A's task log, owns g,
//	                          │ event time ≤ watermark of P      takes g's state, continues
//	C     (newcomer: it reads no input, and appends nothing)
//	A     Q ≤ P: [changes marker released h, position Q], as soon as it knows of the plan
//	C     continues at the lowest Q of its releases; h counts from its own Q on
//
// # Parties
//
//   - The giver owns the group below P, the receiver above it. A newcomer is a receiver
//     that has no task log yet, or has left; a task with a number that the plan does not have
//     leaves, with its release.
//   - Task is one task's part, as giver and as receiver. An instance starts from its newest
//     marker and the plans; nothing else survives it.
//   - Control is the part of the process that appends plans: a goal is reached in steps, one
//     plan each, and a step starts when the one before is done (Unfinished).
//
// Upstream tasks take no part: a record has the tags of key groups, not of tasks. Consumers learn
// from a producers record that there are newcomers (package progress).
//
// # Invariants
//
//  1. What a task owns is what its newest marker says; plans only order moves. A restart
//     owns exactly that, whatever the newest plan says (rule position, pitfall T7).
//  2. A receiver owns a group, or uses its state, only after the release is in the log
//     (rules release, finish, complete, pitfall T8), and the first commit after it says so.
//  3. At P a task releases before it waits for anything, so tasks that exchange groups do not wait
//     for each other.
//  4. Only a newcomer takes groups that were released below P (rule newcomer, pitfall T10):
//     it has promised nothing yet, and has processed nothing.
//  5. A task that waits for groups promises no event time above the watermark of P, and
//     reaches no timer that it does not have (rules cap, timers, pitfall T9).
//  6. A group is released only by a task that has all of it (rule whole).
//  7. After a restart, a group is pending if the newest move of it at or below the plan that the
//     marker acted on gives it to the task (rule newest), and no later plan took it away early (rule
//     given).
//  8. The step of a plan is done when each group is owned by its receiver's newest
//     marker, whose position is above P. Until then there is no other plan, and trims
//     keep what tasks of the step may read (Unfinished).
//  9. In each plan the tasks of a stage are 0 … Tasks-1, and each newcomer gets a group: no task is
//     registered as a producer that has nowhere to start.
package rescale
