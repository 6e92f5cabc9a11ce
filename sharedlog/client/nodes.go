package client

import (
	"context"
	"slices"
)

// Nodes returns the addresses of the storage nodes that accept appends at present. Each active node
// is the primary of a shard.
func (l *Log) Nodes() []string {
	var nodes []string
	open, _ := l.shards.open()
	for _, sh := range open {
		nodes = append(nodes, sh.GetAddrs()[0])
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Call sends a request that is not part of the log's protocol to a process of the cluster and waits
// for the reply.
func (l *Log) Call(ctx context.Context, addr, method string, request, reply any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	return l.opt.Dialer.Call(ctx, addr, method, request, reply)
}
