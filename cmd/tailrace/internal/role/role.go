// Package role has the commands that run the processes of a cluster: sequencers, storage nodes, task
// managers, and an etcd of one member.
package role

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
)

// common adds the flags that all roles share.
func common(cmd *cobra.Command, c *host.Common, level *string) {
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:0", "address to listen at")
	f.StringVar(&c.Advertise, "advertise", "", "address at which others reach it (default: --listen)")
	f.StringVar(&c.HTTP, "http", "", "address for /readyz, /metrics and /debug/pprof (default: none)")
	TLSFlags(cmd, c)
	f.BoolVar(&c.Insecure, "insecure", false, "do not use TLS although other hosts can reach the address")
	f.StringVar(level, "log-level", "info", "debug, info, warn or error")
}

// TLSFlags adds the flags for the name of the cluster and for its certificates.
func TLSFlags(cmd *cobra.Command, c *host.Common) {
	f := cmd.Flags()
	f.StringVar(&c.Cluster, "cluster", "tailrace", "the cluster's name; processes of another one are refused")
	f.StringVar(&c.TLS.Cert, "tls-cert", "", "this process's certificate (PEM); with --tls-key and --tls-ca every link is mutual TLS")
	f.StringVar(&c.TLS.Key, "tls-key", "", "its key")
	f.StringVar(&c.TLS.CA, "tls-ca", "", "the authority's certificate, which the other end's must be of")
}

// logger makes the process's logger: one line an event, readable by people and programs.
func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, cli.Usagef("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// orAny returns a limit for which the flag value 0 means no limit.
func orAny(limit int) int {
	if limit == 0 {
		return -1
	}
	return limit
}

// limitMemory sets the soft limit of the Go heap, unless GOMEMLIMIT does.
func limitMemory(m int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m - m/8)
	}
}
