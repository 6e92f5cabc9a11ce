// Command enrichment writes each order with what its customer was at the time of the order:
//
//	go run ./examples/enrichment DATA ORDERS.jsonl CUSTOMERS.jsonl OUT
//
// The answer does not depend on which file is read faster. Killed at any moment and started
// again with the same arguments, it goes on where it was.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
)

type (
	order    struct{ At, Customer, Cents int64 }
	customer struct {
		At, ID int64
		City   string
	}
	row struct {
		order
		City string
	}
)

func plan(orders, customers, out string) (*operators.Plan, error) {
	o, err := file.JSON(orders, func(o *order) int64 { return o.At })
	c, err2 := file.JSON(customers, func(c *customer) int64 { return c.At })
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	job := operators.NewJob("enrichment")
	placed := operators.KeyBy(operators.FromSource(job, "orders", o, serde.JSON[order]()), "by-customer", serde.Int64, func(o *order) int64 { return o.Customer })
	known := operators.KeyBy(operators.FromSource(job, "customers", c, serde.JSON[customer]()), "by-id", serde.Int64, func(c *customer) int64 { return c.ID })
	rows := operators.LeftJoinTable(placed, operators.AsTable(known), "with-customer", func(_ *int64, o *order, c *customer) row {
		if c == nil {
			return row{*o, "unknown"}
		}
		return row{*o, c.City}
	}).With(serde.JSON[row]())
	operators.ToSink(rows, "rows", operators.FileSink(out, line, false))
	return job.Plan()
}

func line(dst []byte, r *operators.KV[int64, row]) []byte {
	b, _ := json.Marshal(r.Value) // numbers and a string
	return append(append(dst, b...), '\n')
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: enrichment DATA ORDERS.jsonl CUSTOMERS.jsonl OUT")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func run(data, orders, customers, out string) error {
	p, err := plan(orders, customers, out)
	if err != nil {
		return err
	}
	stream, err := embedded.Open(data, embedded.Options{})
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	return errors.Join(tasks.Run(context.Background(), stream, p, tasks.Options{}), stream.Close())
}
