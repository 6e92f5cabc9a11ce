// Package manager decides which worker runs which task. It is pure: it is told what
// etcd holds and what workers say, and how late it is, and returns what is to be done;
// tasks/manager/server hears, waits and writes.
//
//	View, Heard, Lost, Registered  ->  Core  ->  Tick: []Action
//
// # A worker, as the manager sees it
//
//	new      listed, not heard yet
//	alive    heard within Settings.Silent
//	silent   not heard, but nothing says that it is gone: its lease holds (it may be
//	         cut off from the manager only), or it was heard a moment ago
//	gone     nobody listens at its address, or it is silent and its lease has expired
//
// An expired lease alone means nothing: after an outage of etcd all leases are gone at
// once, and every worker that still answers keeps its tasks (pitfall P12). The one that
// is gone may yet live: that is harmless, because whoever gets its tasks replaces the
// instance in the log, and from that place on nothing of the old one has effect.
//
// # A task
//
//	waiting -> placed -> ended
//	   ^         |
//	   +- resting (failed: a while, doubling) and back to waiting when its worker is gone
//
// # Invariants
//
//  1. A task is placed with one worker at a time, under an attempt that no other
//     placement of it ever had. Those that are together (together.go) have one attempt.
//  2. Only workers that were heard, that fit, and that can reach the log get tasks.
//  3. A task is taken from a worker only if that is gone, leaves, says so itself, does
//     not take the task, or cannot reach the log while another one can; and with it those
//     that are together with it.
//  4. Placements are paced: a burst, then so many a second, whatever happens.
//  5. Equal inputs give equal actions: everything is done in the order of names.
package manager
