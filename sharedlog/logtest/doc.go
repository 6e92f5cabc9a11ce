// Package logtest is the conformance suite of sharedlog.Log: what every
// implementation must do, one subtest for each promise of the contract. Run
// checks stories that are written out; RunRandom plays random histories on an
// implementation and on the reference twin (sharedlog/mem) side by side and
// compares every answer: LSNs, fates, records, values, kinds of errors.
package logtest
