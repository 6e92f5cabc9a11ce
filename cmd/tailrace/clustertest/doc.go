// Package clustertest walks scripts/cluster from nothing to a report and back to nothing,
// on hosts that are directories of this machine (scripts/cluster/local-hosts.sh), each
// with an sshd and an address of its own: real SSH, real processes, real keys.
//
// The ordinary run is the journey, and what is refused without asking a host. With
// TAILRACE_SOAK=1 (make cluster-test) hosts are not fit, the scripts are killed half-way,
// a host dies during the sweep, and the safety stop ends a cluster that nobody stops.
package clustertest
