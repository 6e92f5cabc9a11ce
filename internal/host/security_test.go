package host_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

func try(t *testing.T, c *local, o transport.Options) error {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, o, client.Options{Sequencers: c.sequencers, Logger: quiet})
	if err != nil {
		return err
	}
	_, err = sharedlog.NewWriter(l, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}}).Wait(ctx)
	require.NoError(t, closeLog())
	return err
}

// With TLS files every link is mutual: who shows no certificate, or one of another
// authority, is refused; and so is a process of another cluster, with both names.
func TestStrangersAreRefused(t *testing.T) {
	a := proctest.NewAuthority(t)
	c := newLocalWith(t, 1, 1, a.Issue(t, "server"))
	mine := a.Issue(t, "client")
	require.NoError(t, try(t, c, transport.Options{Cluster: "test", TLS: mine}))
	require.Error(t, try(t, c, transport.Options{Cluster: "test"}))
	require.Error(t, try(t, c, transport.Options{Cluster: "test", TLS: proctest.NewAuthority(t).Issue(t, "stranger")}))
	err := try(t, c, transport.Options{Cluster: "other", TLS: mine})
	require.ErrorContains(t, err, `"test"`)
	require.ErrorContains(t, err, `"other"`)
	_, err = transport.NewDialer(transport.Options{TLS: transport.TLS{Cert: mine.Cert}})
	require.ErrorContains(t, err, "all three or none")
}

// What can be reached from outside needs TLS, or a word that it does not.
func TestNoTLSOnlyOnLoopback(t *testing.T) {
	s := host.Storage{Common: host.Common{Listen: "0.0.0.0:0", Logger: quiet}, Sequencers: []string{"127.0.0.1:1"}, Dir: t.TempDir()}
	require.ErrorContains(t, s.Run(t.Context()), "--insecure")
	s.Listen = "nonsense"
	require.ErrorContains(t, s.Run(t.Context()), "host:port")
}

// A data directory belongs to one address and one process.
func TestDataBelongsToAnAddress(t *testing.T) {
	c := newLocal(t, 1, 1)
	require.NoError(t, c.open(t).Close())
	dir := filepath.Join(c.dir, "storage0")
	s := host.Storage{Common: c.common(addresses(t, 1)[0]), Sequencers: c.sequencers, Dir: dir}
	require.Equal(t, sharedlog.KindLocked, sharedlog.KindOf(s.Run(t.Context())), "it is in use")
	c.end("storage0")
	require.ErrorContains(t, s.Run(t.Context()), "give the node the same one")
}
