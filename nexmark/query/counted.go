package query

// counted is a row of the workload count: a key that occurred often. The name of the type is a part
// of the job's plan, and the jobs that were started when the count was query 9 have it there.
type counted struct{ Key int64 }

// Counted is counted for package workload.
type Counted = counted
