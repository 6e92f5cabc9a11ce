package checkpoint

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
)

// Open opens the store that a setting names: a Redis or Kvrocks by its URL (RedisOptions), or a
// directory. config is for rediss URLs; nil means the system's certificate authorities.
func Open(ctx context.Context, where string, config *tls.Config, logger *slog.Logger) (Store, error) {
	switch scheme, _, is := strings.Cut(where, "://"); {
	case !is:
		return OpenPebble(where)
	case scheme == "redis" || scheme == "rediss":
		return OpenRedis(ctx, RedisOptions{URL: where, TLS: config, Logger: logger})
	default:
		return nil, fmt.Errorf("checkpoint store %q: it is a directory, or redis://[user:password@]host:port[/db] (rediss:// for TLS)", hideSecret(where))
	}
}
