// Package logtest is the conformance suite of sharedlog.Log, with one subtest for each promise of
// the contract. Run plays fixed stories; RunRandom plays random histories on an implementation and
// on the reference twin (sharedlog/mem) side by side and compares every answer: LSNs, outcomes,
// records, values, kinds of errors.
package logtest
