package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// Options of Connect.
type Options struct {
	// Sequencers are the addresses of the sequencers. It is enough if one of them is reachable.
	Sequencers []string
	// Dialer opens connections to the cluster. The caller owns it and closes it after the Log.
	Dialer transport.Dialer
	// Name identifies this process in the servers' logs and metrics.
	Name string
	// QueueBytes bounds the bytes in flight: above it Append waits. Default 32 MiB.
	QueueBytes int64
	// Silence is how long a replica may send nothing before its cursors move to another. Default 50
	// ms.
	Silence time.Duration
	// NoAppends says that the caller only reads and trims: Open then does not wait for an open
	// shard, which does not exist while a majority of the storage nodes is down. An append waits
	// for one.
	NoAppends bool
	Logger    *slog.Logger
}

// Log implements sharedlog.Log.
type Log struct {
	opt    Options
	dialer transport.Dialer // closed with the Log; nil: it is the caller's
	id     uint64           // random, one for each Log
	ctx    context.Context  // ends when the Log is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup
	shards shards
	// sequencers holds the known addresses of the sequencers.
	sequencers follow.Members

	leaderMu   sync.Mutex
	leaderAddr string

	troubleMu sync.Mutex
	trouble   error // why no sequencer answers

	appending appending
	reading   reading

	groups, records, bytes, tail, queued atomic.Uint64
}

// Connect is Open over connections of the caller's, for the programs of this module, which use them
// for more than the log.
func Connect(ctx context.Context, o Options) (*Log, error) {
	if len(o.Sequencers) == 0 {
		return nil, sharedlog.Errorf(sharedlog.KindInvalid, "the address of a sequencer is needed")
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 32 << 20
	}
	if o.Silence == 0 {
		o.Silence = 50 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	l := &Log{opt: o, id: rand.Uint64() | 1}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.shards.init()
	l.sequencers.Give(o.Sequencers)
	l.appending.init(l)
	l.reading.init(l)
	l.wg.Go(l.follow)
	for {
		open, changed := l.shards.open()
		if len(open) > 0 || o.NoAppends && l.shards.known() {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := l.getTrouble()
			switch {
			case err == nil:
				err = errors.New("no shard is open: too few storage nodes run, or have joined (tailrace status)")
			case errors.Is(err, transport.ErrUnavailable):
				err = fmt.Errorf("%w; do its sequencers run there?", err)
			}
			_ = l.Close()
			return nil, fmt.Errorf("the log at %s is not ready (%w): %w", strings.Join(o.Sequencers, ","), ctx.Err(), err)
		}
	}
}

// setTrouble records an error of a sequencer. An error that a sequencer answered is kept when
// another one is unreachable, because it says more.
func (l *Log) setTrouble(err error) {
	l.troubleMu.Lock()
	defer l.troubleMu.Unlock()
	if errors.Is(err, transport.ErrUnavailable) && l.trouble != nil {
		return
	}
	l.trouble = err
}

func (l *Log) getTrouble() error {
	l.troubleMu.Lock()
	defer l.troubleMu.Unlock()
	return l.trouble
}

func (l *Log) usable() error {
	if l.ctx.Err() != nil {
		return errClosed()
	}
	return nil
}

func errClosed() error { return sharedlog.Errorf(sharedlog.KindClosed, "the log") }

// Close implements sharedlog.Log.
func (l *Log) Close() error {
	l.cancel()
	l.appending.close()
	l.reading.close()
	l.wg.Wait()
	if l.dialer != nil {
		return l.dialer.Close()
	}
	return nil
}

// Stats implements sharedlog.Log. Written, Syncs, Cuts, Disk and Cached belong to the servers and
// are not counted here.
func (l *Log) Stats() sharedlog.Stats {
	return sharedlog.Stats{
		Groups: l.groups.Load(), Records: l.records.Load(), Bytes: l.bytes.Load(),
		Tail: sharedlog.LSN(l.tail.Load()), Durable: sharedlog.LSN(l.tail.Load()), Queued: l.queued.Load(),
	}
}

func (l *Log) sawTail(lsn sharedlog.LSN) {
	for {
		have := l.tail.Load()
		if uint64(lsn) <= have || l.tail.CompareAndSwap(have, uint64(lsn)) {
			return
		}
	}
}

// Last implements sharedlog.Log.
func (l *Log) Last(ctx context.Context, tag sharedlog.Tag, below sharedlog.LSN) (best sharedlog.Entry, ok bool, err error) {
	at, opened, err := l.get(ctx, "")
	if err != nil {
		return best, false, err
	}
	asked := below
	below = min(below, at.Place)
	all, _, changed := l.shards.list()
	for uint64(len(all)) < opened {
		select {
		case <-changed:
		case <-ctx.Done():
			return best, false, ctx.Err()
		case <-l.ctx.Done():
			return best, false, errClosed()
		}
		all, _, changed = l.shards.list()
	}
	var lost error
	var lostTo sharedlog.LSN // the highest seal of a shard whose last record with the tag may be lost
	for _, sh := range slices.Backward(all) {
		if sh == nil || sharedlog.LSN(sh.GetOpened()) >= below || sh.GetSealed() && (sh.GetLength() == 0 || sharedlog.LSN(sh.GetSealedAt()) <= best.LSN) {
			continue
		}
		reply, err := l.lastIn(ctx, sh, &logpb.LastRequest{Shard: sh.GetId(), Tag: string(tag), Below: uint64(below)})
		if sharedlog.KindOf(err) == sharedlog.KindLost { // a newer record in another shard is enough
			if at := sharedlog.LSN(sh.GetSealedAt()); at > lostTo {
				lost, lostTo = err, at
			}
			continue
		}
		if err != nil {
			return sharedlog.Entry{}, false, err
		}
		l.shards.trimmed(tag, sharedlog.LSN(reply.GetTrim()))
		if reply.GetFound() && sharedlog.LSN(reply.GetLsn()) > best.LSN {
			best, ok = lastEntry(reply), true
		}
	}
	if lost != nil && best.LSN < lostTo && l.shards.begins(tag) < lostTo {
		return sharedlog.Entry{}, false, lost
	}
	if trim := l.shards.begins(tag); ok && best.LSN < trim || !ok && min(trim, asked) > sharedlog.First {
		return sharedlog.Entry{}, false, sharedlog.Errorf(sharedlog.KindTrimmed, "tag %q begins at %d; its last record below %d may have been trimmed", tag, trim, asked)
	}
	return best, ok, nil
}

func lastEntry(reply *logpb.LastReply) sharedlog.Entry {
	e := sharedlog.Entry{LSN: sharedlog.LSN(reply.GetLsn()), Record: sharedlog.Record{Data: reply.GetData()}}
	for _, t := range reply.GetTags() {
		e.Tags = append(e.Tags, sharedlog.Tag(t))
	}
	return e
}

// checkLast verifies the checksum of the record in a node's reply, if it has one.
func (l *Log) checkLast(shard uint32, addr string, reply *logpb.LastReply) error {
	if !reply.GetFound() || reply.Checksum == nil {
		return nil
	}
	e := lastEntry(reply)
	if sum, _ := wire.Compute(&e.Record, nil); sum.At(e.LSN) != reply.GetChecksum() {
		return l.damaged(shard, addr, e.LSN)
	}
	return nil
}

// damaged logs that a record from a storage node differs from what was appended, and returns the
// error.
func (l *Log) damaged(shard uint32, addr string, lsn sharedlog.LSN) error {
	l.opt.Logger.Warn("a record from a storage node does not fit its checksum, and is read from another replica; if the node is named again, test the memory of its machine",
		"node", addr, "shard", shard, "lsn", lsn)
	return sharedlog.Errorf(sharedlog.KindCorrupt, "record %d of shard %d, as node %s sends it, does not fit the checksum that it was appended with", lsn, shard, addr)
}

// lastIn asks the replicas of a shard in turn until one answers.
func (l *Log) lastIn(ctx context.Context, sh *logpb.Shard, req *logpb.LastRequest) (*logpb.LastReply, error) {
	damaged, since := map[string]bool{}, time.Time{}
	for i := 0; ; i++ {
		if err := l.usable(); err != nil {
			return nil, err
		}
		newer, forgotten := l.shards.find(sh.GetId())
		if forgotten {
			return new(logpb.LastReply), nil // nothing is left in it
		}
		sh = newer
		if allLost(sh) {
			return nil, sharedlog.Lost(sh.GetId(), sh.GetLost(), sharedlog.LSN(sh.GetOpened()), sharedlog.LSN(sh.GetSealedAt()))
		}
		reply := new(logpb.LastReply)
		c, cancel := context.WithTimeout(ctx, callTimeout/2)
		stop := context.AfterFunc(l.ctx, cancel)
		addr := sh.GetAddrs()[i%len(sh.GetAddrs())]
		err := l.opt.Dialer.Call(c, addr, "storage/last", req, reply)
		stop()
		cancel()
		if err == nil {
			err = l.checkLast(sh.GetId(), addr, reply)
		}
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		again := 5 * time.Millisecond
		switch sharedlog.KindOf(err) {
		case sharedlog.KindTrimmed, sharedlog.KindInvalid, sharedlog.KindLost:
			return nil, err
		case sharedlog.KindCorrupt: // replicas that do not answer may be undamaged
			if len(damaged) == 0 {
				since = time.Now()
			}
			damaged[addr] = true
			away := slices.DeleteFunc(slices.Clone(sh.GetAddrs()), func(addr string) bool { return damaged[addr] })
			if len(away) == 0 || time.Since(since) >= damagedFor {
				return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "node %s, shard %d: %w; no node of the shard that answers shows it undamaged: start those that are away%s", addr, sh.GetId(), err, named(away))
			}
			again = damagedRetry / 5
		}
		sleep(ctx, again)
	}
}
