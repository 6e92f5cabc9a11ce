// Package redistest runs a real redis-server with an append-only file for tests. It can be killed
// and restarted with the same address and data.
package redistest
