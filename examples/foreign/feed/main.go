// Command feed appends the lines of standard input to the log of a cluster, each as a record with a
// tag, and says where they are:
//
//	feed 127.0.0.1:7000 visits <visits.jsonl
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "feed HOST:PORT,… TAG: which log, and which tag?")
		os.Exit(2)
	}
	if err := feed(context.Background(), os.Args[1], sharedlog.Tag(os.Args[2])); err != nil {
		fmt.Fprintln(os.Stderr, "feed:", err)
		os.Exit(1)
	}
}

func feed(ctx context.Context, sequencers string, tag sharedlog.Tag) (err error) {
	log, err := client.Open(ctx, sequencers, client.WithName("feed"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	// No other program uses this writer's name, not even this program when it runs again.
	w := sharedlog.NewWriter(log, fmt.Sprintf("feed-%016x", rand.Uint64()), sharedlog.Condition{})
	var appended []*sharedlog.Pending
	for lines := bufio.NewScanner(os.Stdin); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return err
			}
			break
		}
		appended = append(appended, w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: slices.Clone(lines.Bytes())}))
	}
	var last sharedlog.LSN
	for _, p := range appended {
		if last, err = p.Wait(ctx); err != nil {
			return err
		}
	}
	fmt.Println(len(appended), "records are in the log, the last one at", last)
	return nil
}
