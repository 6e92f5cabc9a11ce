// Package file reads files of lines as a source of a job: text, JSON Lines, CSV. (The sink is
// operators.FileSink.)
//
//	orders, err := file.JSON("orders/*.jsonl", func(o *Order) int64 { return o.At })
//	…
//	stream := operators.FromSource(job, "orders", orders, serde.JSON[Order]())
//
// Each file is a partition; the files that match when the source is made are the partitions for
// the life of the job. A partition's position is exact: a job that is restarted reads on behind
// the last item it has committed. The position also holds a checksum of the file's beginning, so
// that a file that was replaced or cut is an error and not other data.
//
// A file ends where it ends, and its partition with it. With Follow it may grow: the partition
// waits for more lines, and a last line without a line feed is not complete yet.
package file
