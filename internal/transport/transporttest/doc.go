// Package transporttest is the conformance suite of package transport. Its implementations are gRPC
// between processes and the simulator's network in memory.
package transporttest
