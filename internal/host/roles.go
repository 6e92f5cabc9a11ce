package host

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tailrace.dev/tailrace/internal/probe"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sequencer/server"
	"tailrace.dev/tailrace/sharedlog/client"
	storage "tailrace.dev/tailrace/storage/server"
	"tailrace.dev/tailrace/tasks/txn/coordinator"
)

// Sequencer holds the settings of a sequencer process.
type Sequencer struct {
	Common
	ID uint64
	// Peers, Bootstrap and Join are as in server.Options.
	Peers     map[uint64]string
	Bootstrap bool
	Join      []string
	Dir       string
	// Tick is the interval of raft's clock.
	Tick  time.Duration
	Fsync string
	// As in server.Options.
	HistoryEvents               int
	HistoryMemory, HistoryBytes int64
	ForgetAfter                 time.Duration
	// Replicas is the number of replicas of each shard; the same at all sequencers.
	Replicas int
	// Quotas are as in server.Options.
	Quotas server.Quotas
	// ShardBytes is the size at which an open shard is replaced; 0: the default; negative: never.
	// The same at all sequencers.
	ShardBytes int64
	// Stuck is how long a replica may make no progress before it counts as lost; 0: the default.
	Stuck time.Duration
}

// Run runs the sequencer until ctx ends or it fails.
func (s *Sequencer) Run(ctx context.Context) error {
	settings := controller.Default
	if s.Replicas > 0 {
		settings.Replicas = s.Replicas
	}
	if s.Stuck > 0 {
		settings.Stuck = s.Stuck.Milliseconds()
	}
	if s.ShardBytes != 0 {
		settings.ShardBytes = uint64(max(0, s.ShardBytes))
	}
	return serve(ctx, &s.Common, func(d transport.Dialer) (role, error) {
		return server.Start(server.Options{
			Controller: settings, Quotas: s.Quotas,
			ID: s.ID, Addr: s.Advertise, Peers: s.Peers, Bootstrap: s.Bootstrap, Join: s.Join, HistoryEvents: s.HistoryEvents, HistoryMemory: s.HistoryMemory, HistoryBytes: s.HistoryBytes, ForgetAfter: s.ForgetAfter, Dir: s.Dir, Dialer: d, Tick: s.Tick, Fsync: s.Fsync,
			Cluster: s.Cluster, Version: s.Version, Logger: s.Logger,
		})
	}, func(r *prometheus.Registry, ro role) func() error {
		q := ro.(*server.Server)
		probe.Gauges(r, "tailrace_sequencer_", func() map[string]float64 {
			m, err := q.Status()
			if err != nil {
				return nil
			}
			leads := 0.0
			if m.GetLeader().GetMe() {
				leads = 1
			}
			open := 0
			for _, sh := range m.GetShards() {
				if !sh.GetSealed() {
					open++
				}
			}
			reporting := 0
			for _, n := range m.GetNodes() {
				if n.GetSilentMs() >= 0 {
					reporting++
				}
			}
			all := map[string]float64{
				"leads": leads, "term": float64(m.GetTerm()), "applied_entries": float64(m.GetApplied()), "tail_lsn": float64(m.GetTail()),
				"cuts": float64(m.GetCuts()), "shards": float64(len(m.GetShards())), "open_shards": float64(open), "nodes_heard": float64(reporting),
				"followers": float64(m.GetFollowers()), "client_followers": float64(m.GetClientFollowers()),
				"level": float64(m.GetLevel()), "keys": float64(m.GetTables().GetKeys()), "key_bytes": float64(m.GetTables().GetKeyBytes()),
				"trim_points": float64(m.GetTables().GetTrims()), "trim_point_bytes": float64(m.GetTables().GetTrimBytes()), "floor_lsn": float64(m.GetTables().GetFloor()),
				"history_events": float64(m.GetTables().GetHistoryEvents()), "history_bytes": float64(m.GetTables().GetHistoryBytes()), "disk_bytes": float64(m.GetTables().GetDiskBytes()),
			}
			quotas := q.Quotas()
			all["quota_refused"] = float64(q.QuotaRefused())
			all["key_bytes_limit"], all["trim_points_limit"] = float64(max(0, quotas.MetadataBytes)), float64(max(0, quotas.TrimTags))
			maps.Copy(all, clusterMetrics(m))
			return all
		})
		return func() error {
			m, err := q.Status()
			switch {
			case err != nil:
			case m.GetWaiting() != "":
				err = errors.New(m.GetWaiting())
			case m.GetLeader().GetId() == 0:
				err = errors.New("the sequencers have no leader")
			}
			return err
		}
	})
}

// Storage holds the settings of a storage process.
type Storage struct {
	Common
	Sequencers    []string
	Dir           string
	Fsync         string
	FsyncInterval time.Duration
	SegmentBytes  int64
	Memory        int64
	// ReserveBytes is the space to keep free on the disk; 0: the default; negative: none.
	ReserveBytes int64
	// ScrubRate is how many bytes a second are read to find damage; 0: the default; negative: none.
	ScrubRate int64
	// Zone is the failure domain of the node; empty: none.
	Zone string
	// ClientBytes and ClientTags are as in storage.Options.
	ClientBytes int64
	ClientTags  int
	// FS is the file system; default vfs.OS.
	FS vfs.FS
}

// storageNode is a storage node with a transaction coordinator. The coordinator is an ordinary
// client of the log: it shares only the address with the node.
type storageNode struct {
	*storage.Node
	transactions *coordinator.Service
	log          *lazyLog
}

func (n *storageNode) Register(t transport.Handlers) {
	n.Node.Register(t)
	n.transactions.Handle(t)
}

func (n *storageNode) Close() error {
	n.transactions.Close()
	return errors.Join(n.log.close(), n.Node.Close())
}

// Run runs the storage node until ctx ends or it fails.
func (s *Storage) Run(ctx context.Context) error {
	return serve(ctx, &s.Common, func(d transport.Dialer) (role, error) {
		node, err := storage.Start(storage.Options{
			Addr: s.Advertise, Sequencers: s.Sequencers, Dir: s.Dir, FS: s.FS, Dialer: d, Fsync: s.Fsync, FsyncInterval: s.FsyncInterval,
			SegmentBytes: s.SegmentBytes, Memory: s.Memory, ReserveBytes: s.ReserveBytes, ScrubRate: s.ScrubRate, Zone: s.Zone, ClientBytes: s.ClientBytes, ClientTags: s.ClientTags, Cluster: s.Cluster, Version: s.Version, Logger: s.Logger,
		})
		if err != nil {
			return nil, err
		}
		log := &lazyLog{transport: s.transport(), options: client.Options{Sequencers: s.Sequencers, Name: "coordinator " + s.Advertise, Logger: s.Logger}}
		return &storageNode{node, coordinator.New(log.open, s.Logger), log}, nil
	}, func(r *prometheus.Registry, ro role) func() error {
		n := ro.(*storageNode)
		probe.Gauges(r, "tailrace_storage_", func() map[string]float64 {
			m := n.Status()
			open, behind, readonly := 0, uint64(0), 0.0
			if m.GetReadonly() {
				readonly = 1
			}
			for _, s := range m.GetReplicas() {
				if !s.GetSealed() {
					open++
					behind += s.GetLength() - min(s.GetAssigned(), s.GetLength())
				}
			}
			return map[string]float64{
				"applied_entries": float64(m.GetApplied()), "tail_lsn": float64(m.GetTail()), "disk_bytes": float64(m.GetDiskBytes()),
				"replicas": float64(len(m.GetReplicas())), "open_replicas": float64(open), "records_without_fate": float64(behind),
				"sessions": float64(m.GetSessions()), "queued_bytes": float64(m.GetQueuedBytes()), "cached_bytes": float64(m.GetCachedBytes()),
				"readonly": readonly, "free_bytes": float64(m.GetFreeBytes()), "reserve_bytes": float64(m.GetReserveBytes()),
				"damaged_segments": float64(m.GetDamaged()), "mended_segments": float64(m.GetMended()),
				"quota_refused":     float64(n.QuotaRefused()),
				"scrub_age_seconds": float64(m.GetScrubbedMs()) / 1000, "scrub_found_segments": float64(m.GetScrubFound()),
			}
		})
		return func() error {
			if m := n.Status(); m.GetApplied() == 0 {
				return errors.New("no sequencer has answered yet")
			}
			return nil
		}
	})
}
