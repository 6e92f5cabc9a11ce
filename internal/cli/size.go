package cli

import (
	"errors"
	"strconv"
	"strings"
)

// Size is a number of bytes as a flag: 1048576, 512KiB, 64MiB, 2GiB (or K, M, G).
type Size int64

var units = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	unit := int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = n, u.size
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<62/unit {
		return errors.New("want a size as 1048576, 64MiB or 2GiB")
	}
	*s = Size(n * unit)
	return nil
}

// String implements pflag.Value. It returns the shortest of the forms that Set accepts.
func (s *Size) String() string {
	for _, u := range units[:3] {
		if *s > 0 && int64(*s)%u.size == 0 {
			return strconv.FormatInt(int64(*s)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type implements pflag.Value.
func (*Size) Type() string { return "size" }

// Choice is a size whose default is not a fixed number, and that can be switched off. Its value
// follows the log's options: 0 until it is set, negative if it is set to 0.
type Choice struct {
	Number  int64
	Default string // shown until it is set
}

// Set implements pflag.Value.
func (c *Choice) Set(text string) error {
	var s Size
	err := s.Set(text)
	if c.Number = int64(s); s == 0 {
		c.Number = -1
	}
	return err
}

// String implements pflag.Value.
func (c *Choice) String() string {
	if c.Number == 0 {
		return c.Default
	}
	s := Size(max(c.Number, 0))
	return s.String()
}

// Type implements pflag.Value.
func (*Choice) Type() string { return "size" }
