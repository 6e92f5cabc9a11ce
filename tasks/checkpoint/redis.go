package checkpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/sharedlog"
)

// Redis is the store of a cluster: a Redis, or a Kvrocks, which holds more than its memory. Keys,
// all of one group in one slot:
//
//	tailrace:{job/stage/group}:m    hash: token, at
//	tailrace:{job/stage/group}:e    hash: entry → value
//	tailrace:{job}                  set of the job's groups, "stage/group"
//
// A batch is one transaction, conditional on the group's token and position (WATCH). Only commands
// that Kvrocks supports are used; Kvrocks should run with write_options.sync.
type Redis struct {
	c          redis.UniversalClient
	name       string // address, without secrets
	lossWindow time.Duration
}

// RedisOptions say how to connect to the server. The URL has the form
//
//	redis://[user:password@]host:port[/db]      rediss:// for TLS
//
// and may give several addresses of a Redis Cluster, separated by commas. `?settles=2s` at its end
// says for how long the server may lose what it has acknowledged (Store.LossWindow; the default is
// redisLossWindow).
type RedisOptions struct {
	URL    string
	TLS    *tls.Config // for rediss; nil: the system's certificate authorities
	Logger *slog.Logger
	// Lazy: the server need not run yet.
	Lazy bool
}

const (
	redisTimeout = 5 * time.Second
	redisRetries = 3
)

// hushed silences, once, the log of the client library: it returns each failure, and the callers
// report it with the store's name.
var hushed sync.Once

type silent struct{}

// Printf implements the library's logger.
func (silent) Printf(context.Context, string, ...any) {}

// OpenRedis connects to the server and checks that what it acknowledges survives a restart.
func OpenRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	url, lossWindow, err := cutLossWindow(o.URL)
	if err != nil {
		return nil, err
	}
	first, more, _ := strings.Cut(url, ",")
	hushed.Do(func() { redis.SetLogger(silent{}) })
	p, err := redis.ParseURL(first)
	if err != nil {
		return nil, fmt.Errorf("checkpoint store %q: %w; it is redis://[user:password@]host:port[/db], or rediss:// for TLS", hideSecret(o.URL), err)
	}
	u := &redis.UniversalOptions{
		Addrs: []string{p.Addr}, DB: p.DB, Username: p.Username, Password: p.Password, TLSConfig: p.TLSConfig,
		DialTimeout: redisTimeout, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout, MaxRetries: redisRetries,
		// For Kvrocks, which uses RESP2 and does not know the commands by which the client
		// identifies itself.
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if more != "" {
		u.Addrs = append(u.Addrs, strings.Split(more, ",")...)
	}
	if u.TLSConfig != nil && o.TLS != nil {
		u.TLSConfig = o.TLS
	}
	r := &Redis{c: redis.NewUniversalClient(u), name: strings.Join(u.Addrs, ","), lossWindow: lossWindow}
	err = r.c.Ping(ctx).Err()
	if err != nil && !o.Lazy {
		_ = r.c.Close() // nothing was written
		return nil, fmt.Errorf("%w; does a Redis or Kvrocks run there?", r.say(err))
	}
	switch {
	case o.Logger == nil:
	case err != nil:
		o.Logger.Warn("the checkpoint store does not answer; the next write tries again", "error", r.say(err))
	default:
		// Kvrocks has no such setting and is durable by itself; without permission to read the
		// setting, it is not checked.
		if v, err := r.c.ConfigGet(ctx, "appendonly").Result(); err == nil && v["appendonly"] == "no" {
			o.Logger.Warn("the checkpoint store loses everything at a restart: enable its append-only file (appendonly yes)", "store", r.name)
		}
	}
	return r, nil
}

// cutLossWindow removes `?settles=DURATION` from the end of a URL and returns its value.
func cutLossWindow(url string) (string, time.Duration, error) {
	rest, text, given := strings.Cut(url, "?settles=")
	if !given {
		return url, redisLossWindow, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return "", 0, fmt.Errorf("checkpoint store %q: settles is for how long the server may lose what it has acknowledged, 5s or 0s, say", hideSecret(url))
	}
	return rest, d, nil
}

func hideSecret(url string) string {
	if i, j := strings.Index(url, "://"), strings.LastIndex(url, "@"); i >= 0 && j > i {
		return url[:i+3] + "…" + url[j:]
	}
	return url
}

func (r *Redis) say(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("checkpoint store at %s: %w", r.name, err)
	if away(err) {
		err = unavailable{err}
	}
	return err
}

// away reports whether an error is of a server that cannot be reached, or that starts: asked later, it may answer.
func away(err error) bool {
	var link net.Error
	return errors.As(err, &link) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout) ||
		redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err)
}

// unavailable is an error that is ErrUnavailable.
type unavailable struct{ error }

func (u unavailable) Unwrap() error        { return u.error }
func (u unavailable) Is(target error) bool { return target == ErrUnavailable }

func (g Group) key(kind string) string { return "tailrace:{" + g.String() + "}:" + kind }

func (g Group) set() string { return "tailrace:{" + g.Job + "}" }

// meta reads a group's token and position.
func (r *Redis) meta(ctx context.Context, c redis.Cmdable, g Group) (token, at sharedlog.LSN, err error) {
	v, err := c.HMGet(ctx, g.key("m"), "token", "at").Result()
	if err != nil {
		return 0, 0, err
	}
	number := func(v any) sharedlog.LSN {
		s, ok := v.(string)
		if !ok {
			return 0
		}
		n, e := strconv.ParseUint(s, 10, 64)
		if e != nil {
			err = fmt.Errorf("key %q holds %q, not a position", g.key("m"), s)
		}
		return sharedlog.LSN(n)
	}
	token, at = number(v[0]), number(v[1])
	return token, at, err
}

// change makes one transaction on a group, if check accepts its token and position.
func (r *Redis) change(ctx context.Context, g Group, check func(token, at sharedlog.LSN) error, f func(p redis.Pipeliner)) error {
	for {
		err := r.c.Watch(ctx, func(tx *redis.Tx) error {
			token, at, err := r.meta(ctx, tx, g)
			if err != nil {
				return err
			}
			if err := check(token, at); err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				f(p)
				return nil
			})
			return err
		}, g.key("m"))
		if !errors.Is(err, redis.TxFailedErr) {
			return r.say(err)
		}
		if ctx.Err() != nil {
			return r.say(ctx.Err())
		}
	}
}

// Begin implements Store.
func (r *Redis) Begin(ctx context.Context, g Group, token sharedlog.LSN) (at sharedlog.LSN, err error) {
	err = r.begin(ctx, g, token, &at, func(redis.Pipeliner) {})
	return at, err
}

// Clear implements Store.
func (r *Redis) Clear(ctx context.Context, g Group, token sharedlog.LSN) error {
	var at sharedlog.LSN
	return r.begin(ctx, g, token, &at, func(p redis.Pipeliner) {
		p.Unlink(ctx, g.key("e"))
		p.HSet(ctx, g.key("m"), "at", 0)
	})
}

// begin makes token the group's writer, and with that what f does; at is the position before.
func (r *Redis) begin(ctx context.Context, g Group, token sharedlog.LSN, at *sharedlog.LSN, f func(p redis.Pipeliner)) error {
	if err := r.c.SAdd(ctx, g.set(), fmt.Sprintf("%s/%d", g.Stage, g.Group)).Err(); err != nil {
		return r.say(err)
	}
	return r.change(ctx, g, func(have, where sharedlog.LSN) error {
		*at = where
		w := Write{Group: g, Token: token, From: where}
		return w.check(have, where)
	}, func(p redis.Pipeliner) {
		p.HSet(ctx, g.key("m"), "token", uint64(token))
		f(p)
	})
}

// Write implements Store.
func (r *Redis) Write(ctx context.Context, ws []Write) error {
	for i := range ws {
		w := &ws[i]
		err := w.batches(func(es []Entry, last bool) error {
			return r.change(ctx, w.Group, w.check, func(p redis.Pipeliner) {
				put, gone := r.split(es)
				if len(put) > 0 {
					p.HSet(ctx, w.Group.key("e"), put...)
				}
				if len(gone) > 0 {
					p.HDel(ctx, w.Group.key("e"), gone...)
				}
				// Even a batch that moves nothing writes the key that is watched, so that a
				// concurrent writer must start over.
				p.HSet(ctx, w.Group.key("m"), "token", uint64(w.Token))
				if last {
					p.HSet(ctx, w.Group.key("m"), "at", uint64(w.To))
				}
			})
		})
		if err != nil {
			return err
		}
		crash.Here(crash.SnapshotGroup)
	}
	crash.Here(crash.SnapshotUnsaved)
	return nil
}

func (r *Redis) split(es []Entry) (put []any, gone []string) {
	for _, e := range es {
		if e.Value == nil {
			gone = append(gone, string(e.Key))
		} else {
			put = append(put, e.Key, e.Value)
		}
	}
	return put, gone
}

// Load implements Store.
func (r *Redis) Load(ctx context.Context, g Group, f func([]Entry) error) (sharedlog.LSN, error) {
	_, at, err := r.meta(ctx, r.c, g)
	if err != nil {
		return 0, r.say(err)
	}
	l := loader{f: f}
	for cursor := uint64(0); ; {
		kv, next, err := r.c.HScan(ctx, g.key("e"), cursor, "", batchEntries).Result()
		if err != nil {
			return 0, r.say(err)
		}
		for i := 0; i+1 < len(kv); i += 2 {
			if err := l.add([]byte(kv[i]), []byte(kv[i+1])); err != nil {
				return 0, err
			}
		}
		if err := l.hand(); err != nil {
			return 0, err
		}
		if cursor = next; cursor == 0 {
			return at, nil
		}
	}
}

// redisLossWindow is for how long a server may lose what it has acknowledged: appendfsync everysec is
// a second, or two when its disk is slow, and a replica that takes over has most of its master's
// writes up to that time.
const redisLossWindow = 5 * time.Second

// LossWindow implements Store.
func (r *Redis) LossWindow() time.Duration { return r.lossWindow }

// Drop implements Store.
func (r *Redis) Drop(ctx context.Context, job string) error {
	all, err := r.c.SMembers(ctx, Group{Job: job}.set()).Result()
	if err != nil {
		return r.say(err)
	}
	for _, m := range all {
		key := "tailrace:{" + job + "/" + m + "}:"
		if err := r.c.Unlink(ctx, key+"m", key+"e").Err(); err != nil {
			return r.say(err)
		}
	}
	return r.say(r.c.Unlink(ctx, Group{Job: job}.set()).Err())
}

// Close implements Store.
func (r *Redis) Close() error { return r.c.Close() }
