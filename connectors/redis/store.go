package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"tailrace.dev/tailrace/operators"
)

// Table is where a GlobalStore keeps what.
type Table[K, A any] struct {
	// Client is the connection, which the caller closes when the job has ended.
	Client redis.UniversalClient
	// Name is the first part of all keys; one job has a name.
	Name string
	// Key appends the last part of a key's name, Value what a reader gets: text, or any bytes.
	Key   func(dst []byte, k *K) []byte
	Value func(dst []byte, a *A) []byte
	// Patience is for how long a store that does not answer is tried again, 0: 30 s.
	Patience time.Duration
}

// ErrLost is in the error of a sink whose store has less than is committed.
var ErrLost = errors.New("redis has lost rows that it had acknowledged")

// GlobalStore returns a sink of what key groups have of keys (operators.GlobalParts).
func GlobalStore[K, A any](t Table[K, A]) operators.Sink[operators.KV[K, operators.Part[A]]] {
	if t.Patience == 0 {
		t.Patience = 30 * time.Second
	}
	return &store[K, A]{t}
}

type store[K, A any] struct{ Table[K, A] }

// Keeps implements operators.Keeper: rows are encoded in Write.
func (s *store[K, A]) Keeps() bool { return false }

// Open implements operators.Sink.
func (s *store[K, A]) Open(task, _ int) (operators.SinkWriter[operators.KV[K, operators.Part[A]]], error) {
	if s.Name == "" || s.Client == nil || s.Key == nil || s.Value == nil {
		return nil, errors.New("redis: a table needs a client, a name, and what keys and values are")
	}
	return &writer[K, A]{s: s, task: strconv.Itoa(task), ordinals: "{" + s.Name + "}"}, nil
}

// writer is what one task of the sink writes with.
type writer[K, A any] struct {
	s        *store[K, A]
	task     string
	ordinals string   // the key of the hash of ordinals
	next     uint64   // ordinal of the next row, less 1: so many rows are before it
	keys     []string // of the rows that are not sent
	args     []any    // their fields and values
	buf      []byte
}

// batch is how many rows are sent at once at most.
const batch = 2048

// Write implements operators.SinkWriter.
func (w *writer[K, A]) Write(b *operators.Batch[operators.KV[K, operators.Part[A]]]) error {
	for i := range b.Items {
		row := &b.Items[i]
		w.buf = w.s.Key(append(append(w.buf[:0], w.ordinals...), ':'), &row.Key)
		w.keys = append(w.keys, string(w.buf))
		w.args = append(w.args, row.Value.From, string(w.s.Value(w.buf[:0], &row.Value.Acc)))
		if w.next++; len(w.keys) == batch {
			if err := w.send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Position implements operators.SinkWriter.
func (w *writer[K, A]) Position(dst []byte) ([]byte, error) {
	if err := w.send(); err != nil {
		return nil, err
	}
	return binary.AppendUvarint(dst, w.next), nil
}

// Restore implements operators.SinkWriter.
func (w *writer[K, A]) Restore(position []byte) error {
	n, size := binary.Uvarint(position)
	if size != len(position) {
		return fmt.Errorf("redis: %d bytes are no position", len(position))
	}
	w.next = n
	return nil
}

// Close implements operators.SinkWriter.
func (w *writer[K, A]) Close() error { return nil }

// apply applies rows. KEYS: the ordinals' hash, the rows' keys. ARGV: task, ordinal of the first row, then
// field and value of each. It returns the ordinal that the store had, below the first row's - 1 if rows are
// missing; then it does nothing.
var apply = redis.NewScript(`
local have = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local first, n = tonumber(ARGV[2]), #KEYS - 1
if have < first - 1 then return have end
for i = math.max(1, have - first + 2), n do
  redis.call('HSET', KEYS[i + 1], ARGV[2 * i + 1], ARGV[2 * i + 2])
end
if first + n - 1 > have then redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', first + n - 1)) end
return have`)

// send sends the rows that are pending.
func (w *writer[K, A]) send() error {
	n := uint64(len(w.keys))
	if n == 0 {
		return nil
	}
	first := w.next - n + 1
	have, err := w.run(apply, append([]string{w.ordinals}, w.keys...), append([]any{w.task, first}, w.args...)...)
	if err != nil {
		return err
	}
	if have < first-1 {
		return w.lost(have, first-1)
	}
	clear(w.args)
	w.keys, w.args = w.keys[:0], w.args[:0]
	return nil
}

func (w *writer[K, A]) lost(have, want uint64) error {
	return fmt.Errorf("table %q, task %s: the store has %d rows, and %d are committed: %w; restore it from its append-only file, or start the job anew under another name", w.s.Name, w.task, have, want, ErrLost)
}

// reset sets the ordinal back. KEYS: the ordinals' hash. ARGV: task, token, ordinal. It returns the ordinal that
// the store had, -1 if the token is not the newest.
var reset = redis.NewScript(`
if redis.call('HGET', KEYS[1], ARGV[1] .. ' token') ~= ARGV[2] then return -1 end
local have = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if have > tonumber(ARGV[3]) then redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return have`)

// Fence implements operators.Fenced. Without a log that could be asked, nothing is set back.
func (w *writer[K, A]) Fence(f operators.Fence) error {
	if f.Check == nil {
		return nil
	}
	for n := 0; ; n++ {
		var token int64
		if err := w.patiently(func(ctx context.Context) (err error) {
			token, err = w.s.Client.HIncrBy(ctx, w.ordinals, w.task+" token", 1).Result()
			return err
		}); err != nil {
			return err
		}
		alone, err := f.Check()
		if err != nil {
			return err
		}
		if alone {
			var have int64
			if err := w.patiently(func(ctx context.Context) (err error) {
				have, err = reset.Run(ctx, w.s.Client, []string{w.ordinals}, w.task, token, w.next).Int64()
				return err
			}); err != nil {
				return err
			}
			if have >= 0 && uint64(have) < w.next {
				return w.lost(uint64(have), w.next)
			}
			if have >= 0 {
				return nil
			}
		}
		if err := f.Pause(n); err != nil {
			return err
		}
	}
}

// run runs a script that may be repeated, and returns its result.
func (w *writer[K, A]) run(script *redis.Script, keys []string, args ...any) (have uint64, err error) {
	err = w.patiently(func(ctx context.Context) error {
		have, err = script.Run(ctx, w.s.Client, keys, args...).Uint64()
		return err
	})
	return have, err
}

// patiently repeats what may be repeated until the store answers.
func (w *writer[K, A]) patiently(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.s.Patience)
	defer cancel()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		var refused redis.Error
		if errors.As(err, &refused) && !redis.HasErrorPrefix(err, "LOADING") && !redis.HasErrorPrefix(err, "TRYAGAIN") {
			return fmt.Errorf("table %q: %w", w.s.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("table %q: redis has not answered for %v: %w", w.s.Name, w.s.Patience, err)
		case <-time.After(wait):
		}
	}
}
