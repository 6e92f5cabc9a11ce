package checkpoint_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/redistest"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// directory is where a Pebble is. Two of one directory are one: a process has one.
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

// Crash does nothing: what a Pebble has not flushed by the end of a Write is gone when
// it is closed, because there is no log to write it to.
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

func TestRedis(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Home { return server{redistest.Start(t)} })
}

type memory struct{ m *storetest.Mem }

func (m memory) Open(*testing.T) checkpoint.Store { return m.m }
func (m memory) Crash(*testing.T)                 {}

// The twin keeps its own rules.
func TestMem(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Home { return memory{storetest.NewMem()} })
}
