package local

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
)

// layout holds the addresses of a local cluster's processes. It is stored in the data directory,
// because addresses identify processes.
type layout struct {
	Cluster    string   `json:"cluster"`
	Sequencers []string `json:"sequencers"`
	Storage    []string `json:"storage"`
	HTTP       []string `json:"http"` // of the sequencers, then of the storage nodes
	// Etcd is the address of etcd, started by up or given; Managers are HOST:PORT for RPC and for
	// HTTP, Workers for HTTP.
	Etcd        []string `json:"etcd,omitempty"`
	Managers    []string `json:"managers,omitempty"`
	ManagerHTTP []string `json:"manager_http,omitempty"`
	WorkerHTTP  []string `json:"worker_http,omitempty"`
	// Redis is the address of the Redis that up started; Checkpoints is where snapshots go.
	Redis       string `json:"redis,omitempty"`
	Checkpoints string `json:"checkpoints,omitempty"`
}

// layout reads the addresses of the processes, or chooses ports.
func (u *upFlags) layout(dir string) (*layout, error) {
	path := filepath.Join(dir, "cluster.json")
	l := new(layout)
	if b, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(b, l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(l.Sequencers) != u.sequencers || len(l.Storage) < u.storage || l.Cluster != u.cluster {
			return nil, cli.Usagef("%s is cluster %q with %d sequencers and %d storage nodes; give the same numbers and name, or another --data", dir, l.Cluster, len(l.Sequencers), len(l.Storage))
		}
	} else {
		l.Cluster = u.cluster
		n := u.sequencers + u.storage
		ports, err := l.free(2 * n)
		if err != nil {
			return nil, err
		}
		l.Sequencers, l.Storage, l.HTTP = ports[:u.sequencers], ports[u.sequencers:n], ports[n:]
	}
	if err := u.addJobs(l); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(path, append(b, '\n'), 0o644)
}

// free returns n addresses at which no process listens, and which no process of the cluster has: the
// cluster's processes do not run yet.
func (l *layout) free(n int) ([]string, error) {
	taken := slices.Concat(l.Sequencers, l.Storage, l.HTTP, l.Etcd, l.Managers, l.ManagerHTTP, l.WorkerHTTP, []string{l.Redis})
	ports, err := host.FreePorts(n + len(taken))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ports, func(p string) bool { return slices.Contains(taken, p) })[:n], nil
}

// addJobs chooses ports for the processes that run jobs, unless they have ports already.
func (u *upFlags) addJobs(l *layout) error {
	ports, err := l.free(1 + 2*u.managers + u.workers)
	if err != nil {
		return err
	}
	take := func() (p string) {
		p, ports = ports[0], ports[1:]
		return p
	}
	if u.etcd != "" {
		if l.Etcd, err = cli.Addresses("etcd", u.etcd); err != nil {
			return err
		}
	} else if len(l.Etcd) == 0 && u.managers > 0 {
		l.Etcd = []string{take()}
	}
	for len(l.Managers) < u.managers {
		l.Managers, l.ManagerHTTP = append(l.Managers, take()), append(l.ManagerHTTP, take())
	}
	for len(l.WorkerHTTP) < u.workers {
		l.WorkerHTTP = append(l.WorkerHTTP, take())
	}
	return u.addRedis(l)
}

// addRedis decides where snapshots go.
func (u *upFlags) addRedis(l *layout) error {
	_, missing := exec.LookPath("redis-server")
	switch own := l.Redis != ""; {
	case u.checkpoints == "none":
		l.Redis, l.Checkpoints = "", ""
		return nil
	case strings.Contains(u.checkpoints, "://"):
		l.Redis, l.Checkpoints = "", u.checkpoints
		return nil
	case u.checkpoints != "auto" && u.checkpoints != "redis":
		return cli.Usagef("--checkpoints %q: use redis, redis://HOST:PORT, or none", u.checkpoints)
	case missing != nil && (own || u.checkpoints == "redis"):
		return fmt.Errorf("--checkpoints redis: %w; install it (Debian, Ubuntu: apt install redis-server), or give the URL of one that runs", missing)
	case own, u.checkpoints == "auto" && (missing != nil || u.workers == 0):
		return nil
	}
	ports, err := l.free(1)
	if err != nil {
		return err
	}
	l.Redis, l.Checkpoints = ports[0], "redis://"+ports[0]
	return nil
}
