package checkpoint_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/certtest"
	"tailrace.dev/tailrace/internal/redistest"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// directory is the directory of a Pebble. Opening one directory twice returns the same store: a
// process has one.
type directory struct {
	dir  string
	open *shared
}

type shared struct {
	checkpoint.Store
	users int
	gone  func()
}

func (s *shared) Close() error {
	if s.users--; s.users > 0 {
		return nil
	}
	s.gone()
	return s.Store.Close()
}

func (d *directory) Open(t *testing.T) checkpoint.Store {
	if d.open == nil {
		p, err := checkpoint.OpenPebble(d.dir)
		require.NoError(t, err)
		d.open = &shared{Store: p, gone: func() { d.open = nil }}
	}
	d.open.users++
	return d.open
}

// Crash does nothing: what a Pebble has not flushed by the end of a Write is gone when it is
// closed, because it has no write-ahead log.
func (d *directory) Crash(*testing.T) {}

func TestPebble(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Home { return &directory{dir: t.TempDir()} })
}

type server struct{ *redistest.Server }

func (s server) Open(t *testing.T) checkpoint.Store {
	r, err := checkpoint.OpenRedis(context.Background(), checkpoint.RedisOptions{URL: s.URL()})
	require.NoError(t, err)
	return r
}

func (s server) Crash(*testing.T) {
	s.Kill()
	s.Restart()
}

// A file of the store is damaged: what needs it returns an error that names it, and what can be done; the process
// does not end, and no snapshot is made from then on.
func TestPebbleDamaged(t *testing.T) {
	dir := t.TempDir()
	p, err := checkpoint.OpenPebble(dir)
	require.NoError(t, err)
	g := checkpoint.Group{Job: "job", Stage: "stage"}
	w := checkpoint.Write{Group: g, Token: 1, To: 9}
	for i := range 2000 {
		w.Entries = append(w.Entries, checkpoint.Entry{Key: fmt.Appendf(nil, "key %d", i), Value: make([]byte, 100)})
	}
	_, err = p.Begin(t.Context(), g, 1)
	require.NoError(t, err)
	require.NoError(t, p.Write(t.Context(), []checkpoint.Write{w}))
	require.NoError(t, p.Close())
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	for _, name := range tables {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		for i := range len(b) / 2 { // the blocks of entries
			b[i] ^= 1
		}
		require.NoError(t, os.WriteFile(name, b, 0o600))
	}
	p, err = checkpoint.OpenPebble(dir)
	require.NoError(t, err)
	_, err = p.Load(t.Context(), g, func([]checkpoint.Entry) error { return nil })
	require.ErrorContains(t, err, dir+": "+filepath.Base(tables[0])+": the file is damaged: put it back from a copy")
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, "the directory can be removed")
	require.NotContains(t, err.Error(), "\n")
	w.From, w.To = 9, 12
	require.ErrorIs(t, p.Write(t.Context(), []checkpoint.Write{w}), checkpoint.ErrDamaged)
	require.NoError(t, p.Close())
}

func TestRedis(t *testing.T) {
	// The suite requires acknowledged writes to survive a kill: with everysec Redis delays its
	// write while a sync is in progress.
	storetest.Run(t, func(t *testing.T) storetest.Home { return server{redistest.Start(t, "--appendfsync", "always")} })
}

type memory struct{ m *storetest.Mem }

func (m memory) Open(*testing.T) checkpoint.Store { return m.m }
func (m memory) Crash(*testing.T)                 {}

// The twin must pass the suite too.
func TestMem(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Home { return memory{storetest.NewMem()} })
}

// A password and mutual TLS; errors name what is wrong, and contain no secret.
func TestRedisSecrets(t *testing.T) {
	ctx := context.Background()
	authority := certtest.NewAuthority(t)
	files := authority.Issue(t, "redis")
	s := redistest.Start(t, "--requirepass", "sesame", "--port", "0", "--tls-port", "PORT",
		"--tls-cert-file", files.Cert, "--tls-key-file", files.Key, "--tls-ca-cert-file", files.CA, "--tls-auth-clients", "yes")
	mine := authority.Issue(t, "client")
	config, err := mine.Config()
	require.NoError(t, err)
	open := func(url string, config *tls.Config) (checkpoint.Store, error) {
		return checkpoint.OpenRedis(ctx, checkpoint.RedisOptions{URL: url, TLS: config})
	}
	store, err := open("rediss://:sesame@"+s.Address(), config)
	require.NoError(t, err)
	g := checkpoint.Group{Job: "j", Stage: "s"}
	_, err = store.Begin(ctx, g, 1)
	require.NoError(t, err)
	require.NoError(t, store.Write(ctx, []checkpoint.Write{{Group: g, Token: 1, To: 9, Entries: []checkpoint.Entry{{Key: []byte("k"), Value: []byte("v")}}}}))
	require.NoError(t, store.Close())
	for _, c := range []struct {
		name, url string
		config    *tls.Config
		want      string
	}{
		{"another password", "rediss://:open@" + s.Address(), config, "WRONGPASS"},
		{"no password", "rediss://" + s.Address(), config, "NOAUTH"},
		{"no certificate", "rediss://:sesame@" + s.Address(), &tls.Config{RootCAs: config.RootCAs}, "certificate|reset by peer|broken pipe"}, // the reason may be lost with the connection
		{"no TLS", "redis://:sesame@" + s.Address(), nil, s.Address()},
		{"no URL", "redis://:sesame@", nil, ""},
		{"another scheme", "http://:sesame@host", nil, "redis://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(c.url, c.config)
			require.Error(t, err)
			require.Regexp(t, c.want, err.Error())
			require.NotContains(t, err.Error(), "sesame")
			require.NotContains(t, err.Error(), "open@")
		})
	}
}

// The URL may say for how long the server may lose what it has acknowledged.
func TestRedisLossWindow(t *testing.T) {
	for url, want := range map[string]time.Duration{
		"redis://127.0.0.1:1": 5 * time.Second, "redis://127.0.0.1:1?settles=0s": 0, "redis://127.0.0.1:1/2,127.0.0.1:2?settles=90s": 90 * time.Second,
	} {
		r, err := checkpoint.OpenRedis(t.Context(), checkpoint.RedisOptions{URL: url, Lazy: true})
		require.NoError(t, err, url)
		require.Equal(t, want, r.LossWindow(), url)
		require.NoError(t, r.Close())
	}
	for _, window := range []string{"", "5", "-1s"} {
		_, err := checkpoint.OpenRedis(t.Context(), checkpoint.RedisOptions{URL: "redis://a:b@127.0.0.1:1?settles=" + window, Lazy: true})
		require.ErrorContains(t, err, "settles is for how long")
		require.NotContains(t, err.Error(), "a:b")
	}
}

// A server that does not answer costs the time-outs, and is used again when it answers.
func TestRedisThatIsStopped(t *testing.T) {
	s := redistest.Start(t)
	store, err := checkpoint.OpenRedis(context.Background(), checkpoint.RedisOptions{URL: s.URL()})
	require.NoError(t, err)
	defer store.Close()
	g := checkpoint.Group{Job: "j", Stage: "s"}
	_, err = store.Begin(context.Background(), g, 1)
	require.NoError(t, err)
	s.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	w := []checkpoint.Write{{Group: g, Token: 1, To: 9}}
	require.Error(t, store.Write(ctx, w))
	s.Continue()
	// The write may have taken effect when the server resumed: then the position is another one.
	if err := store.Write(context.Background(), w); err != nil {
		require.ErrorIs(t, err, checkpoint.ErrMoved)
	}
	at, err := store.Begin(context.Background(), g, 2)
	require.NoError(t, err)
	require.EqualValues(t, 9, at)
}

// A Redis that starts answers nothing else until it has read its data, and none answers before: each says that it is not available.
func TestRedisUnavailable(t *testing.T) {
	loads, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer loads.Close()
	go func() {
		for {
			c, err := loads.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if line[0] == '*' { // a command
						fmt.Fprint(c, "-LOADING Redis is loading the dataset in memory\r\n")
					}
				}
			}()
		}
	}()
	none, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, none.Close())
	for _, l := range []net.Listener{loads, none} {
		s, err := checkpoint.OpenRedis(t.Context(), checkpoint.RedisOptions{URL: "redis://" + l.Addr().String(), Lazy: true})
		require.NoError(t, err)
		_, err = s.Begin(t.Context(), checkpoint.Group{Job: "j", Stage: "s"}, 1)
		require.ErrorIs(t, err, checkpoint.ErrUnavailable)
		require.NoError(t, s.Close())
	}
}
