// Package epoch decides how the routing table of running tasks is replaced by another one: which keys
// have another key group from when on, without two tasks that own a key, and without a task that
// waits. It is pure: its inputs are plans and markers in the order of the log, its outputs are
// decisions. What it needs of the hand-over of key groups (package tasks/rescale) is that a plan
// orders moves, and that they are done at some time.
//
// A domain is the stages that read the same streams, with the tasks that write these streams: its
// producers. One table routes all of its streams. A step of it, which places part p of hash group g in
// slot s and gives it to task B, is up to three plans, A being the owner of g:
//
//	claim    only if s is elsewhere: s, which is empty, moves to A
//	route    the table of epoch e has p in s. Each producer takes it when it has no output pending; its
//	         next marker says e. A processes sections of s as if they were of g (the alias of s), so
//	         the state of p is in one place while producers differ.
//	adopted  no plan: A has a marker of epoch e or later from each producer that has not ended. In one
//	         commit it moves the state of p from g to s, ends the alias, and says so in its marker.
//	move     s moves to B, as any key group
//
// And back:
//
//	claim    s moves to A, the owner of g
//	route    the table of epoch e is without p. When A reads the plan, it moves the state of p from s to
//	         g at once, and processes sections of s, which producers still send, as of g.
//	adopted  the alias ends, s is free
//
// So while two epochs are in use, the state of a part is in its hash group. A change of the table never
// changes an owner, and a change of owners never changes the table.
//
// # Parties
//
//   - Control is the part of the process that appends plans. It makes one step at a time, from what
//     the newest plan says and what the tasks' markers say.
//   - Consumer is one instance of a task that reads the streams of the domain. It starts from the
//     task's newest marker and the plans below its position.
//   - Producer is one instance of a task that writes them.
//
// # Invariants
//
//  1. A table is used only where each slot that it adds, or takes a part from, has the owner of the
//     part's hash group (rules claim, back).
//  2. There are at most two epochs in use, and no key group of the domain moves while there are two
//     (rules epoch, adopted, pinned).
//  3. A producer's data of an epoch is below its first marker of it, or in the same group, and data of
//     the epochs before is not above (rules buffers, restart, joins).
//  4. The state of a key is in one key group: Consumer.Group of the one where its items arrive (rules
//     alias, all, commit, delete).
//  5. Producers that have ended, and such that have nothing to send, stop no step (rules ended, idle).
package epoch
