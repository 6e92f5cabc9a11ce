// Package item has the items that streams carry besides those of a job's own types, and the batches
// in which they pass from operator to operator: what operators, sources and sinks have in common.
// Programs use them by their names in package operators.
package item
