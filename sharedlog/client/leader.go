package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// callTimeout bounds one request to one sequencer.
const callTimeout = 2 * time.Second

// ask calls the sequencers' leader until it answers. call sends the request to one sequencer and
// returns the leader if that sequencer is not it (nil if it is).
func (l *Log) ask(ctx context.Context, call func(ctx context.Context, addr string) (*logpb.Leader, error)) error {
	for i := 0; ; i++ {
		if err := l.usable(); err != nil {
			return err
		}
		l.leaderMu.Lock()
		addr := l.leaderAddr
		l.leaderMu.Unlock()
		if addr == "" {
			addrs := l.sequencers.Addresses()
			addr = addrs[i%len(addrs)]
		}
		c, cancel := context.WithTimeout(ctx, callTimeout)
		stop := context.AfterFunc(l.ctx, cancel)
		leader, err := call(c, addr)
		stop()
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && leader == nil {
			l.lead(addr)
			return nil
		}
		if kind := sharedlog.KindOf(err); err != nil && kind != sharedlog.KindOther {
			return err
		}
		next := leader.GetAddr()
		l.lead(next)
		if next == "" || next == addr || err != nil {
			sleep(ctx, 10*time.Millisecond)
		}
	}
}

func (l *Log) lead(addr string) {
	l.leaderMu.Lock()
	l.leaderAddr = addr
	l.leaderMu.Unlock()
}

// Tail implements sharedlog.Log.
func (l *Log) Tail(ctx context.Context) (sharedlog.LSN, error) {
	c, _, err := l.get(ctx, "")
	return c.Place, err
}

// Get implements sharedlog.Log.
func (l *Log) Get(ctx context.Context, key string) (sharedlog.Change, error) {
	if err := checkKey(key); err != nil {
		return sharedlog.Change{}, err
	}
	c, _, err := l.get(ctx, key)
	return c, err
}

// get reads the tail and, if key is not empty, a key. At most opened shards were opened below the
// tail.
func (l *Log) get(ctx context.Context, key string) (c sharedlog.Change, opened uint64, err error) {
	err = l.ask(ctx, func(ctx context.Context, addr string) (*logpb.Leader, error) {
		reply := new(logpb.GetReply)
		if err := l.opt.Dialer.Call(ctx, addr, "sequencer/get", &logpb.GetRequest{Key: key}, reply); err != nil {
			return nil, err
		}
		c = sharedlog.Change{Place: sharedlog.LSN(reply.GetPlace()), Value: reply.GetValue()}
		if len(c.Value) == 0 {
			c.Value = nil
		}
		opened = reply.GetOpened()
		return reply.GetLeader(), nil
	})
	// Stats of a client that neither appends nor reads would not move.
	l.sawTail(c.Place)
	return c, opened, err
}

func checkKey(key string) error {
	if key == "" || len(key) > sharedlog.MaxNameBytes {
		return sharedlog.Errorf(sharedlog.KindInvalid, "metadata key has %d bytes, 1 to %d are allowed", len(key), sharedlog.MaxNameBytes)
	}
	return nil
}

// CompareAndSet implements sharedlog.Log. If a reply is lost, it sends the change again. If the key
// then holds the new value, the first attempt was successful, because a value, once replaced, never
// returns.
func (l *Log) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	if err := checkKey(key); err != nil {
		return sharedlog.Change{}, err
	}
	if len(new) > sharedlog.MaxValueBytes || len(old) > sharedlog.MaxValueBytes {
		return sharedlog.Change{}, sharedlog.Errorf(sharedlog.KindInvalid, "value of metadata key %q is longer than %d bytes", key, sharedlog.MaxValueBytes)
	}
	reply, unknown, err := l.propose(ctx, &logpb.ProposeRequest{What: &logpb.ProposeRequest_Change{
		Change: &logpb.CompareAndSet{Key: key, Old: old, New: new},
	}})
	if err != nil {
		return sharedlog.Change{}, err
	}
	c := sharedlog.Change{Place: sharedlog.LSN(reply.GetPlace()), Value: reply.GetValue()}
	if len(c.Value) == 0 {
		c.Value = nil
	}
	if reply.GetOk() || unknown && bytes.Equal(c.Value, new) && !bytes.Equal(old, new) {
		return c, nil
	}
	if unknown {
		// The change whose answer was lost may have been made and replaced since.
		return c, sharedlog.Errorf(sharedlog.KindUnknown, "metadata key %q holds another value at %d; the answer to this change was lost, and it may have been made before", key, c.Place)
	}
	return c, sharedlog.Errorf(sharedlog.KindConflict, "metadata key %q holds another value at %d", key, c.Place)
}

// Trim implements sharedlog.Log.
func (l *Log) Trim(ctx context.Context, tag sharedlog.Tag, before sharedlog.LSN) error {
	if tag == "" || len(tag) > sharedlog.MaxTagBytes {
		return sharedlog.Errorf(sharedlog.KindInvalid, "tag of %d bytes", len(tag))
	}
	reply, _, err := l.propose(ctx, &logpb.ProposeRequest{What: &logpb.ProposeRequest_Trim{
		Trim: &logpb.TrimPoint{Tag: string(tag), Before: uint64(before)},
	}})
	if err != nil {
		return err
	}
	if !reply.GetOk() {
		return sharedlog.Errorf(sharedlog.KindInvalid, "trim of %q to %d: the log ends at %d", tag, before, reply.GetPlace())
	}
	l.shards.trimmed(tag, before) // the nodes may learn of it later
	return nil
}

var errLost = errors.New("the sequencer lost the leadership before the outcome was known")

// propose sends a proposal until it is answered. unknown means that an earlier attempt may have
// taken effect, too.
func (l *Log) propose(ctx context.Context, req *logpb.ProposeRequest) (reply *logpb.ProposeReply, unknown bool, err error) {
	err = l.ask(ctx, func(ctx context.Context, addr string) (*logpb.Leader, error) {
		reply = new(logpb.ProposeReply)
		if err := l.opt.Dialer.Call(ctx, addr, "sequencer/propose", req, reply); err != nil {
			unknown = true
			return nil, err
		}
		if reply.GetUnknown() {
			unknown = true
			return nil, fmt.Errorf("%s: %w", addr, errLost)
		}
		return reply.GetLeader(), nil
	})
	return reply, unknown, err
}
