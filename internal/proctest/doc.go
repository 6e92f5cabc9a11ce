// Package proctest runs a cluster of real processes for tests: it starts them, kills
// and stops them, and carries their connections through proxies that can be cut, for
// everybody or for the connections of one process.
package proctest
