package driver

import (
	"encoding/json"
	"fmt"
	"math"
)

// MS is a time in ms. It is NaN, and null in JSON, if the measurement has not seen it: a
// figure that is missing is not 0.
type MS float64

// Unseen is the time of what a measurement has not seen.
func Unseen() MS { return MS(math.NaN()) }

// Seen reports whether the measurement has seen it.
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
