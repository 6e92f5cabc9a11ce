// Package watermark has the clock of a key: an event time that follows the items of one key, so that
// the key's windows close and its items are late by its own disorder, and not by that of the whole
// stream (paper 003, §4.1).
//
// Own is the greatest (time − delay) of the key's items that an operator has processed, and W is the
// task's watermark. The event time of the key is c = max(Own, W). For each item an operator
//
//  1. judges it by c as it stands: is it late, or does it change a result that has been emitted;
//  2. counts it;
//  3. moves Own;
//  4. fires what is due of the key by c, in the order of time.
//
// Invariants:
//
//  1. An item is not late by its own doing: it is judged before it moves Own.
//  2. Own never goes back.
//  3. What is late, and what fires behind which item, is a function of the key's own items as long as
//     no item is behind W.
//  4. Windows close and are dropped at boundaries: the ends of windows, and the ends of their lateness.
//     c decides only by which boundaries it has reached. So it is enough to log the greatest boundary
//     F that Own has reached: with Own = F a restored task decides as before. F is on the grid of
//     boundaries, whether the key has items there or not: an item for a window that passed empty is
//     late after a restart, too.
//  5. When W has reached F the clock says nothing that W does not say. A silent key has no clock.
//
// If the items of a key come by several paths (the tasks that write them), Own can be computed from the
// time of each (Paths). It is then updated behind each item of the key, and does not go back.
//
// Keys can share a clock: then "the key's items" are those of all its keys.
//
// Nothing of a clock travels in the log: behind a repartition it is computed anew from the items.
package watermark
