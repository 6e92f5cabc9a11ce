// Package porttest reserves TCP ports for the servers of a test.
//
// A server in a test is often known by its address before it starts, and while it is stopped. A
// port that was found free, and then released, may go to another process in the meantime: to
// another test's server, or to an outgoing connection. Two ports that are found free one after the
// other may even be the same one. So Hold keeps a socket bound to each port until the test ends.
//
// The socket does not listen and has SO_REUSEADDR. Linux then lets another socket with SO_REUSEADDR,
// which includes every listener of package net, etcd and Redis, bind the same address and listen;
// but only one that names the port. A bind to port 0, a connection, and a bind without SO_REUSEADDR
// do not get the port. A connection is refused while no server listens.
package porttest
