package query

import (
	"fmt"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// Params are the settings of a query.
type Params struct {
	// Number is the query, 1 to 8.
	Number int
	// Emission: Final (one result, when it can no longer change) or Eager (a result each time it
	// changes).
	Emission operators.Emission
	// Q2List makes query 2 select the original list of auctions.
	Q2List bool
	// Q7Window is the window of query 7; 0 is ten seconds.
	Q7Window time.Duration
	// Logged writes the events to a stream of the log first; otherwise the source runs in the
	// query's first stage.
	Logged bool
}

// Output is where the rows go.
type Output struct {
	// File receives the rows as JSON Lines; "-" is the standard output. Sync: fsync before each
	// commit.
	File string
	Sync bool
	// Rows, if set, replaces File: one goroutine calls it with the event times of committed rows,
	// in batches.
	Rows func(times []int64)
	// Emitted, if set, is called with the event times of rows as they leave the last operator.
	// Several goroutines call it.
	Emitted func(times []int64)
}

// titles describes the queries.
var titles = [...]string{
	1: "the bids, in euro",
	2: "bids on chosen auctions",
	3: "auctions of category 10 by local sellers",
	4: "mean winning price by category",
	5: "auctions with the most bids in ten seconds, every two",
	6: "mean winning price of each seller's last ten auctions",
	7: "highest bids by window",
	8: "new persons that opened an auction in the same window",
}

// Title describes a query in a few words.
func Title(number int) string { return titles[number] }

// Check returns an error that lists the queries if number is not one of them.
func Check(number int) error {
	if number >= 1 && number < len(titles) {
		return nil
	}
	var b strings.Builder
	for n := 1; n < len(titles); n++ {
		fmt.Fprintf(&b, "\n  %d  %s", n, titles[n])
	}
	return fmt.Errorf("there is no query %d; the queries are%s", number, b.String())
}

// Build returns the plan of a query over a source of events.
func Build(p Params, src operators.Source[event.Raw], out Output) (*operators.Plan, error) {
	if err := Check(p.Number); err != nil {
		return nil, err
	}
	if p.Q7Window == 0 {
		p.Q7Window = 10 * time.Second
	}
	job := operators.NewJob(fmt.Sprintf("q%d", p.Number))
	events := Events(job, src, p.Logged)
	queries := [...]func(operators.Stream[event.Raw], Params, Output){
		1: q1, 2: q2, 3: q3, 4: q4, 5: q5, 6: q6, 7: q7, 8: q8,
	}
	queries[p.Number](events, p, out)
	return job.Plan()
}

// Events begins a job over events: see Begin.
func Events(job *operators.Job, src operators.Source[event.Raw], logged bool) operators.Stream[event.Raw] {
	return Begin(job, src, source.Raw, logged)
}

// Begin begins a job: it reads the source in the stage "events" and, with logged, writes the items
// to the stream "input" of the log first.
func Begin[T any](job *operators.Job, src operators.Source[T], sd serde.Serde[T], logged bool) operators.Stream[T] {
	items := operators.FromSource(job, "events", src, sd)
	if logged {
		items = operators.Forward(items, "input")
	}
	return items
}

// Emit ends a job: it writes the rows to the output, in the stage "rows".
func Emit[T any](rows operators.Flow[T], out Output, line func(dst []byte, row *T) []byte) {
	if out.Emitted != nil {
		rows = operators.Observe(rows, out.Emitted)
	}
	if out.Rows != nil {
		operators.ToSink(rows, "rows", operators.BorrowedFuncSink(func(b *operators.Batch[T]) error {
			out.Rows(b.Times)
			return nil
		}))
		return
	}
	operators.ToSink(rows, "rows", operators.FileSink(out.File, line, out.Sync))
}

// must is for events in the log: the source checked them before they entered it, and the log's
// checksums cover them, so a malformed one is a bug of this program.
func must[T any](v T, err error) T {
	if err != nil {
		panic("nexmark: a malformed event in the log: " + err.Error()) // invariant: see above
	}
	return v
}
