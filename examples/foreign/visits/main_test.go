package main

import (
	"reflect"
	"testing"

	"tailrace.dev/tailrace/operators/optest"
)

// Two users, two minutes, a crash in between, and a visit that comes too late.
func TestVisits(t *testing.T) {
	p, err := plan(args{FromTag: "visits", ToTag: "minutes"})
	if err != nil {
		t.Fatal(err)
	}
	d := optest.NewDriver(t, p, optest.Options{})
	visits := optest.NewInput[Visit](d, "visits")
	minutes := optest.NewOutput[Minute](d, "minutes")
	rows := func() (all []string) {
		for _, m := range minutes.Read() {
			all = append(all, string(row(nil, &m)))
		}
		return all
	}
	same := func(got []string, want ...string) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}

	visits.Pipe(10_000, Visit{User: "ann"}, Visit{User: "ann"})
	same(rows())
	d.Crash()
	d.AdvanceTo(60_000)
	same(rows(), `{"minute":"1970-01-01T00:00:00Z","user":"ann","visits":2}`)

	visits.Pipe(59_999, Visit{User: "bob"})
	visits.Pipe(60_000, Visit{User: "bob"})
	if d.Late() != 1 {
		t.Errorf("%d visits came too late, want 1", d.Late())
	}
	d.End()
	same(rows(), `{"minute":"1970-01-01T00:01:00Z","user":"bob","visits":1}`)
}
