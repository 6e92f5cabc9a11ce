// Package etcdserver runs etcd inside one of our processes, so that a cluster on one machine needs
// nothing installed. Only cmd/tailrace links it: the server is large (docs/adr/0012), and users'
// programs need only the client.
package etcdserver
