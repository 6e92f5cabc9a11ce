//go:build nokeyed

package handover

import (
	"context"

	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
)

func (d *drive) reroute(context.Context, rescale.Tasks, []routing.Reroute, bool) error { return nil }
