package route

import (
	"encoding/binary"
	"math"
)

// Append appends the table's encoding to dst. Equal tables have equal bytes:
//
//	epoch, groups, slots    uvarints
//	number of places        uvarint; then each place, by slot:
//	  slot - groups         uvarint
//	  part                  uvarint: the number of sub-groups, 1 to 16, and group·16 + first sub-group
//	                        as another uvarint; or 17 + the length of the key, and the key
func (t *Table) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.Epoch))
	dst = binary.AppendUvarint(dst, uint64(t.Groups))
	dst = binary.AppendUvarint(dst, uint64(t.Slots))
	dst = binary.AppendUvarint(dst, uint64(len(t.places)))
	for _, p := range t.places {
		dst = binary.AppendUvarint(dst, uint64(p.Slot-t.Groups))
		if !p.Single {
			dst = binary.AppendUvarint(append(dst, byte(p.N)), uint64(p.Group*Parts+p.Sub))
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(p.Key))+Parts+1)
		dst = append(dst, p.Key...)
	}
	return dst
}

// DecodeTable reads what Append has written, and nothing else. It does not retain b.
func DecodeTable(b []byte) (*Table, error) {
	d := decoder{b: b}
	epoch, groups, slots, n := d.uint(math.MaxUint32), d.uint(MaxGroups), d.uint(MaxGroups), d.uint(MaxGroups)
	var places []Place
	last := -1
	for i := 0; i < n && !d.bad; i++ {
		p := Place{Slot: d.uint(MaxGroups)}
		if p.Slot <= last {
			d.bad = true
		}
		last = p.Slot
		p.Slot += groups
		if size := d.uint(math.MaxInt32); size <= Parts {
			sub := d.uint(MaxGroups * Parts)
			p.Group, p.Sub, p.N = sub/Parts, sub%Parts, size
		} else {
			p.Part = Single(d.bytes(size - Parts - 1))
		}
		places = append(places, p)
	}
	if d.bad || len(d.b) > 0 {
		return nil, badTable("its %d bytes are no table", len(b))
	}
	return NewTable(uint32(epoch), groups, slots, places)
}

// decoder reads from b. After something that cannot be read all is 0 and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

// uint reads a number up to most in its shortest form.
func (d *decoder) uint(most uint64) int {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > most || n > 1 && d.b[n-1] == 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.b, d.bad = nil, true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}
