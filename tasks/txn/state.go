package txn

import (
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// The values of State.status.
const (
	Empty    uint32 = 0
	Open     uint32 = 1
	Prepared uint32 = 2
)

// The values of Partition.of.
const (
	OfData     = envelope.PartData
	OfChanges  = envelope.PartChanges
	OfProgress = uint32(3)
)

// Task identifies the owner of transactions.
type Task struct {
	Job   string
	Stage string
	// Index is the stage's in the plan, Task the task's number.
	Index, Task uint32
}

// Tag returns the tag of the task's transaction stream.
func (t Task) Tag() sharedlog.Tag { return tags.Transactions(t.Job, t.Stage, int(t.Task)) }

// version is the version of the records of a transaction stream.
const version = 1

// record makes a record of the transaction stream.
func (t Task) record(s *txnpb.State) sharedlog.Record {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{byte(envelope.KindTransaction), version}, s)
	if err != nil {
		// invariant: it fails only for strings that are not UTF-8, and names are checked.
		panic(err)
	}
	return sharedlog.Record{Tags: []sharedlog.Tag{t.Tag()}, Data: b}
}

// Parse reads a record of a transaction stream.
func Parse(data []byte) (*txnpb.State, error) {
	k, err := envelope.KindOf(data)
	if err != nil {
		return nil, err
	}
	if k != envelope.KindTransaction {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a %v record in a transaction stream", k)
	}
	s := new(txnpb.State)
	if err := proto.Unmarshal(data[2:], s); err != nil {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "transaction record: %w", err)
	}
	return s, nil
}

// second returns the records of the second phase, one append each: a commit record for each
// partition, then the marker for each output, then for the task log.
func (t Task) second(s *txnpb.State) (records []sharedlog.Record) {
	var last []sharedlog.Record
	for _, p := range s.Partitions {
		switch p.Of {
		case OfData, OfChanges:
			m := envelope.Marker{
				Job: t.Job, Stage: t.Index, Task: t.Task, Instance: s.Instance, Commit: s.Done + 1,
				Part: envelope.Part{Of: p.Of, Stream: p.Stream},
			}
			r := sharedlog.Record{}
			for _, g := range p.Groups {
				if p.Of == OfChanges {
					r.Tags = append(r.Tags, tags.Changes(t.Job, t.Stage, int(g)))
					continue // the tag says whose it is; a change log has one writer
				}
				m.Part.Groups = append(m.Part.Groups, int(g))
				r.Tags = append(r.Tags, tags.Data(t.Job, p.Name, int(g)))
			}
			r.Data = m.Append(nil)
			records = append(records, r)
		case OfProgress:
			for _, out := range p.Outputs {
				last = append(last, sharedlog.Record{Tags: []sharedlog.Tag{tags.All(t.Job, out)}, Data: s.Marker})
			}
		}
	}
	records = append(records, last...)
	return append(records, sharedlog.Record{Tags: []sharedlog.Tag{tags.Task(t.Job, t.Stage, int(t.Task))}, Data: s.Marker})
}
