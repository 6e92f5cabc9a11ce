package driver

import (
	"encoding/json"
	"fmt"
	"math"
)

// MS is a time in ms. A time that was not measured is NaN, and null in JSON: a missing figure is
// not 0.
type MS float64

// Unseen returns the MS of something that was not measured.
func Unseen() MS { return MS(math.NaN()) }

// Seen reports whether the time was measured.
func (m MS) Seen() bool { return !math.IsNaN(float64(m)) }

// String returns the time with one decimal, or "-".
func (m MS) String() string {
	if !m.Seen() {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(m))
}

// MarshalJSON implements json.Marshaler.
func (m MS) MarshalJSON() ([]byte, error) {
	if !m.Seen() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *MS) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*m = Unseen()
		return nil
	}
	return json.Unmarshal(b, (*float64)(m))
}
