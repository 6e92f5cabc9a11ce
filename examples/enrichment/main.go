// Command enrichment writes each order with what its customer was at the time of the order:
//
//	go run ./examples/enrichment run --orders 'orders*.jsonl' --customers customers.jsonl
//
// The answer does not depend on which file is read faster.
package main

import (
	"os"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

type (
	args struct{ Orders, Customers, Out string }

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

func plan(a args) (*operators.Plan, error) {
	job := operators.NewJob("enrichment")
	orders := operators.FromJSON(job, "orders", a.Orders, func(o *order) int64 { return o.At })
	customers := operators.FromJSON(job, "customers", a.Customers, func(c *customer) int64 { return c.At })
	placed := operators.KeyBy(orders, "by-customer", serde.Int64, func(o *order) int64 { return o.Customer })
	known := operators.KeyBy(customers, "by-id", serde.Int64, func(c *customer) int64 { return c.ID })
	joined := operators.LeftJoinTable(placed, operators.AsTable(known), "with-customer", func(_ *int64, o *order, c *customer) row {
		if c == nil {
			return row{*o, "unknown"}
		}
		return row{*o, c.City}
	})
	rows := operators.Map(joined, func(r *operators.KV[int64, row]) row { return r.Value })
	operators.ToJSON(rows.With(serde.JSON[row]()), "rows", a.Out)
	return job.Plan()
}

func main() {
	os.Exit(app.Main(app.Job[args]{Name: "enrichment", Short: "Write each order with the city of its customer", Build: plan, Flags: func(a *args, f *pflag.FlagSet) {
		f.StringVar(&a.Orders, "orders", "orders.jsonl", "files of orders, JSON Lines")
		f.StringVar(&a.Customers, "customers", "customers.jsonl", "files of customers, JSON Lines")
		f.StringVar(&a.Out, "output", "-", "file for the rows")
	}}))
}
