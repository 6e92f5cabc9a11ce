// Package fetch copies the ordered groups of a shard from one replica to another: the missing end of
// a sealed shard, or all of it with the outcomes. Groups and trimmed ranges reach the end without a
// gap; data that cannot be read is an error at the source (docs/adr/0029).
package fetch
