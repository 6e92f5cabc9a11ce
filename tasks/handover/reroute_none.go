//go:build nokeyed

package handover

import (
	"context"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
)

// In a program that is built with the tag nokeyed no plan has a routing table.

func (c *controller) adopting(context.Context, sharedlog.LSN) (string, error) { return "", nil }

// Reroute implements runtime.Handover.
func (h *Handover) Reroute(_ context.Context, _ rescale.Tasks, r routing.Reroute) error {
	return r.Decode(nil, nil)
}

// Table implements runtime.Handover.
func (h *Handover) Table(int) (*routing.Table, error) { return nil, nil }

func (m *mover) learn(context.Context, *envelope.Plan) error { return nil }

func (m *mover) reroute(context.Context, *envelope.Plan) error { return nil }

func (m *mover) enterRoutes(context.Context) error { return nil }
