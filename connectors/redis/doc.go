// Package redis is a sink that keeps a table in Redis (or Kvrocks): the global state of Trilink's Global
// Merge (§4.3), for readers outside of the job. Only programs that import it have it.
//
//	parts := operators.GlobalParts(views, "views", serde.String, campaign, operators.Counting[view](), nil)
//	operators.ToSink(parts, "table", redis.GlobalStore(redis.Table[string, int64]{
//		Client: client, Name: "views", Key: appendKey, Value: appendCount,
//	}))
//
// # Keys
//
//	{NAME}:KEY    hash: key group → what this group of the job has of the key
//	{NAME}        hash: for each task N of the sink, "N" → ordinal, "N token" → token
//
// A reader merges the fields of a key's hash: HGETALL, and adds up counts. All keys have the hash tag
// NAME, so that a Redis Cluster has them in one slot.
//
// # Exactly once
//
// A row is an absolute value, and the rows of a sink's task are numbered in the order of the log: a row's
// ordinal is the same in each instance that writes it. At each commit of its task, before the marker, a
// writer sends the rows since the last one as one script, which skips those up to the ordinal that the store
// has, and keeps the last one's. The position in the marker is that ordinal.
//
//  1. A row is applied once and in its order: what a restarted instance repeats, or an instance that is wrongly
//     believed dead sends late, is skipped, so that no older value takes the place of a newer one.
//  2. A new instance sets the ordinal back to its position, because a log that has lost its end in a power
//     failure may have other rows there now. It does so only while it is the task's only instance: it takes
//     a token, asks the log, and sets the ordinal if the token is still the newest.
//  3. A store that has fewer rows than are committed has lost what it has acknowledged: that is an error,
//     not a gap. Redis should have an append-only file.
//
// A sink has as many tasks when it resumes as before: the ordinals are those of tasks.
package redis
