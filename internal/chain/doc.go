// Package chain models one writer with appends in flight. The model is small enough to explore all
// its states. It shows which rules of the log ensure that the groups with effect are a prefix of
// those that were sent. Every rule can be switched off: with all rules no state is bad, and without
// any one of them there is a shortest story that ends in a bad state (pitfalls L3, L10).
//
//	writer ──send──▶ connection (FIFO) ──deliver──▶ shard's sublog ──cut──▶ the order
//	   ▲   resend,       │ lost                        │ sealed: un-ordered      │
//	   └── move home     ▼                             ▼ groups are dropped      ▼
//	                                                        effect, if the condition holds
//
// A state is bad when the numbers of the groups that took effect, in their order,
// are not 1, 2, 3 …
package chain

// Rules selects the rules of the design that the model follows.
type Rules struct {
	// OneHome: a writer sends to one shard at a time.
	OneHome bool
	// Chain: a primary accepts number n of a writer only after n − 1, and accepts a writer that it
	// does not know only at the start of a session.
	Chain bool
	// Resolve: a group without an answer is sent to a second shard only when the first shard's seal
	// is in the order and the task log has been read up to it.
	Resolve bool
	// Fresh: a condition's value, once replaced, never returns.
	Fresh bool
}

// All is every rule.
var All = Rules{OneHome: true, Chain: true, Resolve: true, Fresh: true}
