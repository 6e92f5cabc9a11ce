//go:build !nokeyed

package status

import (
	"encoding/json"

	"tailrace.dev/tailrace/operators/route/sketch"
)

// told is a sample between processes. Keys are bytes, which JSON has no strings for.
type told struct {
	Parts  []float64 `json:"parts"`
	Keys   []toldKey `json:"keys"`
	Missed float64   `json:"missed"`
}

type toldKey struct {
	Key   []byte  `json:"key"`
	Hash  uint64  `json:"hash"`
	Count float64 `json:"count"`
	Over  float64 `json:"over"`
}

// MarshalJSON returns what was sampled.
func (s *Sampler) MarshalJSON() ([]byte, error) {
	r := s.Read()
	t := told{Parts: r.Parts, Missed: r.Missed}
	for _, k := range r.Keys {
		t.Keys = append(t.Keys, toldKey{[]byte(k.Key), k.Hash, k.Count, k.Over})
	}
	return json.Marshal(&t)
}

// UnmarshalJSON sets what the sampler of another process has sampled.
func (s *Sampler) UnmarshalJSON(b []byte) error {
	var t told
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	s.told = &sketch.Sample{Parts: t.Parts, Missed: t.Missed}
	for _, k := range t.Keys {
		s.told.Keys = append(s.told.Keys, sketch.Count{Key: string(k.Key), Hash: k.Hash, Count: k.Count, Over: k.Over})
	}
	return nil
}
