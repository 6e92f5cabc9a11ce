package main

import (
	"context"
	"strings"
	"time"

	"tailrace.dev/tailrace/internal/host"
)

// complete reports whether all nodes have joined and every open shard belongs to a living process:
// the shards of the previous run are sealed.
func complete(ctx context.Context, cluster string, sequencers []string, nodes int) bool {
	t := target{log: strings.Join(sequencers, ","), timeout: time.Second, Common: host.Common{Cluster: cluster}}
	c, err := t.look(ctx)
	if err != nil || c.leader == nil || len(c.leader.GetNodes()) < nodes {
		return false
	}
	incarnation := map[string]uint64{}
	for _, n := range c.leader.GetNodes() {
		incarnation[n.GetAddr()] = n.GetIncarnation()
	}
	open := 0
	for _, sh := range c.leader.GetShards() {
		if !sh.GetSealed() {
			if open++; incarnation[sh.GetAddrs()[0]] != sh.GetIncarnation() {
				return false
			}
		}
	}
	return open > 0
}
