package host_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/certtest"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// try appends something; it gives up when the cluster is not usable for longer than patience.
func try(t *testing.T, c *local, o transport.Options, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	options := []client.Option{client.WithCluster(o.Cluster), client.WithLogger(quiet)}
	if o.TLS.On() {
		options = append(options, client.WithTLS(o.TLS.Cert, o.TLS.Key, o.TLS.CA))
	}
	l, err := client.Open(ctx, strings.Join(c.sequencers, ","), options...)
	if err != nil {
		return err
	}
	_, err = sharedlog.NewWriter(l, "w", sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}}).Wait(ctx)
	require.NoError(t, l.Close())
	return err
}

// With TLS files both ends of every link are checked: a process without a certificate, or with one
// of another authority, is refused; so is a process of another cluster, with both names in the
// error.
func TestStrangersAreRefused(t *testing.T) {
	a := certtest.NewAuthority(t)
	c := newLocalWith(t, 1, 1, a.Issue(t, "server"))
	mine := a.Issue(t, "client")
	const few = 3 * time.Second
	require.NoError(t, try(t, c, transport.Options{Cluster: "test", TLS: mine}, time.Minute), "the first shard opens")
	require.Error(t, try(t, c, transport.Options{Cluster: "test"}, few))
	require.Error(t, try(t, c, transport.Options{Cluster: "test", TLS: certtest.NewAuthority(t).Issue(t, "stranger")}, few))
	var err error
	for range 5 { // on a busy machine even the TLS handshake may take longer
		if err = try(t, c, transport.Options{Cluster: "other", TLS: mine}, few); err == nil || strings.Contains(err.Error(), `"test"`) {
			break
		}
	}
	require.ErrorContains(t, err, `"test"`)
	require.ErrorContains(t, err, `"other"`)
	_, err = transport.NewDialer(transport.Options{TLS: transport.TLS{Cert: mine.Cert}})
	require.ErrorContains(t, err, "all three or none")
	_, err = client.Open(t.Context(), c.sequencers[0], client.WithTLS(mine.Cert, "", ""))
	require.ErrorContains(t, err, "all three or none")
	_, err = client.Open(t.Context(), "localhost")
	require.ErrorContains(t, err, `"localhost" is no address of a sequencer`)
	_, err = client.Open(t.Context(), " ,")
	require.ErrorContains(t, err, "the address of a sequencer is needed")
}

// An address that others can reach needs TLS, or a flag that it does not.
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
	s := host.Storage{Common: c.common(porttest.Hold(t, 1)[0]), Sequencers: c.sequencers, Dir: dir}
	require.Equal(t, sharedlog.KindLocked, sharedlog.KindOf(s.Run(t.Context())), "it is in use")
	c.end("storage0")
	require.ErrorContains(t, s.Run(t.Context()), "give the node the same one")
}
