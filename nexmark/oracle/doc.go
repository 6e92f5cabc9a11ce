// Package oracle evaluates the NEXMark queries by brute force: plain loops over
// all events at once, written from the sentences of the contract and sharing
// nothing with the operators but the structs and the way a row is printed. It is
// test support: obviously right, quadratic where that is simpler, and to be run
// on some ten thousand events at most.
//
// What it takes from the contract:
//
//  1. The answer is that of the whole input; no order of arrival matters.
//  2. Windows are aligned to 1970 and hold start ≤ time < end; empty ones have
//     no rows. All rows of a tie are there.
//  3. A winning bid has the highest price among those with auction.Time ≤
//     bid.Time ≤ auction.Expires; an auction without one is in no answer.
//  4. Q4 and Q6 return the last row of each key, which is all that is defined of
//     a changelog.
package oracle
