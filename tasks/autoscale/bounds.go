package autoscale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/tags"
)

// Request asks to keep the number of tasks of a stage between two bounds, as the load demands.
type Request struct {
	// Stage is the stage's name.
	Stage string `json:"stage"`
	// Min and Max are the least and the largest number of tasks. Max 0 asks to leave the number of
	// tasks as it is from now on.
	Min int `json:"min"`
	Max int `json:"max"`
}

// Off reports whether r asks to leave the number of tasks as it is.
func (r *Request) Off() bool { return r.Max == 0 }

// Load returns the requests that a job has in the log, by stage.
func Load(ctx context.Context, log sharedlog.Log, job string) (map[string]Request, error) {
	c, err := log.Get(ctx, tags.AutoscaleKey(job))
	if err != nil {
		return nil, err
	}
	return decode(job, c.Value)
}

func decode(job string, value []byte) (map[string]Request, error) {
	all := map[string]Request{}
	if len(value) == 0 {
		return all, nil
	}
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("metadata key %q has no bounds of tasks: %w", tags.AutoscaleKey(job), err)
	}
	return all, nil
}

// Store adds a request to those that a job has in the log, or removes that of its stage.
func Store(ctx context.Context, log sharedlog.Log, job string, r Request) error {
	key := tags.AutoscaleKey(job)
	c, err := log.Get(ctx, key)
	for err == nil {
		var all map[string]Request
		if all, err = decode(job, c.Value); err != nil {
			return err
		}
		if all[r.Stage] = r; r.Off() {
			delete(all, r.Stage)
		}
		var value []byte
		if len(all) > 0 {
			if value, err = json.Marshal(all); err != nil {
				return err
			}
		}
		if bytes.Equal(value, c.Value) {
			return nil
		}
		if c, err = log.CompareAndSet(ctx, key, c.Value, value); errors.Is(err, sharedlog.ErrConflict) {
			err = nil // another request was stored in between
			continue
		}
		break
	}
	if err != nil {
		return fmt.Errorf("store the bounds of stage %q: %w", r.Stage, err)
	}
	return nil
}
