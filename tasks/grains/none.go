//go:build nokeyed

package grains

import (
	"context"
	"log/slog"
	"time"
)

// In a program that is built with the tag nokeyed nothing chooses: package operators refuses streams whose
// grain may change.

// Chooser chooses nothing.
type Chooser struct{}

// New is not called, nor are the methods.
func New(Job, *slog.Logger, string, int64) *Chooser { return new(Chooser) }

// State is not called.
func (c *Chooser) State() State { return State{} }

// Run is not called.
func (c *Chooser) Run(context.Context, time.Duration) {}
