// Package answer says what a random job must answer, by loops over all items of its
// sources: the obviously right, slow way. It shares no code with the engine, and knows
// nothing of it; it is told the job (internal/randjob/model) and no more. Watermarks,
// commits and partitions do not exist here: an operator is a function of the whole of its
// inputs, and an item's time is a number in it.
package answer
