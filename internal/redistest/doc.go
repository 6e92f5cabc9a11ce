// Package redistest runs a real redis-server, with its append-only file, for tests: one
// that can be killed and started again on the same address and data.
package redistest
