//go:build nokeyed

package workload

import (
	"fmt"
	"slices"
)

func keyed() []*Workload { return nil }

func without(name string) error {
	if !slices.Contains([]string{"kw", "ysb", "lvd", "bridge", "ride"}, name) {
		return nil
	}
	return fmt.Errorf("this program is built without workload %s, and without clocks of keys (tag nokeyed): use one that is built without that tag", name)
}
