// Package transport carries messages between the processes of a cluster: gRPC
// streams, with one codec for protobuf messages (package logpb) and for Raw ones,
// whose bytes are sent without a copy and received in one piece that belongs to the
// receiver.
//
//	Server.Handle("storage/append", f) ◀── stream ── Dialer.Open(addr, "storage/append")
//
// Dialer, Server and the streams are interfaces. What NewDialer and NewServer return
// speaks gRPC; the simulator (internal/sim) has another pair, in memory, on a network
// that loses, delays and cuts.
//
// It knows no message by name: what is said on a stream is the business of its two
// ends. Each connection says which cluster and which version of the protocol it
// speaks; a process of another one is refused, with both names. An error of the log
// keeps its kind on the way (sharedlog.KindOf).
//
// With TLS files both ends show a certificate of the same authority.
package transport
