package replicate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/sublog"
)

// Sender sends the groups of a shard to one backup.
type Sender struct {
	Addr    string // of the backup
	Dialer  transport.Dialer
	Logger  *slog.Logger
	Log     *sublog.Sublog
	Backlog *Backlog
	// Incarnation returns the incarnation of the process that opened the shard.
	Incarnation func() uint64
	// Length returns the length of the primary on disk.
	Length func() uint64
	// Acked receives the length that the backup holds. Streams are numbered, because an older one
	// may have reported data that is lost by now.
	Acked func(stream, length uint64)

	streams uint64 // number of streams so far; only Run uses it
}

var errLeft = errors.New("the shard is not open any more")

// Run keeps a stream to the backup open until the shard is sealed or ctx ends.
func (b *Sender) Run(ctx context.Context) {
	for {
		err := b.stream(ctx)
		if errors.Is(err, errLeft) {
			return
		}
		b.Logger.Debug("replication stream ended", "shard", b.Log.Shard, "backup", b.Addr, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(again(err)):
		}
	}
}

// again returns the delay after a stream ended with an error: it is longer if the backup's disk is
// full.
func again(err error) time.Duration {
	if sharedlog.KindOf(err) == sharedlog.KindFull {
		return 10 * 30 * time.Millisecond
	}
	return 30 * time.Millisecond
}

func (b *Sender) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := b.Dialer.Open(ctx, b.Addr, "storage/replicate")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.ReplicateHello{Shard: b.Log.Shard, Incarnation: b.Incarnation()}); err != nil {
		return err
	}
	b.streams++
	number := b.streams
	at, err := b.receive(st, number)
	if err != nil {
		return err
	}
	go func() {
		defer cancel()
		for {
			if _, err := b.receive(st, number); err != nil {
				return
			}
		}
	}()
	var groups []wire.Placed
	for {
		var more <-chan struct{}
		var ok, closed bool
		groups, more, ok, closed = b.Backlog.from(at, groups[:0])
		switch {
		case closed:
			return errLeft
		case !ok || len(groups) == 0 && at < b.Length():
			if at, err = b.catchUp(st, at); err != nil {
				return err
			}
			continue
		case len(groups) == 0:
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if at, err = send(st, groups); err != nil {
			return err
		}
		clear(groups)
	}
}

// receive receives the length that the backup holds, on the stream with the given number.
func (b *Sender) receive(st transport.Stream, stream uint64) (uint64, error) {
	var m transport.Raw
	if err := st.Recv(&m); err != nil {
		return 0, err
	}
	held, err := wire.DecodeLength(m.Bytes)
	if err != nil {
		return 0, err
	}
	b.Acked(stream, held)
	return held, nil
}

// send sends groups in one message and returns the position after them.
func send(st transport.Stream, groups []wire.Placed) (uint64, error) {
	last := &groups[len(groups)-1]
	return last.Position + uint64(last.Body.Records), st.Send(&transport.Raw{Parts: wire.ReplicateParts(groups)})
}

// catchUp sends the groups that are on disk from a position on, and returns the position after
// them.
func (b *Sender) catchUp(st transport.Stream, at uint64) (uint64, error) {
	var groups []wire.Placed
	bytes := 0
	flush := func() (err error) {
		if len(groups) > 0 {
			at, err = send(st, groups)
			groups, bytes = groups[:0], 0
		}
		return err
	}
	end := b.Length()
	err := b.Log.Scan(at, end, func(position uint64, d *segment.Decoded) error {
		if position != at && len(groups) == 0 || len(groups) > 0 && position != groups[len(groups)-1].Position+uint64(groups[len(groups)-1].Body.Records) {
			return sharedlog.Errorf(sharedlog.KindTrimmed, "shard %d, position %d", b.Log.Shard, at)
		}
		w := d.Body()
		w.Bytes = slices.Clone(w.Bytes) // the scan reuses the buffer
		groups = append(groups, wire.Placed{Position: position, Body: w})
		if bytes += len(w.Bytes); bytes >= wire.MessageBytes {
			return flush()
		}
		return nil
	})
	if err != nil {
		return at, err
	}
	before := at
	if err := flush(); err != nil {
		return at, err
	}
	if at == before {
		return at, sharedlog.Errorf(sharedlog.KindTrimmed, "shard %d, position %d", b.Log.Shard, at)
	}
	return at, nil
}
