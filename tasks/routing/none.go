//go:build nokeyed

// Package routing is, in a program that is built with the tag nokeyed, what is left of routing tables: the
// types that others name, and why there are none. Package tasks refuses a job that has tables.
package routing

import (
	"context"
	"errors"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

var errNone = errors.New("this program is built without routing tables (tag nokeyed): use one that is built without that tag")

// Table is the type of routing tables, of which there are none, and Place that of their entries.
type (
	Table struct{ Epoch uint32 }
	Place struct{}
)

// Reroute is a request to replace a routing table.
type Reroute struct {
	Stage  string
	Places []Place
	Owners []int
	Have   []int
	Epoch  uint32
	Was    []Place
	Number uint64
}

// Encode returns an error.
func Encode(*Table, []Place) (table, had []byte, err error) { return nil, nil, errNone }

// Decode returns an error.
func (r *Reroute) Decode(_, _ []byte) error { return errNone }

// Changed returns true.
func (r *Reroute) Changed(*Table) bool { return true }

// TableOf returns nil.
func TableOf(*layout.Layout, int, *envelope.Plan) (*Table, error) { return nil, nil }

// Saved returns nil, as Started and First do: no stage has a table.
func Saved(*Table) (b []byte, epoch uint32, err error) { return nil, 0, nil }

// Started returns nil.
func Started(*layout.Layout, *envelope.Plan) ([][]byte, error) { return nil, nil }

// First returns nil.
func First(*layout.Layout, [][]byte) ([]envelope.Routes, error) { return nil, nil }

// Next returns nil: no plan has routes.
func Next(*envelope.Plan) []envelope.Routes { return nil }

// Task is the part of an instance of a task, of which there is none.
type Task struct{}

// New returns nil.
func New(*layout.Layout, int, []*exec.Output, exec.Chain, *status.Status, func(observe.Step)) (*Task, error) {
	return nil, nil
}

// Resume is not called, nor are the other methods.
func (t *Task) Resume(context.Context, sharedlog.Log, string, *envelope.Marker) error { return errNone }

// Take is not called.
func (t *Task) Take(exec.Chain, int64) error { return errNone }

// Mark is not called.
func (t *Task) Mark(*envelope.Marker) {}

// Home returns the key group.
func (t *Task) Home(group int) int { return group }

// Begins returns false.
func (t *Task) Begins(*envelope.Plan) bool { return false }

// Adopts returns false.
func (t *Task) Adopts(uint32, []int) (adopted bool) { return false }
