// Package host makes roles into processes: it listens, wires a role to the network,
// the disk and the clock, and ends it. It is the one package that knows every role.
package host
