// Package follow keeps a process told of the metalog: one stream of events, from one
// sequencer at a time, the leader if possible.
//
//	Run ──▶ any sequencer ── events, who leads ──▶ Take
//	             │
//	             └ another one leads: a second stream ── its first message ──▶ the first
//	                                                       stream ends, Take goes on
//
// Any sequencer shows the same events in the same order. The leader shows them first: a
// follower hears of an entry with the leader's next message, and shows it when it has
// written that to its disk. So a cut reaches a storage node that follows the leader one
// hop and one write earlier.
//
// # Invariants
//
//  1. Take is called by one goroutine, with the messages of one stream, in order, and
//     then with those of the next. A new stream may repeat events that were taken before;
//     whoever takes them skips them by their index.
//  2. A stream is left for the leader's only when that one has sent its first message,
//     and not for a snapshot: a leader that cannot be reached costs nothing.
//  3. Many processes do not move at once: each waits for a part of Options.Spread that
//     follows from its name, and where it begins to look for a sequencer follows from its
//     name too. A leader that did not answer is tried again after a second, then two, up
//     to half a minute.
//  4. A process to which a snapshot in place of events costs something (Options.Insist)
//     takes one only when every sequencer has said that it does not have the events any
//     more, or ten seconds after the first one has, if others do not answer.
//  5. A sequencer that is silent for Silence is left for the next one.
package follow
