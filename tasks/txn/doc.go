// Package txn decides a task's transactions, as a coordinator of Kafka Streams'
// protocol does (Impeller §3.6; docs/protocol-txn.md). It is pure: requests and
// acknowledged appends go in, appends and answers come out; package coordinator is the
// loop around it.
//
//	Init(i)          Add(n, partitions)        Commit(n, marker)        all commit records
//	   |                    |                        |                        |
//	   v                    v                        v                        v
//	 empty  ---------->   open   --------------> prepared  -----------> empty, n done
//	   ^                    |                        |
//	   +--- Init(i + 1) ----+    Init(i + 1) waits --+
//
// Each arrow is one record of the task's transaction stream, and holds the whole State:
// who takes over needs the newest only.
//
// # Invariants
//
//  1. One thing is on its way at a time: a state, or a second phase. Requests that come
//     meanwhile are answered after it, in the order in which they came.
//  2. An answer is given when what it says is in the log.
//  3. A prepared transaction is decided: whoever finds it in the stream writes its commit
//     records, the marker and the state behind them, all by one writer and so in this
//     order (promise 8 of the log); before that nobody is answered.
//  4. Below the place in the answer to Init lie all commit records of lower instances,
//     for ever: they are refused from the record on that made Init.
//  5. Every request may be repeated.
package txn
