package proctest

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/redistest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// forJobs is the part of a Cluster that runs jobs.
type forJobs struct {
	// Etcd is the address of etcd's proxy; WorkerAddr holds the addresses of proxied workers.
	Etcd       string
	WorkerAddr map[string]string
	store      *meta.Store
	// Redis is the store of the workers' snapshots.
	Redis *redistest.Server
	// TrimInterval is the managers' --trim-interval; "" means 200ms.
	TrimInterval string
}

// StartJobs starts etcd ("etcd") and n managers ("manager0", …), and waits until one
// leads.
func (c *Cluster) StartJobs(managers int) {
	c.Etcd, c.WorkerAddr = c.address(), map[string]string{}
	c.spawn("etcd", c.bin.Tailrace, "etcd", "--data", filepath.Join(c.Dir, "etcd"), "--listen", c.behind[c.Etcd])
	c.Redis = redistest.Start(c.t)
	for i := range managers {
		c.ManagerOf(c.bin, fmt.Sprint("manager", i))
	}
	var err error
	c.store, err = meta.Open(meta.Options{Endpoints: []string{c.Etcd}, Cluster: c.Options().Cluster, TLS: c.Options().TLS})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, c.store.Close()) })
	c.await("no manager leads", func() bool {
		v, err := c.View()
		return err == nil && v.Manager.Name != "" && v.Cluster.ID != ""
	})
}

// ManagerOf starts a manager of some programs; args are further ones of tailrace manager. It does not wait.
func (c *Cluster) ManagerOf(bin *Binaries, name string, args ...string) {
	addr := c.address()
	c.spawn(name, bin.Tailrace, append([]string{
		"manager", "--name", name, "--listen", c.behind[addr], "--advertise", addr,
		"--log", strings.Join(c.Sequencers, ","), "--etcd", c.Etcd,
		"--checkpoints", c.Checkpoints(), "--trim-interval", cmp.Or(c.TrimInterval, "200ms"), "--retention", "10m",
	}, args...)...)
}

// Checkpoints returns the URL of the store of the workers' snapshots. Redis writes before it acknowledges,
// so that the death of its process loses nothing. The default loss window is for power failures.
func (c *Cluster) Checkpoints() string { return c.Redis.URL() + "?settles=200ms" }

// Worker starts a worker with a name; args are nexmark worker's. It does not wait.
func (c *Cluster) Worker(name string, args ...string) { c.WorkerOf(c.bin, name, args...) }

// WorkerOf is Worker with other programs.
func (c *Cluster) WorkerOf(bin *Binaries, name string, args ...string) {
	all := []string{"worker", "--name", name, "--log", strings.Join(c.Sequencers, ","), "--log-timeout", "60s"}
	if c.Redis != nil {
		all = append(all, "--checkpoints", c.Checkpoints())
	}
	c.spawn(name, bin.Nexmark, append(all, args...)...)
}

// ProxiedWorker starts a worker that managers reach only through a proxy.
func (c *Cluster) ProxiedWorker(name string, args ...string) {
	addr := c.address()
	c.WorkerAddr[name] = addr
	c.Worker(name, append(args, "--listen", c.behind[addr], "--advertise", addr)...)
}

// View returns the content of etcd.
func (c *Cluster) View() (meta.View, error) { return c.store.Look(context.Background()) }

// Workers waits until so many workers are registered.
func (c *Cluster) Workers(n int) {
	c.await("not all workers are registered", func() bool {
		v, err := c.View()
		return err == nil && len(v.Workers) >= n
	})
}

// Overview returns the state of the jobs.
func (c *Cluster) Overview() (*jobs.Overview, error) {
	d, err := transport.NewDialer(c.Options())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return jobs.Look(context.Background(), c.store, d)
}

// LogProxies returns the proxies of sequencers and storage nodes.
func (c *Cluster) LogProxies() []*Proxy {
	var all []*Proxy
	for _, addr := range append(append([]string(nil), c.Sequencers...), c.Storage...) {
		all = append(all, c.Proxies[addr])
	}
	return all
}
