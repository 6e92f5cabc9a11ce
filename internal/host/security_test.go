package host_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// authority makes certificates for 127.0.0.1.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{dir: t.TempDir()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.file = a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func (a *authority) issue(t *testing.T, name string) transport.TLS {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return transport.TLS{Cert: a.write(t, name+".pem", "CERTIFICATE", der), Key: a.write(t, name+".key", "EC PRIVATE KEY", raw), CA: a.file}
}

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
	a := newAuthority(t)
	c := newLocalWith(t, 1, 1, a.issue(t, "server"))
	mine := a.issue(t, "client")
	require.NoError(t, try(t, c, transport.Options{Cluster: "test", TLS: mine}))
	require.Error(t, try(t, c, transport.Options{Cluster: "test"}))
	require.Error(t, try(t, c, transport.Options{Cluster: "test", TLS: newAuthority(t).issue(t, "stranger")}))
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
