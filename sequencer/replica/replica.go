package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// Errors of proposals and reads.
var (
	// ErrNotLeader: nothing was done here; the leader may be asked.
	ErrNotLeader = errors.New("this sequencer does not lead")
	// ErrUnknown: the leadership was lost when the proposal was on its way; it
	// may be in the metalog, now or later, or not.
	ErrUnknown = errors.New("the leadership was lost before the outcome was known")
	// ErrLost: the disk has lost what this replica had acknowledged. It must not take
	// part any more, under no circumstances: it may have lost a vote, too.
	ErrLost = errors.New("this sequencer has lost entries that it had acknowledged")
)

// Options of a replica.
type Options struct {
	// ID is this replica's and never changes.
	ID uint64
	// What the metalog begins with if the directory is empty; all who begin it begin
	// with the same. Voters are the IDs of all, this one included; none: the replica
	// begins with nothing, and waits for a leader to send it a snapshot. Members are
	// what is known of them from the start; Level is the feature level (default
	// sequencer.Level). What the directory holds counts more.
	Voters  []uint64
	Members []sequencer.Sequencer
	Level   uint32
	// FS and Dir are where it keeps its log.
	FS  vfs.FS
	Dir string
	// ElectionTicks without a word from the leader begin an election (default
	// 10); the leader speaks every HeartbeatTicks (default 1).
	ElectionTicks, HeartbeatTicks int
	// SnapshotBytes is how much is written before a new file begins, with a snapshot
	// (default 16 MiB, and at least four times the snapshot's size). The entries behind
	// the snapshot before that stay in memory, for others that are behind.
	SnapshotBytes int64
	// HistoryBytes is how much of the files before the one in use stays on disk, for
	// View; 0: nothing.
	HistoryBytes int64
	// AheadBytes is how many zeros the disk's file is extended by at a time (default
	// 1 MiB; negative: it grows with what is written).
	AheadBytes int64
	// Lazy: an entry counts as durable when it is with the operating system; Sync
	// makes it so on disk. Votes and terms are synced at once all the same.
	Lazy bool
	// Async: Process does not wait for the disk; Output.Jobs is what there is to do, and
	// what depends on it comes out of a Process behind its Done. Else Process does the
	// jobs itself.
	Async bool
	// Passive: no election begins by itself, only by Campaign, and a leader does not
	// step down by itself. raft's timeouts are drawn from a source that has no seed;
	// without them a replica's life is a function of what it is given.
	Passive bool
	// Logger hears of elections (default slog.Default).
	Logger *slog.Logger
}

// Output is what came of one Process.
type Output struct {
	// Messages are to be sent, in this order for each receiver; any may be lost. What
	// they promise is durable.
	Messages []*raftpb.Message
	// Snapshot, if not nil, is the state that took the place of all effects up
	// to it (it was received from the leader); it comes before Effects. It is
	// sequencer.State's encoding.
	Snapshot []byte
	// Effects are those of the entries that became durable, in order. They
	// are the caller's.
	Effects []sequencer.Effect
	// Jobs are to be done now, beside each other, without waiting for them in the turn
	// (Options.Async).
	Jobs []*Job
}

// Replica is one sequencer. Not safe for concurrent use.
type Replica struct {
	opt   Options
	raft  *raft.RawNode
	store *logStore
	wal   *wal
	state *sequencer.State
	conf  *raftpb.ConfState

	applied  uint64           // raft's index
	marked   *raftpb.Snapshot // what the file in use begins with
	markedAt int64            // how long that is
	term     uint64
	lead     uint64
	leading  bool
	leadTerm uint64
	core     *sequencer.Core
	coreFrom uint64 // raft's index at whose application a leader makes its Core
	inflight int    // batches of the Core that raft has and that are not applied
	changing bool   // one of them, or what the Core has, changes the members
	confirm  *confirm

	kept      []kept // what waits for the disk, in order
	written   uint64 // number of the newest write
	durable   uint64 // number of the newest that is surely on disk
	wantSync  bool
	syncing   *Job              // on its way; nil: none
	beginning *Job              // on its way: a new file; nil: none
	began     *Job              // not handed out yet
	outbox    []*raftpb.Message // may leave
	lost      error             // its disk has lost what it had acknowledged

	waiting map[uint64]func(sequencer.Effect, error) // by metalog index
	reads   map[uint64]func(sharedlog.LSN, error)    // by their number
	ready   []confirmed                              // reads that wait to be applied
	read    uint64                                   // number of the last one
	out     Output
}

type confirmed struct {
	index  uint64
	number uint64
}

// Open reads the replica's disk and returns it as a follower.
func Open(o Options) (*Replica, error) {
	if o.ElectionTicks == 0 {
		o.ElectionTicks = 10
	}
	if o.HeartbeatTicks == 0 {
		o.HeartbeatTicks = 1
	}
	if o.SnapshotBytes == 0 {
		o.SnapshotBytes = 16 << 20
	}
	if o.AheadBytes == 0 {
		o.AheadBytes = 1 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.HistoryBytes > 0 {
		bare := o.FS
		o.FS = vfs.GiveWay(bare, func() bool { return dropOldest(bare, o.Dir) })
	}
	r := &Replica{
		opt: o, conf: &raftpb.ConfState{Voters: slices.Sorted(slices.Values(o.Voters))},
		waiting: map[uint64]func(sequencer.Effect, error){}, reads: map[uint64]func(sharedlog.LSN, error){},
	}
	r.store = &logStore{raft.NewMemoryStorage(), r}
	// All begin with the same snapshot, of an empty metalog under these voters:
	// so nobody needs to be told who the others are.
	empty, err := begin(o.Level, o.Members)
	if err != nil {
		return nil, err
	}
	index := uint64(1)
	if len(o.Voters) == 0 {
		index = 0
	}
	first := snapshot(index, index, r.conf, empty.AppendSnapshot(nil))
	w, kept, err := openWAL(o.FS, o.Dir, o.AheadBytes, o.HistoryBytes, first)
	if err != nil {
		return nil, fmt.Errorf("sequencer %d: %w", o.ID, err)
	}
	r.wal = w
	if err := r.load(kept); err != nil {
		return nil, errors.Join(fmt.Errorf("sequencer %d: %w", o.ID, err), w.close())
	}
	return r, nil
}

func snapshot(index, term uint64, conf *raftpb.ConfState, data []byte) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{ConfState: conf, Index: &index, Term: &term}}
}

func (r *Replica) load(s *saved) error {
	if err := r.restore(s.snapshot); err != nil {
		return err
	}
	if r.applied > 0 {
		if err := r.store.ApplySnapshot(s.snapshot); err != nil {
			return err
		}
	}
	if s.state != nil {
		if err := r.store.SetHardState(s.state); err != nil {
			return err
		}
	}
	if err := r.store.Append(s.entries); err != nil {
		return err
	}
	var err error
	r.raft, err = raft.NewRawNode(&raft.Config{
		ID: r.opt.ID, ElectionTick: r.opt.ElectionTicks, HeartbeatTick: r.opt.HeartbeatTicks,
		Storage: r.store, Applied: r.applied, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
		CheckQuorum: !r.opt.Passive, PreVote: !r.opt.Passive, DisableProposalForwarding: true,
		AsyncStorageWrites: true, StepDownOnRemoval: true,
		Logger: raftLogger{r.opt.Logger.With("sequencer", r.opt.ID)},
	})
	return err
}

func (r *Replica) restore(s *raftpb.Snapshot) error {
	state, err := sequencer.RestoreState(s.GetData())
	if err != nil {
		return fmt.Errorf("snapshot at %d: %w", s.GetMetadata().GetIndex(), err)
	}
	r.state, r.applied, r.conf = state, s.GetMetadata().GetIndex(), s.GetMetadata().GetConfState()
	if r.conf == nil {
		r.conf = new(raftpb.ConfState)
	}
	r.marked, r.markedAt = s, 0
	return nil
}

// Close waits for the jobs that are on their way and closes the files. Waiting
// proposals and reads are told ErrUnknown and ErrNotLeader.
func (r *Replica) Close() error {
	r.stepDown()
	return errors.Join(r.drain(), r.wal.close())
}

// State is what has been applied; read only, valid until the next Process.
func (r *Replica) State() *sequencer.State { return r.state }

// Leader returns who leads as far as this replica knows, 0 if it does not.
func (r *Replica) Leader() uint64 { return r.lead }

// Leading reports whether this replica takes reports and proposals.
func (r *Replica) Leading() bool { return r.core != nil }

// Term returns raft's term.
func (r *Replica) Term() uint64 { return r.term }

// Tick moves raft's clock.
func (r *Replica) Tick() {
	if r.opt.Passive && !r.leading {
		return
	}
	r.raft.Tick()
	// A leader whose proposals raft drops for a while (it was asked to hand over) has no
	// Core, and may have nothing left to apply that would give it one.
	r.takeUp()
}

// Campaign begins an election.
func (r *Replica) Campaign() error { return r.raft.Campaign() }

// Step takes a message of another replica. An error is the message's fault: it is
// to be dropped.
func (r *Replica) Step(m *raftpb.Message) error {
	if err := r.holds(m); err != nil {
		r.lost = err
		return err
	}
	return r.raft.Step(m)
}

// holds checks that the log is as long as the leader knows from this replica's own
// acknowledgements: a heartbeat says no more. One that is shorter has lost what it had
// acknowledged, and its votes may be lost as well.
func (r *Replica) holds(m *raftpb.Message) error {
	if m.GetType() != raftpb.MsgHeartbeat || m.GetTerm() < r.term {
		return nil
	}
	last, err := r.store.LastIndex()
	if err != nil || m.GetCommit() <= last {
		return err
	}
	return fmt.Errorf("%w: the leader, sequencer %d, has its acknowledgement of entry %d, and its log ends with entry %d", ErrLost, m.GetFrom(), m.GetCommit(), last)
}

// Unreachable tells that a message to a peer could not be delivered.
func (r *Replica) Unreachable(peer uint64) { r.raft.ReportUnreachable(peer) }

// SnapshotSent tells whether a message that held a snapshot reached its peer.
func (r *Replica) SnapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	r.raft.ReportSnapshot(peer, status)
}

// Report takes a report, if this replica leads. It is cumulative, so that what is
// dropped here comes again.
func (r *Replica) Report(rep sequencer.Report) error {
	if r.core == nil {
		return ErrNotLeader
	}
	r.core.Report(rep)
	return nil
}

// Propose asks for an entry. done is called once, from a later Process or Close:
// with the effect when it is durable and applied, or with ErrUnknown. An error
// says that nothing was done, and done is not called: ErrNotLeader, or why the members
// may not be changed like that.
func (r *Replica) Propose(e sequencer.Entry, done func(sequencer.Effect, error)) error {
	if r.core == nil {
		return ErrNotLeader
	}
	if c := r.change(&e); c != nil {
		if err := r.mayChange(&e, c); err != nil {
			return err
		}
		r.changing = true
		done = r.confirmed(e, done)
	}
	r.waiting[r.core.Propose(e)] = done
	return nil
}

// Tail asks for the next LSN, linearizably: what was acknowledged before the call,
// by any leader, is below it. done is called once, from a later Process or Close.
func (r *Replica) Tail(done func(sharedlog.LSN, error)) error {
	if !r.leading {
		return ErrNotLeader
	}
	r.read++
	r.reads[r.read] = done
	r.raft.ReadIndex(binary.LittleEndian.AppendUint64(nil, r.read))
	return nil
}

// Process does what the calls since the last have given cause for: it makes
// durable, applies, and says what is to be sent and shown. The Output is valid
// until the next Process. An error is final (invariant 6).
func (r *Replica) Process() (*Output, error) {
	r.out = Output{}
	for {
		if err := r.work(); err != nil {
			return nil, fmt.Errorf("sequencer %d: %w", r.opt.ID, err)
		}
		jobs := r.jobs()
		if r.opt.Async || len(jobs) == 0 {
			r.out.Jobs = jobs
			break
		}
		for _, j := range jobs {
			j.Run()
			if err := r.Done(j); err != nil {
				return nil, fmt.Errorf("sequencer %d: %w", r.opt.ID, err)
			}
		}
	}
	r.out.Messages, r.outbox = r.outbox, nil
	return &r.out, nil
}

// work lets raft work until it has nothing more to do.
func (r *Replica) work() error {
	for {
		if r.lost != nil {
			return r.lost
		}
		if err := r.propose(); err != nil {
			return err
		}
		if !r.raft.HasReady() {
			return nil
		}
		if err := r.handle(r.raft.Ready()); err != nil {
			return err
		}
	}
}

// propose hands to raft what the Core has, one batch at a time: while one is on its
// way reports coalesce into the next.
func (r *Replica) propose() error {
	if r.core == nil || r.inflight > 0 {
		return nil
	}
	if c := r.confirm; c != nil {
		r.confirm = nil
		r.waiting[r.core.Propose(c.entry)] = func(_ sequencer.Effect, err error) {
			r.changing = false
			c.done(c.effect, err)
		}
	}
	entries := r.core.Ready()
	if len(entries) == 0 {
		return nil
	}
	var data, one []byte
	for _, e := range entries {
		one = sequencer.AppendEntry(one[:0], e)
		data = binary.AppendUvarint(data, uint64(len(one)))
		data = append(data, one...)
	}
	err := r.proposeBatch(entries, data)
	if errors.Is(err, raft.ErrProposalDropped) {
		// The leadership is on its way out. Should it stay: a new Core, when all
		// that was proposed is applied (invariant 2).
		last, err := r.store.LastIndex()
		r.coreFrom = last
		r.dropCore()
		return err
	}
	r.inflight = 1
	return err
}

// handle does what raft asks for. raft tells apart what may leave at once (a leader's
// entries promise nothing about its own disk, which works meanwhile: Ongaro's thesis,
// 10.2.1) from the responses that come with what is to be kept, and may leave when that is
// durable: acknowledgements and votes, also its own.
func (r *Replica) handle(rd raft.Ready) error {
	var keep, commit *raftpb.Message
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			keep = m
		case raft.LocalApplyThread:
			commit = m
		default:
			r.outbox = append(r.outbox, m)
		}
	}
	if keep != nil {
		if err := r.keep(&rd, keep.GetResponses()); err != nil {
			return err
		}
	}
	if err := r.role(); err != nil {
		return err
	}
	for _, e := range commit.GetEntries() {
		if err := r.apply(e); err != nil {
			return err
		}
	}
	for _, m := range commit.GetResponses() {
		_ = r.raft.Step(m) // to itself: what was applied
	}
	for _, s := range rd.ReadStates {
		r.ready = append(r.ready, confirmed{s.Index, binary.LittleEndian.Uint64(s.RequestCtx)})
	}
	r.answerReads()
	// Not before: what raft takes now may change who leads, behind this Ready.
	r.release()
	return r.compact()
}

// keep writes what raft wants kept.
func (r *Replica) keep(rd *raft.Ready, responses []*raftpb.Message) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := r.receive(rd.Snapshot, rd.HardState); err != nil {
			return err
		}
	}
	sync := r.mustSync(rd)
	if err := r.wal.append(rd.HardState, rd.Entries); err != nil {
		return err
	}
	if err := r.store.Append(rd.Entries); err != nil {
		return err
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		if err := r.store.SetHardState(rd.HardState); err != nil {
			return err
		}
	}
	r.written++
	r.kept = append(r.kept, kept{r.written, sync, responses})
	return nil
}

// mustSync reports whether what a Ready wants kept is to be on disk before anything
// else is done.
func (r *Replica) mustSync(rd *raft.Ready) bool {
	if !r.opt.Lazy || raft.IsEmptyHardState(rd.HardState) {
		return rd.MustSync && !r.opt.Lazy
	}
	before, _, err := r.store.InitialState()
	return err != nil || before.GetTerm() != rd.HardState.GetTerm() || before.GetVote() != rd.HardState.GetVote()
}

// Sync has the next Process make durable what was written under Lazy.
func (r *Replica) Sync() { r.wantSync = r.wantSync || r.wal.synced < r.wal.off }

// role takes a change of who leads.
func (r *Replica) role() error {
	st := r.raft.BasicStatus()
	if st.Lead != r.lead {
		r.opt.Logger.Debug("sequencers have a leader", "sequencer", r.opt.ID, "leader", st.Lead, "term", r.term)
	}
	r.lead, r.term = st.Lead, st.GetTerm()
	leading := st.RaftState == raft.StateLeader
	if leading == r.leading && (!leading || r.term == r.leadTerm) {
		return nil
	}
	r.stepDown()
	r.leading, r.leadTerm = leading, r.term
	// raft has appended the entry that a new leader begins with, and r.store
	// holds it by now.
	last, err := r.store.LastIndex()
	r.coreFrom = last
	return err
}

func (r *Replica) stepDown() {
	r.dropCore()
	r.leading = false
	for _, n := range sortedKeys(r.reads) {
		r.reads[n](0, ErrNotLeader)
	}
	clear(r.reads)
	r.ready = r.ready[:0]
}

func (r *Replica) dropCore() {
	r.core, r.inflight, r.changing = nil, 0, false
	for _, index := range sortedKeys(r.waiting) {
		r.waiting[index](sequencer.Effect{}, ErrUnknown)
	}
	clear(r.waiting)
	if c := r.confirm; c != nil {
		r.confirm = nil
		c.done(sequencer.Effect{}, ErrUnknown)
	}
}

func sortedKeys[V any](m map[uint64]V) []uint64 {
	var keys []uint64
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// apply applies a committed entry.
func (r *Replica) apply(e *raftpb.Entry) error {
	b, change, err := batch(e)
	if err != nil {
		return err
	}
	r.applied = e.GetIndex()
	n := 0
	for ; len(b) > 0; n++ {
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return sharedlog.Errorf(sharedlog.KindCorrupt, "raft entry %d: metalog entry %d is cut short", e.GetIndex(), n)
		}
		if r.core == nil { // else the Core has it, decoded (invariant 2)
			entry, err := sequencer.DecodeEntry(b[k : k+int(size)])
			if err != nil {
				return fmt.Errorf("raft entry %d, metalog entry %d: %w", e.GetIndex(), n, err)
			}
			r.show(r.state.Apply(entry))
		}
		b = b[k+int(size):]
	}
	if r.core != nil && n > 0 {
		r.inflight = 0
		r.core.Advance(n, r.show)
	}
	if r.core != nil && n == 0 {
		// raft refused a change of the members, and has put nothing in the place of the
		// batch. A new Core begins with what was applied.
		r.dropCore()
	}
	if change != nil {
		r.reconfigure(change)
	}
	r.takeUp()
	return nil
}

// takeUp gives a leader its Core, when all that is older is applied (invariant 2).
func (r *Replica) takeUp() {
	if r.leading && r.core == nil && r.applied >= r.coreFrom {
		r.core = sequencer.NewCore(r.state)
	}
}

// show hands out an effect, and the outcome to who waits for it.
func (r *Replica) show(ef sequencer.Effect) {
	ef.Runs = slices.Clone(ef.Runs)
	r.out.Effects = append(r.out.Effects, ef)
	if done := r.waiting[ef.Index]; done != nil {
		delete(r.waiting, ef.Index)
		done(ef, nil)
	}
}

func (r *Replica) answerReads() {
	r.ready = slices.DeleteFunc(r.ready, func(c confirmed) bool {
		if c.index > r.applied {
			return false
		}
		if done := r.reads[c.number]; done != nil {
			delete(r.reads, c.number)
			done(r.state.Tail(), nil)
		}
		return true
	})
}

// receive takes the leader's snapshot in place of what this replica has.
func (r *Replica) receive(s *raftpb.Snapshot, state *raftpb.HardState) error {
	if raft.IsEmptyHardState(state) {
		var err error
		if state, _, err = r.store.InitialState(); err != nil {
			return err
		}
	}
	if err := r.drain(); err != nil {
		return err
	}
	if err := r.wal.replace(&saved{snapshot: s, state: state}); err != nil {
		return err
	}
	r.began = nil
	if err := r.store.ApplySnapshot(s); err != nil {
		return err
	}
	if err := r.restore(s); err != nil {
		return err
	}
	r.out.Snapshot, r.out.Effects = s.GetData(), nil
	return nil
}

// compact begins a new file when the one in use has become long: with a snapshot of
// what is applied, and the entries behind it.
func (r *Replica) compact() error {
	if r.wal.off-r.markedAt < max(r.opt.SnapshotBytes, 4*r.wal.base) || !r.wal.mayBegin() {
		return nil
	}
	from := r.marked.GetMetadata().GetIndex()
	if from >= r.applied {
		return nil // nothing has been applied since
	}
	// What was taken into the Core and is not applied is not in the state.
	next, err := r.store.CreateSnapshot(r.applied, r.conf, r.state.AppendSnapshot(nil))
	if err != nil {
		return fmt.Errorf("make a snapshot at %d: %w", r.applied, err)
	}
	last, err := r.store.LastIndex()
	if err != nil {
		return err
	}
	kept := &saved{snapshot: next}
	if last > r.applied {
		if kept.entries, err = r.store.Entries(r.applied+1, last+1, 1<<62); err != nil {
			return err
		}
	}
	if kept.state, _, err = r.store.InitialState(); err != nil {
		return err
	}
	j := r.wal.begin(kept)
	done := j.done
	j.done = func() error {
		if err := done(); err != nil {
			return err
		}
		r.marked, r.markedAt = next, r.wal.off
		r.wantSync = true // to give it its name
		first, err := r.store.FirstIndex()
		if err != nil || from < first {
			return err
		}
		return r.store.Compact(from)
	}
	r.began = j
	return nil
}

// raftLogger gives raft's own words to slog, all as details: what matters is said
// by the Replica.
type raftLogger struct{ l *slog.Logger }

func (g raftLogger) Debug(v ...any)                   {}
func (g raftLogger) Debugf(string, ...any)            {}
func (g raftLogger) Info(v ...any)                    { g.l.Debug(fmt.Sprint(v...)) }
func (g raftLogger) Infof(format string, v ...any)    { g.l.Debug(fmt.Sprintf(format, v...)) }
func (g raftLogger) Warning(v ...any)                 { g.l.Debug(fmt.Sprint(v...)) }
func (g raftLogger) Warningf(format string, v ...any) { g.l.Debug(fmt.Sprintf(format, v...)) }
func (g raftLogger) Error(v ...any)                   { g.l.Warn(fmt.Sprint(v...)) }
func (g raftLogger) Errorf(format string, v ...any)   { g.l.Warn(fmt.Sprintf(format, v...)) }
func (g raftLogger) Fatal(v ...any)                   { panic(fmt.Sprint(v...)) }          // raft's own invariant is broken
func (g raftLogger) Fatalf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) } // as Fatal
func (g raftLogger) Panic(v ...any)                   { panic(fmt.Sprint(v...)) }          // as Fatal
func (g raftLogger) Panicf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) } // as Fatal
