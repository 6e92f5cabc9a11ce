// Package manager decides which worker runs which task. It is pure: its inputs are the contents of
// etcd, the workers' reports and the time, and its output is a list of actions;
// tasks/manager/server receives, waits and writes.
//
//	View, Reported, Lost, Registered  ->  Core  ->  Tick: []Action
//
// # A worker, as the manager sees it
//
//	new      listed, no report yet
//	alive    a report within Settings.Silent
//	silent   no recent report, but no sign that it is gone: its lease holds (it may be
//	         disconnected from the manager only), or its last report is not old enough
//	gone     nothing listens at its address, or it is silent and its lease has expired
//
// An expired lease alone means nothing: after an outage of etcd all leases are gone at once, and
// every worker that still answers keeps its tasks (pitfall P12). A worker that is considered gone
// may still live. That is harmless: the next instance of each of its tasks replaces the old one in
// the log, and from that place on appends of the old one have no effect.
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
//  2. Only workers that have reported, that fit, and that can reach the log get tasks.
//  3. A task is taken from a worker only if that is gone, leaves, asks for it, does
//     not start the task, or cannot reach the log while another one can; and with it those
//     that are together with it.
//  4. Placements are paced: a burst, then a fixed rate, whatever happens.
//  5. Equal inputs give equal actions: everything is done in the order of names.
package manager
