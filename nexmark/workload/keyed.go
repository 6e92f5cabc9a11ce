//go:build !nokeyed

package workload

// keyed lists the workloads that have clocks of keys.
func keyed() []*Workload { return []*Workload{kw, ysb, lvd, bridge, ride} }

// without returns why the program is built without the workload of a name; nil: it is not, or there is none.
func without(string) error { return nil }
