// Package transporttest holds what every implementation of package transport does:
// gRPC between processes, and the network in memory of the simulator.
package transporttest
