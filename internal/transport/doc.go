// Package transport carries messages between the processes of a cluster: gRPC streams with one
// codec for protobuf messages (package logpb) and for Raw messages, whose bytes are sent without a
// copy and received in one buffer that belongs to the receiver.
//
//	Server.Handle("storage/append", f) ◀── stream ── Dialer.Open(addr, "storage/append")
//
// Dialer, Server and the streams are interfaces. NewDialer and NewServer return implementations
// that use gRPC; the simulator (internal/sim) has another pair, in memory, on a network that
// loses, delays and cuts.
//
// The package knows no message types: the two ends of a stream agree on them. Each connection names
// its cluster and the version of the protocol; a process of another cluster or version is refused,
// with both names in the error. An error of the log keeps its kind across the network
// (sharedlog.KindOf).
//
// With TLS files both ends present a certificate of the same authority.
package transport
