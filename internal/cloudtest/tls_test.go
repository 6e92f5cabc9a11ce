package cloudtest

import (
	"crypto/tls"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
)

const hosts = `# made by hand
control control-1 10.0.0.10 admin@192.0.2.1 data=/mnt/tailrace

storage storage-1 10.0.0.16 admin@192.0.2.2
sequencer storage-1 10.0.0.16 admin@192.0.2.2
compute compute-1 compute.example admin@192.0.2.3`

func certificate(dir, name string) transport.TLS {
	d := filepath.Join(dir, "tls", name)
	return transport.TLS{Cert: filepath.Join(d, "cert.pem"), Key: filepath.Join(d, "key.pem"), CA: filepath.Join(d, "ca.pem")}
}

// handshake lets one host call another by the address that it believes to call.
func handshake(t *testing.T, from, to transport.TLS, address string) error {
	server, err := to.Config()
	require.NoError(t, err)
	client, err := from.Config()
	require.NoError(t, err)
	client.ServerName = address
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = tls.Server(c, server).Handshake()
			_ = c.Close()
		}
		served <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	failed := tls.Client(c, client).Handshake()
	_ = c.Close()
	if err := <-served; failed == nil {
		return err
	}
	return failed
}

func TestCertificates(t *testing.T) {
	b := newBox(t)
	file, dir := b.write("hosts", hosts), filepath.Join(b.dir, "tls")
	out, ok := b.run("scripts/cluster/tls.sh", file, dir)
	require.True(t, ok, out)
	require.Equal(t, `authority: BOX/tls/ca.pem
certificate: BOX/tls/control-1 (10.0.0.10)
certificate: BOX/tls/storage-1 (10.0.0.16)
certificate: BOX/tls/compute-1 (compute.example)
certificate: BOX/tls/client (localhost)
tls: 3 hosts in BOX/tls
`, out)

	storage, control := certificate(b.dir, "storage-1"), certificate(b.dir, "control-1")
	require.NoError(t, handshake(t, control, storage, "10.0.0.16"))
	require.NoError(t, handshake(t, certificate(b.dir, "client"), storage, "127.0.0.1"))
	require.NoError(t, handshake(t, storage, certificate(b.dir, "compute-1"), "compute.example"))
	require.ErrorContains(t, handshake(t, control, storage, "10.0.0.17"), "not 10.0.0.17")

	// Another authority's.
	other := newBox(t)
	out, ok = other.run("scripts/cluster/tls.sh", other.write("hosts", hosts), filepath.Join(other.dir, "tls"))
	require.True(t, ok, out)
	require.ErrorContains(t, handshake(t, control, certificate(other.dir, "storage-1"), "10.0.0.16"), "unknown authority")

	// Nobody else of this machine reads a key.
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		return nil
	}))
}

func TestCertificatesAreMadeOnce(t *testing.T) {
	b := newBox(t)
	file, dir := b.write("hosts", hosts), filepath.Join(b.dir, "tls")
	out, ok := b.run("scripts/cluster/tls.sh", file, dir)
	require.True(t, ok, out)
	first := b.read("tls/storage-1/cert.pem")

	out, ok = b.run("scripts/cluster/tls.sh", file, dir)
	require.True(t, ok, out)
	require.Equal(t, "tls: 3 hosts in BOX/tls\n", out)
	require.Equal(t, first, b.read("tls/storage-1/cert.pem"))

	// Another address, a half-made one: these only.
	b.write("hosts", "storage storage-1 10.0.0.99 x\ncontrol control-1 10.0.0.10 x\n")
	require.NoError(t, os.Remove(filepath.Join(dir, "control-1", "key.pem")))
	out, ok = b.run("scripts/cluster/tls.sh", file, dir)
	require.True(t, ok, out)
	require.Equal(t, "certificate: BOX/tls/storage-1 (10.0.0.99)\ncertificate: BOX/tls/control-1 (10.0.0.10)\ntls: 2 hosts in BOX/tls\n", out)
	require.NoError(t, handshake(t, certificate(b.dir, "control-1"), certificate(b.dir, "storage-1"), "10.0.0.99"))
}

func TestCertificatesRefuse(t *testing.T) {
	b := newBox(t)
	for name, c := range map[string]struct{ hosts, want string }{
		"nobody":        {"# none\n", "error: BOX/hosts: no host in it\n"},
		"short":         {"storage storage-1\n", "error: BOX/hosts:1: want role name address"},
		"a path":        {"\nstorage ../../x 10.0.0.1 x\n", "error: BOX/hosts:2: want role name address"},
		"two addresses": {"storage a 10.0.0.1 x\nsequencer a 10.0.0.2 x\n", "error: BOX/hosts:2: a has two addresses, 10.0.0.1 and 10.0.0.2"},
	} {
		out, ok := b.run("scripts/cluster/tls.sh", b.write("hosts", c.hosts), filepath.Join(b.dir, "tls"))
		require.False(t, ok, out)
		require.Contains(t, out, c.want, name)
	}
	out, ok := b.run("scripts/cluster/tls.sh", filepath.Join(b.dir, "missing"), filepath.Join(b.dir, "tls"))
	require.False(t, ok, out)
	require.Contains(t, out, "BOX/missing: cannot be read; terraform output -raw hosts_file makes it")
}
