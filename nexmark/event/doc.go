// Package event holds the NEXMark events and answers, and their three forms: Go values, a compact
// binary form that travels through the log, and the JSON Lines that people and other systems read.
// It is a leaf: pure functions on bytes, no clock, no file, no goroutine.
//
// # The binary form
//
// A type byte, then 64-bit little-endian integers at fixed offsets, the event time first, then
// strings, each preceded by its length as a uvarint:
//
//	offset   0    1        9         17        25         33         41        49       57
//	person   0  | time   | id      | name, email, credit card, city, state, extra
//	auction  1  | time   | id      | seller  | category | initial  | reserve | expires| item name, description, extra
//	bid      2  | time   | auction | bidder  | price    | channel, url, extra
//
// So a reader learns the type from one byte and the time from one load, and skips the events it
// does not need without decoding them. On average a generated person takes 200 bytes, an auction
// 500, a bid 100.
//
// # Invariants
//
//  1. Decoding allocates nothing: the strings of a decoded event alias the bytes
//     it was decoded from and are valid as long as those. A caller that keeps an
//     event longer calls its Clone.
//  2. Parse and the decoders accept arbitrary bytes and answer with an error,
//     never with a panic or a wrong event.
//  3. A Parser writes exactly one binary event for a good line and leaves the
//     destination unchanged for a bad one. Its errors name the field.
//  4. What the Append…JSON functions write is valid JSON in valid UTF-8 whatever
//     the strings hold; bytes that are not UTF-8 become U+FFFD.
//  5. Money is in int64 cents; a mean is one correctly rounded float64 division
//     of exact integers at the very end, so the order of arrival does not matter.
//  6. Times are int64 milliseconds since 1970-01-01 UTC, between the years 1
//     and 9999, which is what their text form can hold; window arithmetic on
//     them cannot overflow.
package event
