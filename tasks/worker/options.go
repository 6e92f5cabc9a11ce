package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/observe"
)

// TLS names the PEM files of a process: its certificate, its key, and the certificate of the
// authority that has signed those of the cluster. The zero value means no TLS.
type TLS = transport.TLS

// Options are the settings of Run. The program sets Program and Build; the rest are settings, with
// defaults by Flags.
type Options struct {
	// Program is the program name that jobs ask their workers for.
	Program string
	// Build makes the plan of a job from its Args. The worker compares the plan's shape with the
	// job's.
	Build func(spec *tasks.Spec) (*exec.Plan, error)
	// Version is the program's release, for people.
	Version string

	// Log are the addresses of the cluster's sequencers; Etcd those of its etcd, by default those
	// in the log.
	Log, Etcd []string
	Cluster   string
	TLS       TLS
	// Wait is how long to wait for log and etcd.
	Wait time.Duration
	// Name is the worker's name, unique in the cluster (default: host and process id).
	Name string
	// Listen is the address on which the manager connects, Advertise the address that other
	// processes use for that (default: Listen). HTTP serves /readyz, /metrics and /debug/pprof.
	Listen, Advertise, HTTP string
	Insecure                bool
	// Stages, Jobs and Labels restrict what it runs; empty: anything.
	Stages, Jobs []string
	Labels       map[string]string
	// Tasks is how many it accepts at most, 0 = no limit.
	Tasks int
	// Checkpoints is where snapshots of state go: the URL of a Redis or Kvrocks
	// (checkpoint.RedisOptions), the same for all workers; empty: no snapshots.
	Checkpoints string
	// QueueBytes bounds the bytes that wait in this process to be appended.
	QueueBytes int64
	// LinkRate is transport.Options.LinkRate of the connections to the cluster.
	LinkRate int64
	Logger   *slog.Logger
	// Observer is told the steps of the tasks; it may be nil.
	Observer observe.Observer
}

// Flags adds the settings to a program's flags, and sets their defaults.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.Log, "log", nil, "the cluster: addresses of its sequencers, HOST:PORT,HOST:PORT,… (tailrace up prints them)")
	f.StringSliceVar(&o.Etcd, "etcd", nil, "addresses of etcd (default: as the log says)")
	f.StringVar(&o.Cluster, "cluster", "tailrace", "the cluster's name")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "certificate for all links, with --tls-key and --tls-ca")
	f.StringVar(&o.TLS.Key, "tls-key", "", "its key")
	f.StringVar(&o.TLS.CA, "tls-ca", "", "the authority's certificate")
	f.DurationVar(&o.Wait, "log-timeout", 10*time.Second, "how long to wait for the cluster")
	f.StringVar(&o.Name, "name", "", "this worker's name, unique in the cluster (default: host and process id)")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address at which the task manager reaches this worker")
	f.StringVar(&o.Advertise, "advertise", "", "address at which others reach it (default: --listen)")
	f.StringVar(&o.HTTP, "http", "", "address for /readyz, /metrics and /debug/pprof (default: none)")
	f.BoolVar(&o.Insecure, "insecure", false, "do not use TLS although other hosts can reach the address")
	f.StringSliceVar(&o.Stages, "stage", nil, "run these stages only (default: all)")
	f.StringSliceVar(&o.Jobs, "jobs", nil, "run these jobs only, by name (default: all that this program can run)")
	f.StringVar(&o.Checkpoints, "checkpoints", "", "where snapshots of state go: redis://[user:password@]HOST:PORT (Redis or Kvrocks; rediss:// for TLS), the same at all workers (default: none are made)")
	f.IntVar(&o.Tasks, "tasks", 0, "how many tasks to take at most, 0 = any number")
}

var names = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

func (o *Options) check() error {
	switch {
	case o.Build == nil || o.Program == "":
		return errors.New("worker: the program has no name, or cannot build plans") // a bug of the program
	case len(o.Log) == 0:
		return errors.New("--log: which cluster? give the addresses of its sequencers (tailrace up prints them)")
	case o.Tasks < 0:
		return fmt.Errorf("--tasks %d: a number of tasks, or 0 for any", o.Tasks)
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		o.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if !names.MatchString(o.Name) {
		return fmt.Errorf("--name %q: letters, digits, dots and dashes, at most 100", o.Name)
	}
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Cluster == "" {
		o.Cluster = "tailrace"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}
