//go:build nokeyed

package balance

import (
	"context"
	"errors"
	"log/slog"

	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/status"
)

// A program that is built with the tag nokeyed balances nothing, and says so.

var errNone = errors.New("this program is built without balancing (tag nokeyed): use one that is built without that tag, or rescale the stage")

// Check returns an error.
func (r *Request) Check() error { return errNone }

// Balancer balances nothing.
type Balancer struct{}

// New returns an error.
func New(Job, *slog.Logger, int, Request) (*Balancer, error) { return nil, errNone }

// For is not called.
func (b *Balancer) For(int) []int { return nil }

// State is not called, nor are the other methods.
func (b *Balancer) State() State { return State{} }

// Run is not called.
func (b *Balancer) Run(context.Context, <-chan struct{}) {}

// String is not called.
func (b *Balancer) String() string { return errNone.Error() }

// Look returns an error.
func Look(Request, *layout.Layout, int, *routing.Table, []status.Snapshot, []status.Snapshot) (*Preview, error) {
	return nil, errNone
}
