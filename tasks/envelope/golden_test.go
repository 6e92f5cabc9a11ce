package envelope

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// golden holds one record of each kind, byte by byte. These bytes are in logs on
// disk: when a test here fails, the format has changed, and the version must.
var golden = []struct {
	name   string
	record interface{ Append(dst []byte) []byte }
	parsed func(data []byte) (any, error)
	bytes  string
}{
	{
		name: "data",
		record: &sectioned{Data, Header{Stage: 1, Task: 2, Instance: 3, Commit: 300, Stream: 4, Epoch: 5}, []Section{
			{Group: 7, Items: 2, Data: []byte("ab")}, {Group: 200, Items: 1, Data: []byte("c")},
		}},
		parsed: parseSectioned,
		bytes: `01 01            kind data, version 1
		        01 02 03 ac02    stage, task, instance, commit
		        04 05            stream, epoch
		        07               bytes of the directory
		        07 02 02         group 7, 2 items, 2 bytes
		        c801 01 01       group 200, 1 item, 1 byte
		        6162 63          payloads`,
	},
	{
		name:   "data, part",
		record: &sectioned{Data, Header{Instance: 1, Commit: 1, Part: true}, nil},
		parsed: parseSectioned,
		bytes: `01 02            kind data, version 2
		        00 00 01 01 00 00
		        00               bytes of the directory`,
	},
	{
		name:   "changes, part",
		record: &sectioned{Changes, Header{Instance: 1, Commit: 1, Part: true}, nil},
		parsed: parseSectioned,
		bytes: `02 03            kind changes, version 3
		        00 00 01 01 00 00
		        00               bytes of the directory`,
	},
	{
		name:   "changes, empty",
		record: &sectioned{Changes, Header{Stage: 1, Instance: 1, Commit: 1}, nil},
		parsed: parseSectioned,
		bytes: `02 02            kind changes, version 2
		        01 00 01 01 00 00
		        00               bytes of the directory`,
	},
	{
		name: "changes",
		record: &sectioned{Changes, Header{Stage: 1, Instance: 1, Commit: 2}, []Section{
			{Group: 5, Items: 3, Data: []byte("\x00\x02\x01a\x02vw\x00\x01\x01b\x01x\x03\x00\x01c")},
		}},
		parsed: parseSectioned,
		bytes: `02 02            kind changes, version 2
		        01 00 01 02 00 00
		        03               bytes of the directory
		        05 03 11         group 5, 3 items, 17 bytes
		        00 02 01 61 02 7677  table 0, insert: key, value
		        00 01 01 62 01 78    table 0, put: key, value
		        03 00 01 63          table 3, delete: key`,
	},
	{
		name: "marker",
		record: &Marker{
			Job: "j-1", Stage: 1, Task: 2, Instance: 3, Nonce: 0x0807060504030201, Commit: 300, Position: 1000, Low: 990,
			Owned: []int{0, 1, 2, 9},
			Seen: []Seen{
				{Stage: 0, Task: 0, Commit: 5, Watermark: 10, Ended: true},
				{Stage: 0, Task: 1, Commit: 0, Watermark: math.MinInt64, Idle: true},
			},
			Watermark: -1, Idle: true,
			Positions: []Position{{Name: "in", Value: []byte{1, 2}}},
			Snapshot:  77,
		},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 01                        kind marker, version 1
		        0a 03 6a2d31                 1 job
		        10 01 18 02 20 03            2 stage, 3 task, 4 instance
		        29 0102030405060708          5 nonce, little endian
		        30 ac02 38 e807 40 de07      6 commit, 7 position, 8 low
		        4a 02 10 03                  9 owned: first 0 (left out), count 3
		        4a 04 08 09 10 01              first 9, count 1
		        52 06 18 05 20 14 30 01      10 seen: task 0 (left out), commit 5, watermark 10, ended
		        52 0f 10 01                    task 1
		           20 ffffffffffffffffff01     watermark -2^63
		           28 01                       idle
		        58 01 60 01                  11 watermark -1, 12 idle
		        72 08 0a 02 696e 12 02 0102  14 position
		        78 4d                        15 snapshot`,
	},
	{
		name:   "marker, between two items",
		record: &Marker{Job: "j", Position: 9, Units: 300, Clock: 1},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 02                kind marker, version 2
		        0a 01 6a 38 09       1 job, 7 position
		        c001 02 8802 ac02    24 clock, 33 units`,
	},
	{
		name:   "marker, between two items of a source",
		record: &Marker{Job: "j", Positions: []Position{{Name: "in", Units: 5}}},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 02                kind marker, version 2
		        0a 01 6a             1 job
		        72 06 0a 02 696e 18 05  14 position, 5 items behind it done`,
	},
	{
		name: "commit record",
		record: &Marker{
			Job: "j", Instance: 3, Commit: 300,
			Part: Part{Of: PartData, Stream: 2, Groups: []int{4, 5, 9}},
		},
		parsed: func(data []byte) (any, error) {
			m := new(Marker)
			err := m.Parse(data)
			return m, err
		},
		bytes: `03 01                kind marker, version 1
		        0a 01 6a 20 03       1 job, 4 instance
		        30 ac02              6 commit
		        8801 01 9001 02      17 part: data, 18 of stream 2
		        9a01 04 08 04 10 02  19 groups: first 4, count 2
		        9a01 04 08 09 10 01    first 9, count 1`,
	},
	{
		name:   "producers",
		record: &Producers{Stream: 1, Stage: 2, Tasks: 300, Epoch: 4},
		parsed: func(data []byte) (any, error) { p := new(Producers); return p, p.Parse(data) },
		bytes: `04 01            kind producers, version 1
		        08 01 10 02 18 ac02 20 04`,
	},
	{
		name: "plan",
		record: &Plan{
			Job: "j-1", Protocol: "fused", Fingerprint: []byte{0xfe, 0xed}, Groups: 4, Epoch: 1, Number: 1,
			Streams: []PlanStream{{Name: "bids", Groups: 4}},
			Stages:  []PlanStage{{Name: "join", Tasks: 2, Owners: []int{0, 0, 0, 1}}},
		},
		parsed: func(data []byte) (any, error) { p := new(Plan); return p, p.Parse(data) },
		bytes: `05 01                        kind plan, version 1
		        0a 03 6a2d31                 1 job
		        12 05 6675736564             2 protocol
		        1a 02 feed                   3 fingerprint
		        20 04                        4 groups
		        2a 08 0a 04 62696473 10 04   5 stream: name, groups
		        32 12                        6 stage
		           0a 04 6a6f696e 10 02        name, tasks
		           1a 02 10 03                 3 groups of task 0 (left out)
		           1a 04 08 01 10 01           1 group of task 1
		        38 01                        7 epoch`,
	},
	{
		name: "plan that moves",
		record: &Plan{
			Job: "j", Number: 3,
			Stages: []PlanStage{{Tasks: 3, Owners: []int{0, 2}}},
			Moves:  []Move{{Stage: 1, From: 0, To: 2, Groups: []int{1, 2, 7}, Early: true}},
			Goal:   []PlanStage{{Name: "s", Tasks: 1, Owners: []int{0}}},
		},
		parsed: func(data []byte) (any, error) { p := new(Plan); return p, p.Parse(data) },
		bytes: `05 02                        kind plan, version 2
		        0a 01 6a                     1 job
		        32 0c 10 03 1a 02 10 01 1a 04 08 02 10 01  6 stage
		        40 03                        8 number
		        4a 12 08 01 18 02            9 move: stage, from (left out), to
		           22 04 08 01 10 02           groups: first 1, count 2
		           22 04 08 07 10 01           first 7, count 1
		           28 01                       early
		        52 09 0a 01 73 10 01 1a 02 10 01  10 goal`,
	},
	{
		name: "plan that changes grains",
		record: &Plan{
			Job: "j", Number: 2,
			Stages: []PlanStage{{Tasks: 1, Owners: []int{0}, Grain: &Grain{PerKey: true, Delay: 300}}, {Tasks: 1, Owners: []int{0}, Grain: &Grain{}}},
		},
		parsed: func(data []byte) (any, error) { p := new(Plan); return p, p.Parse(data) },
		bytes: `05 03                        kind plan, version 3
		        0a 01 6a                     1 job
		        32 0d 10 01 1a 02 10 01      6 stage: tasks, owners
		           2a 05 08 02 18 ac02         5 grain: a clock for each key, 300 ms behind
		        32 0a 10 01 1a 02 10 01      6 stage
		           2a 02 08 01                 5 grain: the clock of the task
		        40 02                        8 number`,
	},
	{
		name: "plan with routes",
		record: &Plan{
			Job: "j", Number: 2, Streams: []PlanStream{{Name: "s", Groups: 6, Slots: 2}},
			Routes: []Routes{{Stream: 1, Table: []byte{1, 4, 2, 0}, Before: []byte{0, 4, 2, 0}}}, Request: 7,
		},
		parsed: func(data []byte) (any, error) { p := new(Plan); return p, p.Parse(data) },
		bytes: `05 04                        kind plan, version 4
		        0a 01 6a                     1 job
		        2a 07 0a 01 73 10 06 18 02   5 stream: name, groups, slots
		        40 02                        8 number
		        6a 0e 08 01                  13 routes: stream
		           12 04 01 04 02 00           2 table
		           1a 04 00 04 02 00           3 before
		        80 01 07                     16 request`,
	},
	{
		name: "marker of an epoch",
		record: &Marker{
			Job: "j", Epoch: 3, Adopted: 2, Owned: []int{}, Seen: []Seen{{Task: 1, Epoch: 300}}, Positions: []Position{},
		},
		parsed: func(data []byte) (any, error) {
			m := &Marker{Owned: []int{}, Positions: []Position{}}
			return m, m.Parse(data)
		},
		bytes: `03 01            kind marker, version 1
		        0a 01 6a         1 job
		        52 05 10 01 48 ac02  10 seen: task, epoch
		        e8 01 03         29 epoch
		        f0 01 02         30 adopted`,
	},
	{
		name:   "producers of a later plan",
		record: &Producers{Stream: 1, Tasks: 3, Plan: 3},
		parsed: func(data []byte) (any, error) { p := new(Producers); return p, p.Parse(data) },
		bytes: `04 01            kind producers, version 1
		        08 01 18 03 28 03`,
	},
	{
		name: "marker that releases",
		record: &Marker{
			Job: "j", Ended: true, Released: Release{Plan: 3, Groups: []int{4, 5}, Served: "w:1"}, Left: true, Plan: 3,
			Owned: []int{}, Seen: []Seen{{Task: 1, Watermark: 5, Left: true}}, Positions: []Position{},
		},
		parsed: func(data []byte) (any, error) {
			m := &Marker{Owned: []int{}, Positions: []Position{}}
			return m, m.Parse(data)
		},
		bytes: `03 03                        kind marker, version 3
		        0a 01 6a                     1 job
		        52 06 10 01 20 0a 40 01      10 seen: task, watermark, left
		        68 01                        13 ended
		        d201 0d 08 03 12 04 08 04 10 02  26 released: plan, groups,
		        1a 03 77 3a 31               served
		        d801 01 e001 03              27 left, 28 plan`,
	},
	{
		name:   "marker that releases early",
		record: &Marker{Job: "j", Released: Release{Plan: 2}},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 03          kind marker, version 3
		        0a 01 6a       1 job
		        d201 02 08 02  26 released: plan`,
	},
	{
		name:   "marker behind the first plan",
		record: &Marker{Job: "j", Plan: 1},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 01     kind marker, version 1
		        0a 01 6a  1 job
		        e001 01   28 plan`,
	},
	{
		name:   "marker behind a later plan, between two items",
		record: &Marker{Job: "j", Plan: 2, Units: 3},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 03             kind marker, version 3
		        0a 01 6a          1 job
		        e001 02 8802 03   28 plan, 33 units`,
	},
	{
		name:   "marker of a source behind a later plan",
		record: &Marker{Job: "j", Plan: 2, Positions: []Position{{Name: "in/1", Value: []byte{7}}}},
		parsed: func(data []byte) (any, error) { m := new(Marker); return m, m.Parse(data) },
		bytes: `03 04                          kind marker, version 4
		        0a 01 6a                       1 job
		        72 09 0a 04 696e2f31 12 01 07  14 position of partition 1
		        e001 02                        28 plan`,
	},
	{
		name: "marker that is a barrier",
		record: &Marker{
			Commit: 1, Checkpoint: 300, Items: 128, Owned: []int{}, Seen: []Seen{}, Positions: []Position{},
		},
		parsed: func(data []byte) (any, error) {
			m := &Marker{Owned: []int{}, Seen: []Seen{}, Positions: []Position{}}
			return m, m.Parse(data)
		},
		bytes: `03 01                        kind marker, version 1
		        30 01                        6 commit
		        b001 ac02                    22 checkpoint
		        b801 8001                    23 items`,
	},
	{
		name: "checkpoint",
		record: &Checkpoint{Job: "j-1", Number: 3, Attempt: 2, Tasks: []CheckpointTask{
			{Barrier: 300}, {Stage: 1, Task: 1, Barrier: 7, Ended: true},
		}, Rest: 300},
		parsed: func(data []byte) (any, error) { c := new(Checkpoint); return c, c.Parse(data) },
		bytes: `07 01                        kind checkpoint, version 1
		        0a 03 6a2d31                 1 job
		        10 03 18 02                  2 number, 3 attempt
		        22 03 18 ac02                4 task: stage, task (left out), barrier
		        22 08 08 01 10 01 18 07 20 01  stage, task, barrier, ended
		        28 ac02                      5 rest, µs`,
	},
}

// sectioned makes Data and Changes records fit the same table as the others.
type sectioned struct {
	Kind     Kind
	Header   Header
	Sections []Section
}

func (s *sectioned) Append(dst []byte) []byte {
	return AppendSections(dst, s.Kind, s.Header, s.Sections)
}

func parseSectioned(data []byte) (any, error) {
	k, err := KindOf(data)
	if err != nil {
		return nil, err
	}
	var walk Sections
	h, err := walk.Open(data)
	s := &sectioned{Kind: k, Header: h}
	for sec, ok := walk.Next(); ok; sec, ok = walk.Next() {
		s.Sections = append(s.Sections, sec)
	}
	if err == nil {
		err = walk.Err()
	}
	return s, err
}

// unhex reads the hexadecimal bytes of an annotated dump: those at the beginning of each line, up
// to the first two blanks.
func unhex(t testing.TB, dump string) []byte {
	var out []byte
	for line := range strings.Lines(dump) {
		for field := range strings.SplitSeq(strings.TrimSpace(line), " ") {
			if field == "" {
				break // two blanks: the explanation begins
			}
			b, err := hex.DecodeString(field)
			require.NoError(t, err, "%q in %q", field, line)
			out = append(out, b...)
		}
	}
	return out
}

func TestGoldenBytes(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			want := unhex(t, g.bytes)
			require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(g.record.Append(nil)))
			got, err := g.parsed(want)
			require.NoError(t, err)
			require.Equal(t, g.record, got)
			require.Equal(t, "before "+string(want), string(g.record.Append([]byte("before "))), "Append appends")
		})
	}
}

// TestCutAnywhere truncates and extends each golden record at every byte: no parser panics, and
// none accepts a record of sections that is incomplete. (A protobuf message truncated between two
// fields is a shorter message; the log's CRC keeps records whole.)
func TestCutAnywhere(t *testing.T) {
	for _, g := range golden {
		data := unhex(t, g.bytes)
		for n := range data {
			_, err := g.parsed(data[:n:n])
			if k := Kind(data[0]); n < prefix || k == Data || k == Changes {
				require.Error(t, err, "%s cut to %d bytes", g.name, n)
			}
			if err != nil {
				require.ErrorIs(t, err, sharedlog.ErrCorrupt)
			}
		}
		_, err := g.parsed(append(data, 0))
		require.ErrorIs(t, err, sharedlog.ErrCorrupt, "%s with a byte more", g.name)
	}
}

func TestOtherVersionsAndKinds(t *testing.T) {
	for _, g := range golden {
		data := unhex(t, g.bytes)
		data[1] = 9
		_, err := g.parsed(data)
		require.ErrorIs(t, err, sharedlog.ErrVersion)
		require.ErrorContains(t, err, Kind(data[0]).String()+fmt.Sprintf(" record of version 9, this build reads versions up to %d: run a build that knows version 9", Kind(data[0]).newest()))

		data[0] = 66
		_, err = KindOf(data)
		require.ErrorIs(t, err, sharedlog.ErrVersion)
		require.ErrorContains(t, err, "unknown kind 66 (version 9)")
	}

	producers := (&Producers{}).Append(nil)
	require.ErrorContains(t, new(Marker).Parse(producers), "a producers record where a marker record belongs")
	_, err := new(Sections).Open(producers)
	require.ErrorContains(t, err, "a producers record where a data or changes record belongs")
	_, err = KindOf(nil)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
}
