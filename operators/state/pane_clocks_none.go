//go:build nokeyed

package state

// In a program that is built with the tag nokeyed no key has a clock: PaneTable.clocks is nil.

type paneClocks[K comparable, A any] struct{}

type detachedClocks struct{}

func (c *paneClocks[K, A]) detach(int) (none detachedClocks) { return none }

func (c *paneClocks[K, A]) attach(int, detachedClocks) {}

func (c *paneClocks[K, A]) dropped(int) {}

func (m *PaneTable[K, A]) began(*PaneEntry[K, A]) {}

func (m *PaneTable[K, A]) timed(*PaneEntry[K, A]) bool { return false }

func (m *PaneTable[K, A]) rehomeClock(_, _ *PaneEntry[K, A]) {}

func (m *PaneTable[K, A]) restoredKeys(int, bool) {}
