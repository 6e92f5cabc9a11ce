// Package clustertest tests scripts/cluster from nothing to a report and back to nothing, on hosts
// that are directories of this machine (scripts/cluster/local-hosts.sh), each with an sshd and an
// address of its own: real SSH, real processes, real keys.
//
// The ordinary run is the whole journey, and the errors that are found without connecting to a
// host. With TAILRACE_SOAK=1 (make cluster-test) the tests also cover unfit hosts, scripts killed
// half-way, a host that dies during the sweep, and the safety stop that ends a cluster that
// was not stopped.
package clustertest
