package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// Raw is one event in the binary form (drawn in the package comment). It usually aliases a buffer
// that its reader does not own; the function that returned it says for how long it is valid.
type Raw []byte

// The sizes of the fixed parts that precede the strings.
const (
	personFixed  = 1 + 2*8
	auctionFixed = 1 + 7*8
	bidFixed     = 1 + 4*8
)

// ErrMalformed is the error of every decoder for bytes that are not an event of the requested kind.
var ErrMalformed = errors.New("malformed binary event")

// Type returns the kind of event. It looks at the first byte only; for an empty Raw or an unknown
// kind it returns a Type without a name.
func (r Raw) Type() Type {
	if len(r) == 0 {
		return types
	}
	return Type(r[0])
}

// Time returns the event time in ms, without decoding anything else; 0 for a
// Raw too short to be an event.
func (r Raw) Time() int64 {
	if len(r) < 9 {
		return 0
	}
	return le(r[1:])
}

// AppendPerson appends p's binary form.
func AppendPerson(dst []byte, p *Person) []byte {
	dst = append(dst, byte(TypePerson))
	dst = put(dst, p.Time)
	dst = put(dst, p.ID)
	dst = putString(dst, p.Name)
	dst = putString(dst, p.Email)
	dst = putString(dst, p.CreditCard)
	dst = putString(dst, p.City)
	dst = putString(dst, p.State)
	return putString(dst, p.Extra)
}

// AppendAuction appends a's binary form.
func AppendAuction(dst []byte, a *Auction) []byte {
	dst = append(dst, byte(TypeAuction))
	dst = put(dst, a.Time)
	dst = put(dst, a.ID)
	dst = put(dst, a.Seller)
	dst = put(dst, a.Category)
	dst = put(dst, a.InitialBid)
	dst = put(dst, a.Reserve)
	dst = put(dst, a.Expires)
	dst = putString(dst, a.ItemName)
	dst = putString(dst, a.Description)
	return putString(dst, a.Extra)
}

// AppendBid appends b's binary form.
func AppendBid(dst []byte, b *Bid) []byte {
	dst = append(dst, byte(TypeBid))
	dst = put(dst, b.Time)
	dst = put(dst, b.Auction)
	dst = put(dst, b.Bidder)
	dst = put(dst, b.Price)
	dst = putString(dst, b.Channel)
	dst = putString(dst, b.URL)
	return putString(dst, b.Extra)
}

// DecodePerson decodes a whole Raw. The strings of the result alias r. The
// error is ErrMalformed (wrong type, short, or bytes left over).
func DecodePerson(r Raw) (p Person, err error) {
	if len(r) < personFixed || Type(r[0]) != TypePerson {
		return p, ErrMalformed
	}
	p.Time, p.ID = le(r[1:]), le(r[9:])
	s := cursor{b: r[personFixed:]}
	p.Name = s.next()
	p.Email = s.next()
	p.CreditCard = s.next()
	p.City = s.next()
	p.State = s.next()
	p.Extra = s.next()
	return p, s.end()
}

// DecodeAuction is DecodePerson for auctions.
func DecodeAuction(r Raw) (a Auction, err error) {
	if len(r) < auctionFixed || Type(r[0]) != TypeAuction {
		return a, ErrMalformed
	}
	a.Time, a.ID, a.Seller, a.Category = le(r[1:]), le(r[9:]), le(r[17:]), le(r[25:])
	a.InitialBid, a.Reserve, a.Expires = le(r[33:]), le(r[41:]), le(r[49:])
	s := cursor{b: r[auctionFixed:]}
	a.ItemName = s.next()
	a.Description = s.next()
	a.Extra = s.next()
	return a, s.end()
}

// DecodeBid is DecodePerson for bids.
func DecodeBid(r Raw) (b Bid, err error) {
	if len(r) < bidFixed || Type(r[0]) != TypeBid {
		return b, ErrMalformed
	}
	b.Time, b.Auction, b.Bidder, b.Price = le(r[1:]), le(r[9:]), le(r[17:]), le(r[25:])
	s := cursor{b: r[bidFixed:]}
	b.Channel = s.next()
	b.URL = s.next()
	b.Extra = s.next()
	return b, s.end()
}

// BidKey returns the auction, bidder and price of a bid without touching its strings, which is all
// that most queries read of most bids. ok is false if r is not a bid.
func BidKey(r Raw) (auction, bidder, price int64, ok bool) {
	if len(r) < bidFixed || Type(r[0]) != TypeBid {
		return 0, 0, 0, false
	}
	return le(r[9:]), le(r[17:]), le(r[25:]), true
}

// Len returns the length of the event at the beginning of b, so that a reader can split consecutive
// events.
func Len(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, ErrMalformed
	}
	fixed, strings := 0, 0
	switch Type(b[0]) {
	case TypePerson:
		fixed, strings = personFixed, 6
	case TypeAuction:
		fixed, strings = auctionFixed, 3
	case TypeBid:
		fixed, strings = bidFixed, 3
	default:
		return 0, fmt.Errorf("%w: type %d", ErrMalformed, b[0])
	}
	if len(b) < fixed {
		return 0, ErrMalformed
	}
	s := cursor{b: b[fixed:]}
	for range strings {
		s.next()
	}
	if s.bad {
		return 0, ErrMalformed
	}
	return len(b) - len(s.b), nil
}

func le(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }

func put(dst []byte, v int64) []byte { return binary.LittleEndian.AppendUint64(dst, uint64(v)) }

func putString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// cursor reads strings from a buffer; after the first string that does not fit, bad is set and it
// returns empty strings.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) next() string {
	var n uint64
	k := 1
	if len(c.b) > 0 && c.b[0] < 0x80 { // nearly always
		n = uint64(c.b[0])
	} else if n, k = binary.Uvarint(c.b); k <= 0 {
		c.bad = true
		return ""
	}
	if n > uint64(len(c.b)-k) {
		c.bad = true
		return ""
	}
	s := alias(c.b[k : k+int(n)])
	c.b = c.b[k+int(n):]
	return s
}

func (c *cursor) end() error {
	if c.bad || len(c.b) != 0 {
		return ErrMalformed
	}
	return nil
}

// alias is the only place where bytes become a string without a copy; invariant 1 of the package is
// its contract.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
