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
	// ErrNotLeader: nothing was done; ask the leader.
	ErrNotLeader = errors.New("this sequencer does not lead")
	// ErrUnknown: the leadership ended while the proposal was in progress. The entry may be in the
	// metalog, now or later, or not.
	ErrUnknown = errors.New("the leadership was lost before the outcome was known")
	// ErrLost: the disk has lost data that this replica had acknowledged. The replica must not take
	// part any more under any circumstances: a vote may be lost, too.
	ErrLost = errors.New("this sequencer has lost entries that it had acknowledged")
)

// Options configures a replica.
type Options struct {
	// ID is the permanent ID of this replica.
	ID uint64
	// Voters, Members and Level are the start of the metalog if the directory is empty; they must
	// be the same for all sequencers that form the cluster. Voters are the IDs of all, including
	// this one; if there are none, the replica starts empty and waits for a snapshot from a leader.
	// Members are the known properties of the voters; Level is the feature level (default
	// sequencer.Level). Data in the directory takes precedence.
	Voters  []uint64
	Members []sequencer.Sequencer
	Level   uint32
	// FS and Dir are the place of the log.
	FS  vfs.FS
	Dir string
	// ElectionTicks is how long a replica waits for a message of the leader before it starts an
	// election (default 10); the leader sends heartbeats every HeartbeatTicks (default 1).
	ElectionTicks, HeartbeatTicks int
	// SnapshotBytes is the size of the log at which a new file is started, with a snapshot (default
	// 16 MiB, and at least four times the snapshot's size). The entries since the snapshot before
	// that stay in memory, for replicas that are behind.
	SnapshotBytes int64
	// HistoryBytes bounds the files before the one in use that stay on disk, for View; 0: none.
	HistoryBytes int64
	// AheadBytes is the number of zeros by which the file is extended at a time (default 1 MiB;
	// negative: the file grows with each write).
	AheadBytes int64
	// Lazy makes an entry count as durable when it is written to the operating system; Sync syncs
	// it. Votes and terms are always synced at once.
	Lazy bool
	// Async makes Process return the work for the disk in Output.Jobs instead of waiting for it; a
	// Process after Done returns what depends on a job. Otherwise Process runs the jobs itself.
	Async bool
	// Passive disables elections except by Campaign, and a leader does not step down by itself.
	// Raft draws its timeouts from a source without a seed; without them a replica's behavior is a
	// function of its inputs.
	Passive bool
	// Logger logs elections (default slog.Default).
	Logger *slog.Logger
}

// An Output is the result of one Process.
type Output struct {
	// Messages must be sent, in this order for each receiver; any may be lost. What they promise is
	// durable.
	Messages []*raftpb.Message
	// Snapshot, if not nil, was received from the leader and replaces all effects up to it; it
	// comes before Effects. It is encoded as by sequencer.State.
	Snapshot []byte
	// Effects holds the effects of the entries that became durable, in order. The caller owns them.
	Effects []sequencer.Effect
	// Jobs must be started now, concurrently, without waiting for them (Options.Async).
	Jobs []*Job
}

// Replica is one sequencer. It is not safe for concurrent use.
type Replica struct {
	opt   Options
	raft  *raft.RawNode
	store *logStore
	wal   *wal
	state *sequencer.State
	conf  *raftpb.ConfState

	applied  uint64           // raft index
	marked   *raftpb.Snapshot // snapshot at the start of the file in use
	markedAt int64            // offset after its data
	term     uint64
	lead     uint64
	leading  bool
	leadTerm uint64
	core     *sequencer.Core
	coreFrom uint64 // raft index that a leader must have applied before it creates its Core
	inflight int    // batches of the Core that raft has and that are not applied
	changing bool   // one of them, or of the Core's entries, changes the members
	confirm  *confirm

	kept      []kept // data that waits for the disk, in order
	written   uint64 // number of the last write
	durable   uint64 // number of the last write that is certainly on disk
	wantSync  bool
	syncing   *Job              // sync in progress; nil: none
	beginning *Job              // new file in progress; nil: none
	began     *Job              // new file, not returned by Process yet
	outbox    []*raftpb.Message // messages that may be sent
	lost      error             // set if the disk has lost acknowledged data

	waiting map[uint64]func(sequencer.Effect, error) // by metalog index
	reads   map[uint64]func(sharedlog.LSN, error)    // by number
	ready   []confirmed                              // reads that wait until the index is applied
	read    uint64                                   // number of the last read
	out     Output
}

type confirmed struct {
	index  uint64
	number uint64
}

// Open reads the replica's disk and returns the replica as a follower.
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
	// All sequencers start with the same snapshot of an empty metalog with these voters, so they do
	// not need to learn the members from each other.
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

// Close completes the jobs in progress and closes the files. Waiting proposals get ErrUnknown,
// waiting reads ErrNotLeader.
func (r *Replica) Close() error {
	r.stepDown()
	return errors.Join(r.drain(), r.wal.close())
}

// State returns the applied state; read only, valid until the next Process.
func (r *Replica) State() *sequencer.State { return r.state }

// Leader returns the ID of the leader, 0 if this replica does not know it.
func (r *Replica) Leader() uint64 { return r.lead }

// Leading reports whether this replica accepts reports and proposals.
func (r *Replica) Leading() bool { return r.core != nil }

// Term returns raft's term.
func (r *Replica) Term() uint64 { return r.term }

// Tick advances raft's clock.
func (r *Replica) Tick() {
	if r.opt.Passive && !r.leading {
		return
	}
	r.raft.Tick()
	// A leader has no Core after raft has dropped its proposals for a while (because of a
	// Transfer), and may have nothing left to apply that would create one.
	r.takeUp()
}

// Campaign starts an election.
func (r *Replica) Campaign() error { return r.raft.Campaign() }

// Step passes a message of another replica to raft. If it returns an error, the caller drops the
// message.
func (r *Replica) Step(m *raftpb.Message) error {
	if err := r.holds(m); err != nil {
		r.lost = err
		return err
	}
	return r.raft.Step(m)
}

// holds checks that the log is at least as long as the leader knows from this replica's
// acknowledgements; that is the commit index in a heartbeat. A shorter log has lost acknowledged
// entries, and votes may be lost, too.
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

// Unreachable records that a message to a peer could not be delivered.
func (r *Replica) Unreachable(peer uint64) { r.raft.ReportUnreachable(peer) }

// SnapshotSent records whether a message with a snapshot reached its peer.
func (r *Replica) SnapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	r.raft.ReportSnapshot(peer, status)
}

// Report passes a report to the Core, if this replica leads. Reports are cumulative, so a dropped
// one is made up for by the next.
func (r *Replica) Report(rep sequencer.Report) error {
	if r.core == nil {
		return ErrNotLeader
	}
	r.core.Report(rep)
	return nil
}

// Propose proposes an entry. done is called once, from a later Process or Close: with the effect
// when the entry is durable and applied, or with ErrUnknown. If Propose returns an error, nothing
// was done and done is not called: ErrNotLeader, or the reason why the members may not be changed
// like that.
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

// Tail reads the next LSN, linearizably: what any leader acknowledged before the call is below it.
// done is called once, from a later Process or Close.
func (r *Replica) Tail(done func(sharedlog.LSN, error)) error {
	if !r.leading {
		return ErrNotLeader
	}
	r.read++
	r.reads[r.read] = done
	r.raft.ReadIndex(binary.LittleEndian.AppendUint64(nil, r.read))
	return nil
}

// Process handles the calls since the last Process: it writes, applies, and returns what must be
// sent and shown. The Output is valid until the next Process. An error is final (invariant 6).
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

// work handles raft's Readys until there are none.
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

// propose passes the Core's entries to raft, one batch at a time: while a batch is in progress
// reports coalesce into the next one.
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
		// The leadership is about to end. If it does not, there will be a new Core when everything
		// that was proposed is applied (invariant 2).
		last, err := r.store.LastIndex()
		r.coreFrom = last
		r.dropCore()
		return err
	}
	r.inflight = 1
	return err
}

// handle handles a Ready. Raft distinguishes messages that may be sent at once (a leader's entries
// promise nothing about its own disk, which works concurrently: Ongaro's thesis, 10.2.1) from
// responses that may be sent only when the Ready's data is durable: acknowledgements and votes,
// also the replica's own.
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
		_ = r.raft.Step(m) // to itself: the applied index
	}
	for _, s := range rd.ReadStates {
		r.ready = append(r.ready, confirmed{s.Index, binary.LittleEndian.Uint64(s.RequestCtx)})
	}
	r.answerReads()
	// Not before: a response may change the leader, after this Ready.
	r.release()
	return r.compact()
}

// keep writes the data of a Ready.
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

// mustSync reports whether the data of a Ready must be on disk before its responses are sent.
func (r *Replica) mustSync(rd *raft.Ready) bool {
	if !r.opt.Lazy || raft.IsEmptyHardState(rd.HardState) {
		return rd.MustSync && !r.opt.Lazy
	}
	before, _, err := r.store.InitialState()
	return err != nil || before.GetTerm() != rd.HardState.GetTerm() || before.GetVote() != rd.HardState.GetVote()
}

// Sync makes the next Process sync what was written under Lazy.
func (r *Replica) Sync() { r.wantSync = r.wantSync || r.wal.synced < r.wal.off }

// role handles a change of the leader.
func (r *Replica) role() error {
	st := r.raft.BasicStatus()
	if st.Lead != r.lead {
		r.opt.Logger.Debug("the leader has changed", "sequencer", r.opt.ID, "leader", st.Lead, "term", r.term)
	}
	r.lead, r.term = st.Lead, st.GetTerm()
	leading := st.RaftState == raft.StateLeader
	if leading == r.leading && (!leading || r.term == r.leadTerm) {
		return nil
	}
	r.stepDown()
	r.leading, r.leadTerm = leading, r.term
	// Raft has appended the first entry of a new leader, and r.store contains it by now.
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
		if r.core == nil { // otherwise the Core has it, decoded (invariant 2)
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
		// Raft refused a change of the members and replaced the batch by an empty entry. A new Core
		// starts with the applied state.
		r.dropCore()
	}
	if change != nil {
		r.reconfigure(change)
	}
	r.takeUp()
	return nil
}

// takeUp creates a leader's Core, when everything older is applied (invariant 2).
func (r *Replica) takeUp() {
	if r.leading && r.core == nil && r.applied >= r.coreFrom {
		r.core = sequencer.NewCore(r.state)
	}
}

// show adds an effect to the output, and calls the callback that waits for it.
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

// receive replaces the state of this replica by the leader's snapshot.
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

// compact starts a new file when the one in use has grown long enough: with a snapshot of the
// applied state and the entries after it.
func (r *Replica) compact() error {
	if r.wal.off-r.markedAt < max(r.opt.SnapshotBytes, 4*r.wal.base) || !r.wal.mayBegin() {
		return nil
	}
	from := r.marked.GetMetadata().GetIndex()
	if from >= r.applied {
		return nil // nothing was applied since
	}
	// Entries in the Core that are not applied are not in the state.
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
		r.wantSync = true // renames the file
		first, err := r.store.FirstIndex()
		if err != nil || from < first {
			return err
		}
		return r.store.Compact(from)
	}
	r.began = j
	return nil
}

// raftLogger logs raft's messages with slog, at debug level: the Replica logs what matters.
type raftLogger struct{ l *slog.Logger }

func (g raftLogger) Debug(v ...any)                   {}
func (g raftLogger) Debugf(string, ...any)            {}
func (g raftLogger) Info(v ...any)                    { g.l.Debug(fmt.Sprint(v...)) }
func (g raftLogger) Infof(format string, v ...any)    { g.l.Debug(fmt.Sprintf(format, v...)) }
func (g raftLogger) Warning(v ...any)                 { g.l.Debug(fmt.Sprint(v...)) }
func (g raftLogger) Warningf(format string, v ...any) { g.l.Debug(fmt.Sprintf(format, v...)) }
func (g raftLogger) Error(v ...any)                   { g.l.Warn(fmt.Sprint(v...)) }
func (g raftLogger) Errorf(format string, v ...any)   { g.l.Warn(fmt.Sprintf(format, v...)) }
func (g raftLogger) Fatal(v ...any)                   { panic(fmt.Sprint(v...)) }          // an invariant of raft is broken
func (g raftLogger) Fatalf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) } // as Fatal
func (g raftLogger) Panic(v ...any)                   { panic(fmt.Sprint(v...)) }          // as Fatal
func (g raftLogger) Panicf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) } // as Fatal
