// Package proctest runs a cluster of real processes for tests: it starts, kills and stops them, and
// forwards their connections through proxies that can be cut, for all processes or for the
// connections of one.
package proctest
