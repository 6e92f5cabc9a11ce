// Package follow sends a process the metalog's events: one stream, from one sequencer at a time,
// the leader if possible.
//
//	Run ──▶ any sequencer ── events, who leads ──▶ Take
//	             │
//	             └ another one leads: a second stream ── its first message ──▶ the first
//	                                                       stream ends, Take continues
//
// All sequencers send the same events in the same order. The leader sends them first: the other
// sequencers receive an entry with the leader's next message, and send it when they have written it
// to disk. So a cut reaches a storage node that follows the leader one hop and one write earlier.
//
// # Invariants
//
//  1. Take is called by one goroutine, with the messages of one stream, in order, and then with
//     those of the next. A new stream may repeat events; Take must skip them by their index.
//  2. A follower leaves a stream for the leader's only when the leader's has sent its first
//     message, and not for a snapshot. So a leader that cannot be reached costs nothing.
//  3. Many processes do not move at once: each waits for a part of Options.Spread that depends on
//     its name, and the order in which it tries sequencers depends on its name, too. A leader that
//     did not answer is tried again after a second, then two, up to half a minute.
//  4. A process that would lose something by a snapshot in place of events (Options.Insist) accepts
//     one only when every sequencer has answered that the events are gone, or ten seconds after the
//     first such answer, if others do not answer.
//  5. A follower leaves a sequencer that is silent for Silence for the next one.
package follow
