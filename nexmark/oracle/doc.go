// Package oracle evaluates the NEXMark queries by brute force: plain loops over all events at once,
// written from the text of the benchmark's contract. It shares nothing with the operators but the
// structs and the printing of rows. It is test support: simple enough to be obviously right,
// quadratic where that is simpler, and meant for some ten thousand events at most.
//
// What it takes from the contract:
//
//  1. The answer is that of the whole input; the order of arrival does not matter.
//  2. Windows are aligned to 1970 and hold start ≤ time < end; empty ones have
//     no rows. The answer has all rows of a tie.
//  3. A winning bid has the highest price among those with auction.Time ≤
//     bid.Time ≤ auction.Expires; an auction without one is in no answer.
//  4. Q4 and Q6 return the last row of each key, which is all that a changelog
//     defines.
package oracle
