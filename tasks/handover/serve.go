package handover

import (
	"context"
	"errors"
	"io"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
)

// frameBytes is how long a frame of a copy is, before the item that makes it longer.
const frameBytes = 64 << 10

// Serve implements runtime.Handover. What it sends is no longer here.
func (h *Handover) Serve(st copies.Stream) error {
	for {
		b, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r, err := copies.ParseRequest(b)
		if err != nil {
			return err
		}
		name := release{r.Stage, r.Task, r.Nonce, r.Commit}
		state, err := h.states.take(st.Context(), nil, name, []int{r.Group})
		if err == nil && state == nil {
			err = st.Send(copies.Refusal())
		} else if err == nil {
			err = h.send(st, name, r.Group, state)
		}
		if err != nil {
			return err
		}
	}
}

// send sends the state of a key group.
func (h *Handover) send(st copies.Stream, name release, group int, state exec.GroupState) error {
	total, frame := uint64(0), copies.Begin(frameBytes)
	flush := func() error {
		if err := st.Send(copies.Seal(frame)); err != nil {
			return err
		}
		frame = copies.Begin(frameBytes)
		h.cfg.Reached(observe.Event{Step: observe.RescaleServed, Stage: h.cfg.Layout.Plan.Stages[name.stage].Name, Task: name.task})
		return nil
	}
	err := state.Items(group, func(item []byte) error {
		total++
		if copies.Size(frame) > 0 && copies.Size(frame)+len(item) > frameBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		frame = append(frame, item...)
		return context.Cause(st.Context())
	})
	if err == nil && copies.Size(frame) > 0 {
		err = flush()
	}
	if err != nil {
		return err
	}
	return st.Send(copies.End(total))
}
