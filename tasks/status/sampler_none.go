//go:build nokeyed

package status

// Sampler samples nothing in a program that is built with the tag nokeyed, which has no slots.
type Sampler struct{}
