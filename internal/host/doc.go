// Package host runs roles as processes: it listens, connects a role to the network, the disk and
// the clock, and stops it. It is the only package that knows all roles.
package host
