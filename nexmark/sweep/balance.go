package sweep

import (
	"fmt"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/plot"
)

// amidstBalance is the value of --balance with which an answer is checked: a check lasts half a second, in
// which key groups must move.
const amidstBalance = "every=20ms"

// balances reports whether the case moves key groups by their load.
func (c *Case) balances() bool {
	v := c.Settings["balance"]
	return v != "" && v != "off"
}

// ofBalance returns a figure of what --balance measured; a report without it has none.
func ofBalance(name string, f func(b *driver.Balanced) float64) measure {
	return measure{name, func(r *Row) (float64, int64) {
		if r.Bench == nil || r.Bench.Balanced == nil {
			return 0, 0
		}
		return f(r.Bench.Balanced), 1
	}}
}

// balanceColumns are the figures of the table.
var balanceColumns = []measure{
	ofBalance("degree", func(b *driver.Balanced) float64 { return b.Mean }),
	ofBalance("extra, %", func(b *driver.Balanced) float64 { return 100 * b.Extra }),
	ofBalance("steps", func(b *driver.Balanced) float64 { return float64(b.Switches) }),
	ofBalance("key groups moved", func(b *driver.Balanced) float64 { return float64(b.MovedGroups) }),
	ofBalance("slowest step, ms", func(b *driver.Balanced) float64 { return b.SlowestMS }),
	ofBalance("tasks waited, ms", func(b *driver.Balanced) float64 { return float64(b.Waited) }),
	ofBalance("producers stalled, ms", func(b *driver.Balanced) float64 { return float64(b.Stalled) }),
}

// balanceTable lists how evenly key groups were distributed; nil: no case measures it.
func balanceTable(all []*cell) *Table {
	t := &Table{
		Title: "Balance",
		Note: "Median of trials. Degree: the least number of items of a task divided by the greatest, over five seconds, mean of the measured time; extra at its end: the greatest divided by the mean, less 1. " +
			"Published: Trilink, Figure 15 and Table 9, on a cluster: compare shapes, not numbers.",
		Head: []string{"case", "dispatch", "balance", "events/s"},
	}
	for _, m := range balanceColumns {
		t.Head = append(t.Head, m.name)
	}
	measures := append([]measure{{"", ofBench(func(b *driver.Report) float64 { return b.Achieved })}}, balanceColumns...)
	for _, c := range all {
		if _, ok := c.value(balanceColumns[0]); !ok {
			continue
		}
		dispatch := c.Settings["dispatch"]
		if dispatch == "" {
			dispatch = "least-count"
		}
		row := []string{c.Key(), dispatch, c.Settings["balance"]}
		for i, m := range measures {
			p, ok := c.value(m)
			switch {
			case !ok:
				row = append(row, "–")
			case i == 1:
				row = append(row, fmt.Sprintf("%.3f", p.Y))
			default:
				row = append(row, plot.Number(p.Y))
			}
		}
		t.Rows, t.Void = append(t.Rows, row), append(t.Void, c.void)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
