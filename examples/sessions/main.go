// Command sessions counts the clicks of each user's sessions, which end after a pause of half an
// hour. Clicks may come late: a session takes them for ten minutes more, and its row is written
// again; what comes later still is counted.
//
//	go run ./examples/sessions DATA CLICKS.csv OUT
//
// A line of CLICKS.csv is a time (ms) and a user.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
)

func plan(clicks, out string) (*operators.Plan, error) {
	src, err := file.CSV(clicks, func(f []string) (user string, at int64, err error) {
		if len(f) != 2 {
			return "", 0, fmt.Errorf("%d fields; a time and a user are wanted", len(f))
		}
		at, err = strconv.ParseInt(f[0], 10, 64)
		return f[1], at, err
	}, file.Delay(time.Minute))
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("sessions")
	byUser := operators.KeyBy(operators.FromSource(job, "clicks", src, serde.String), "by-user", serde.String, func(user *string) string { return *user })
	counts := operators.AggregateSessions(byUser, "sessions", 30*time.Minute, operators.Counting[string](), operators.Lateness(10*time.Minute))
	operators.ToSink(counts, "counts", operators.FileSink(out, line, false))
	return job.Plan()
}

func line(dst []byte, r *operators.KV[string, operators.Windowed[int64]]) []byte {
	return fmt.Appendf(dst, "%s %d %d %d\n", r.Key, r.Value.Start, r.Value.End, r.Value.Value)
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: sessions DATA CLICKS.csv OUT")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(data, clicks, out string) error {
	p, err := plan(clicks, out)
	if err != nil {
		return err
	}
	stream, err := embedded.Open(data, embedded.Options{})
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	return errors.Join(tasks.Run(context.Background(), stream, p, tasks.Options{}), stream.Close())
}
