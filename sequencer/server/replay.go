package server

import (
	"errors"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// chunk is a part of the metalog that was read from disk.
type chunk struct {
	events []*logpb.Event
	index  uint64 // of the last entry
}

// errEnough ends a read whose follower has gone.
var errEnough = errors.New("the follower has gone")

// replay sends a follower, from disk, the events after an index that are no longer in memory. It
// returns the index that it has reached, and replica.ErrGone if the disk does not have the events.
// It calls check with the first event. It sends heartbeats all the time, since it may take a while
// to find the place and to recompute the effects.
func (s *Server) replay(st transport.Stream, f *follower, after uint64, check func(*logpb.Event) error) (at uint64, err error) {
	var v replica.View
	if err := s.ask(func() { v = s.replica.View() }); err != nil {
		return after, err
	}
	chunks := make(chan chunk)
	read := make(chan error, 1)
	gone := make(chan struct{})
	defer close(gone)
	go func() { read <- s.read(v, after, chunks, gone) }()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for at, first := after, true; ; {
		select {
		case c := <-chunks:
			if first && len(c.events) > 0 {
				if err := check(c.events[0]); err != nil {
					return at, err
				}
				first = false
			}
			reply := &logpb.FollowReply{Index: c.index}
			for _, e := range c.events {
				if e = f.slice(e); e != nil {
					reply.Events = append(reply.Events, e)
				}
			}
			if err := st.Send(reply); err != nil {
				return at, err
			}
			at = c.index
		case <-beat.C:
			if err := st.Send(&logpb.FollowReply{Index: at}); err != nil {
				return at, err
			}
		case err := <-read:
			return at, err
		case <-st.Context().Done():
			return at, st.Context().Err()
		case <-s.quit:
			return at, errEnded
		}
	}
}

// read reads a view in chunks.
func (s *Server) read(v replica.View, after uint64, chunks chan<- chunk, gone <-chan struct{}) error {
	var c chunk
	size := 0
	flush := func() error {
		select {
		case chunks <- c:
			c, size = chunk{}, 0
			return nil
		case <-gone:
			return errEnough
		}
	}
	err := v.Read(after, func(ef sequencer.Effect) error {
		c.index = ef.Index
		if e := event(&ef); e != nil {
			e.Place = uint64(ef.Place)
			c.events = append(c.events, e)
			size += int(sizeOf(&ef))
		}
		if size < batchBytes && len(c.events) < s.opt.FollowEvents {
			return nil
		}
		return flush()
	})
	if err == nil && c.index > 0 {
		err = flush()
	}
	if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
		s.opt.Logger.Warn("the history of the metalog is damaged; followers that need it must use another sequencer", "sequencer", s.opt.ID, "error", err)
		err = replica.ErrGone
	}
	return err
}
