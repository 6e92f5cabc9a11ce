// Package etcdserver is etcd inside a process of ours, so that a cluster on one machine
// needs nothing installed. It is a package of its own, linked into cmd/tailrace only:
// the server is heavy (docs/adr/0012), and programs of users need the client alone.
package etcdserver
