// Package txn decides a task's transactions, as a coordinator of Kafka Streams' protocol does
// (Impeller §3.6; docs/protocol-txn.md). It is pure: its inputs are requests and acknowledged
// appends, its outputs appends and answers; package coordinator is the loop around it.
//
//	Init(i)          Add(n, partitions)        Commit(n, marker)        all commit records
//	   |                    |                        |                        |
//	   v                    v                        v                        v
//	 empty  ---------->   open   --------------> prepared  -----------> empty, n done
//	   ^                    |                        |
//	   +--- Init(i + 1) ----+    Init(i + 1) waits --+
//
// Each arrow is one record of the task's transaction stream, and holds the whole State: a
// coordinator that takes over needs only the newest one.
//
// # Invariants
//
//  1. One append is in progress at a time: a state, or a second phase. Requests that arrive
//     meanwhile are answered after it, in the order of their arrival.
//  2. An answer is given when what it states is in the log.
//  3. A prepared transaction is decided: a coordinator that finds it in the stream writes
//     its commit records, the marker and the state behind them, all by one writer and so in
//     this order (promise 8 of the log); before that it answers no request.
//  4. Below the place in the answer to Init lie all commit records of lower instances,
//     for ever: they are refused from the record on that made Init.
//  5. Every request may be repeated.
package txn
