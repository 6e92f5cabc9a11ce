package client

import (
	"context"
	"slices"
)

// Nodes returns the addresses of the storage nodes that the log is appended to at present:
// each that lives has a shard of its own.
func (l *Log) Nodes() []string {
	var nodes []string
	open, _ := l.shards.open()
	for _, sh := range open {
		nodes = append(nodes, sh.GetAddrs()[0])
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Call sends a request that is not the log's own to a process of the cluster, and waits
// for the answer.
func (l *Log) Call(ctx context.Context, addr, method string, request, reply any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	return l.opt.Dialer.Call(ctx, addr, method, request, reply)
}
