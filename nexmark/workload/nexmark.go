package workload

import (
	"fmt"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
)

// queries returns NEXMark's queries.
func queries() (all []*Workload) {
	for n := 1; query.Check(n) == nil; n++ {
		w := &Workload{
			Name: fmt.Sprint("q", n), Query: n, Title: query.Title(n),
			Revises: n == 5 || n >= 7, // windows
			Plan: func(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
				src, err := in.Events()
				if err != nil {
					return nil, err
				}
				return query.Build(query.Params{Number: n, Emission: p.Emission, Q2List: p.Q2List, Q7Window: p.Q7Window, Logged: p.Logged}, src, out)
			},
			Answer: func(p *Params, events generator.Config) ([]string, error) {
				g, err := generator.New(events)
				if err != nil {
					return nil, err
				}
				in := &oracle.Input{}
				for k := range events.Events {
					if err := in.Add(g.Append(nil, k)); err != nil {
						return nil, err
					}
				}
				return oracle.Answer(n, in, oracle.Options{Q2List: p.Q2List, Q7Window: p.Q7Window.Milliseconds()})
			},
		}
		if n == 4 || n == 6 {
			w.KeyFields = 1
		}
		all = append(all, w)
	}
	return all
}
