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
	divided := map[int][]exec.Part{} // what is left of groups of which parts were asked for
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
		if parts := divided[r.Group]; parts != nil {
			if err := h.sendParts(st, name, parts, r.Parts); err != nil {
				return err
			}
			continue
		}
		state, err := h.states.take(st.Context(), nil, name, []int{r.Group})
		if err == nil && state == nil {
			err = st.Send(copies.Refusal())
		} else if err == nil {
			var parts []exec.Part
			if r.Of == exec.Parts && len(r.Parts) > 0 {
				parts, err = h.divide(name, r.Group, state)
			}
			switch {
			case err != nil:
			case parts != nil:
				divided[r.Group] = parts
				err = h.sendParts(st, name, parts, r.Parts)
			default:
				err = h.send(st, name, r.Group, state)
			}
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

// divide divides a key group; nil: it is sent as a whole.
func (h *Handover) divide(name release, group int, state exec.GroupState) ([]exec.Part, error) {
	parts, ok, err := state.Split(group, h.cfg.Layout.Stages[name.stage].Hashed())
	if err != nil || !ok {
		return nil, err
	}
	return parts, nil
}

// sendParts sends parts of a key group, which it removes from those that are left.
func (h *Handover) sendParts(st copies.Stream, name release, left []exec.Part, numbers []int) error {
	frame := copies.BeginParts(frameBytes)
	flush := func(f []byte) error {
		if err := st.Send(copies.Seal(f)); err != nil {
			return err
		}
		h.cfg.Reached(observe.Event{Step: observe.RescaleServed, Stage: h.cfg.Layout.Plan.Stages[name.stage].Name, Task: name.task})
		return context.Cause(st.Context())
	}
	for _, n := range numbers {
		if n < 0 || n >= len(left) || left[n].Number < 0 {
			return st.Send(copies.Refusal()) // it is not asked for twice
		}
		p := left[n]
		left[n] = exec.Part{Number: -1}
		if size := copies.Size(frame); size > 0 && size+len(p.Items) > frameBytes {
			if err := flush(frame); err != nil {
				return err
			}
			frame = copies.BeginParts(frameBytes)
		}
		for len(p.Items) > frameBytes {
			if err := flush(append(copies.Begin(frameBytes), p.Items[:frameBytes]...)); err != nil {
				return err
			}
			p.Items = p.Items[frameBytes:]
		}
		frame = copies.AppendPart(frame, &copies.Part{Number: n, Total: p.Total, Items: p.Items})
	}
	if copies.Size(frame) == 0 {
		return nil
	}
	return flush(frame)
}
