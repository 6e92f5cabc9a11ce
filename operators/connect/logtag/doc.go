// Package logtag reads records of the log as a source of a job, and appends a job's rows to the
// log. The log is the one that the job runs on, and a tag names the records:
//
//	orders, err := logtag.JSON("orders", func(o *Order) int64 { return o.At })
//	…
//	stream := operators.FromSource(job, "orders", orders, serde.JSON[Order]())
//	…
//	alerts, err := logtag.Sink("alerts", func(dst []byte, a *Alert) []byte { return append(dst, a.Text...) })
//	…
//	operators.ToSink(late, "alerts", alerts)
//
// Then `tailrace log append --tag orders` feeds the job, also while it runs, and `tailrace log
// follow --tag alerts` shows its rows. Other jobs may read the tag of a sink.
//
// # Source
//
// Each tag is a partition, and each record is an item. A partition's position is an LSN: a task
// that restarts continues behind the last record that it has committed. A source begins with the
// oldest record that is left, or where From says; it follows the tag for as long as the job runs,
// or ends, with UntilTail, at the tail of the log. Records that were trimmed before the job has
// read them are an error, unless SkipMissing is given. The job never trims a tag that it reads:
// the programs that append to the tag decide how long its records are kept (tailrace log trim).
//
// # Sink
//
// Each row is one record. A task appends its rows in the same group as the marker of its commit,
// and a group takes effect as a whole and only while the task is not replaced: a row is in the log
// if and only if the input that it was made of is consumed, and so exactly once, whatever is killed.
// A reader of the tag sees committed rows only. The protocol txn cannot do that, because a
// coordinator appends its markers; a job with such a sink is refused under it. The protocols unsafe
// and aligned-early repeat rows after a failure, as they do in every sink.
package logtag
