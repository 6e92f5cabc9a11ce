// Package route distributes the key groups of a stage over its tasks by what they cost. It is pure:
// loads in, owners out. What carries the owners out is the hand-over of package tasks/rescale; no item
// and no producer takes part.
//
//	degree   the least of the tasks' loads divided by the greatest, each per share: 1 is even
//	extra    the greatest load divided by the mean, less 1: how much longer the stage takes than it must
//
// (Trilink, sections 3.3 and 4.2.) A Planner makes owners of a Stage:
//
//	hash           group g of G belongs to task g·T/G, as in a new job
//	least-key      by the keys in state
//	least-count    by the items a second, with a History in which they fade
//	weight         least-count, for tasks that have shares of different size
//	auto           the plan with the best degree by the items a second; of equal ones, that with the
//	               fewest moves
//
// All but hash are one greedy algorithm (Balance) with other weights. A Core decides when a plan is
// carried out.
//
// Where whole groups are too coarse, a Core that is told the table continues a plan with Divide: it makes a Table, which routes single keys
// and parts of groups to slots. These are key groups behind those that the hash names; what a table
// routes is owned, and moves, as any key group. How running tasks take another table is in package
// epoch.
//
//	key → Table.Group: key group → owners: task
//
// # Invariants
//
//  1. A plan gives each group an owner that is one of the tasks, and each task a group.
//  2. The degree of a plan by the weights that it was made from is never below that of the present
//     owners.
//  3. A plan moves as few groups as the greedy algorithm needs for Target; if the present owners have
//     that degree, none.
//  4. A Core whose samples do not change asks for at most one step (no thrashing): a key group that is
//     heavier than a task is no reason to move others again and again.
//  5. The parts of a table have no key in common, and a slot has one part. Equal tables have equal bytes.
//  6. A step that takes back what another one did makes the Core wait twice as long, up to 10 min.
package route
