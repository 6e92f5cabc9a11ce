package event

import (
	"fmt"
	"unicode/utf8"
)

// LineError says why a line is not an event. The parser fills in Field and Reason; the reader of
// the file adds File and Line.
type LineError struct {
	// File and Line (from 1) locate the line; File is empty if the reader did not set it.
	File string
	Line int64
	// Field is the field that is wrong, with its object ("bid.price"); it is empty if the line as a
	// whole is not an event.
	Field string
	// Reason continues a sentence that begins with the field's name.
	Reason string
}

// Error returns `file:line: field reason`.
func (e *LineError) Error() string {
	field := e.Field
	if field == "" {
		field = "the line"
	}
	if e.File == "" {
		return field + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, field, e.Reason)
}

// Parser turns JSON lines into binary events. The zero value is ready to use. It holds scratch
// memory, so only one goroutine may use it.
type Parser struct {
	scanner
	person  Person
	auction Auction
	bid     Bid
}

// Append parses one line (with or without its line end) and appends the event's binary form to dst.
// Members may come in any order; Append skips unknown members and the objects of the other two
// kinds. Missing or repeated members, values of a wrong type, integers beyond 64 bits, times
// outside the years 1 to 9999, invalid JSON and invalid UTF-8 are errors of type *LineError; dst is
// then returned unchanged. Append does not keep the line.
func (p *Parser) Append(dst, line []byte) ([]byte, error) {
	p.scanner = scanner{b: line, tmp: p.tmp[:0]}
	typ, field, bad := p.line()
	p.b = nil
	if bad != "" {
		return dst, &LineError{Field: field, Reason: bad}
	}
	switch typ {
	case TypePerson:
		return AppendPerson(dst, &p.person), nil
	case TypeAuction:
		return AppendAuction(dst, &p.auction), nil
	default:
		return AppendBid(dst, &p.bid), nil
	}
}

// line parses the outer object. The event type may follow the objects it chooses from: line then
// skips those first and parses the right one afterwards.
func (p *Parser) line() (typ Type, field, bad string) {
	if !utf8.Valid(p.b) {
		return 0, "", badUTF8
	}
	typ = types
	var at [types]int // where each object begins
	var seen [types]bool
	parsed := false
	more, bad := p.open()
	for more && bad == "" {
		var name string
		if name, bad = p.key(); bad != "" {
			return 0, "", bad
		}
		t := types
		switch name {
		case "person":
			t = TypePerson
		case "auction":
			t = TypeAuction
		case "bid":
			t = TypeBid
		case "event_type":
			if typ != types {
				return 0, name, repeated
			}
			var v int64
			if v, bad = p.integer(); bad != "" {
				return 0, name, bad
			}
			if v < 0 || v >= int64(types) {
				return 0, name, wantType
			}
			typ = Type(v)
		default:
			if bad = p.skip(0); bad != "" {
				return 0, name, bad
			}
		}
		if t != types {
			if seen[t] {
				return 0, name, repeated
			}
			seen[t] = true
			p.peek()
			at[t] = p.i
			if t == typ {
				parsed = true
				field, bad = p.object(typ)
			} else {
				field, bad = name, p.skip(0)
			}
			if bad != "" {
				return 0, field, bad
			}
		}
		more, bad = p.next()
	}
	switch {
	case bad != "":
		return 0, "", bad
	case p.peek() != 0 || p.i < len(p.b):
		return 0, "", badTail
	case typ == types:
		return 0, "event_type", missing
	case !seen[typ]:
		return 0, typ.String(), missing
	case !parsed:
		p.i = at[typ]
		if field, bad = p.object(typ); bad != "" {
			return 0, field, bad
		}
	}
	return typ, "", ""
}

// object parses the object of the event's type.
func (p *Parser) object(typ Type) (field, bad string) {
	var names []string
	switch typ {
	case TypePerson:
		names = personNames[:]
	case TypeAuction:
		names = auctionNames[:]
	default:
		names = bidNames[:]
	}
	more, bad := p.open()
	if bad != "" {
		return typ.String(), bad
	}
	var seen uint
	for more {
		name, bad := p.key()
		if bad != "" {
			return typ.String(), bad
		}
		p.peek()
		var k int
		switch typ {
		case TypePerson:
			k, bad = p.personField(name)
		case TypeAuction:
			k, bad = p.auctionField(name)
		default:
			k, bad = p.bidField(name)
		}
		if k < 0 {
			bad = p.skip(0)
		} else if seen&(1<<k) != 0 {
			bad = repeated
		} else {
			seen |= 1 << k
		}
		if bad != "" {
			return typ.String() + "." + name, bad
		}
		if more, bad = p.next(); bad != "" {
			return typ.String() + "." + name, bad
		}
	}
	for k, name := range names {
		if seen&(1<<k) == 0 {
			return typ.String() + "." + name, missing
		}
	}
	return "", ""
}

// The members of each kind, in the order in which they are written. The functions below return a
// member's index in it, or −1 for an unknown member.
var (
	personNames  = [...]string{"id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"}
	auctionNames = [...]string{"id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra"}
	bidNames     = [...]string{"auction", "bidder", "price", "channel", "url", "dateTime", "extra"}
)

func (p *Parser) personField(name string) (int, string) {
	v := &p.person
	switch name {
	case "id":
		return 0, p.intTo(&v.ID)
	case "name":
		return 1, p.strTo(&v.Name)
	case "emailAddress":
		return 2, p.strTo(&v.Email)
	case "creditCard":
		return 3, p.strTo(&v.CreditCard)
	case "city":
		return 4, p.strTo(&v.City)
	case "state":
		return 5, p.strTo(&v.State)
	case "dateTime":
		return 6, p.timeTo(&v.Time)
	case "extra":
		return 7, p.strTo(&v.Extra)
	}
	return -1, ""
}

func (p *Parser) auctionField(name string) (int, string) {
	v := &p.auction
	switch name {
	case "id":
		return 0, p.intTo(&v.ID)
	case "itemName":
		return 1, p.strTo(&v.ItemName)
	case "description":
		return 2, p.strTo(&v.Description)
	case "initialBid":
		return 3, p.intTo(&v.InitialBid)
	case "reserve":
		return 4, p.intTo(&v.Reserve)
	case "dateTime":
		return 5, p.timeTo(&v.Time)
	case "expires":
		return 6, p.timeTo(&v.Expires)
	case "seller":
		return 7, p.intTo(&v.Seller)
	case "category":
		return 8, p.intTo(&v.Category)
	case "extra":
		return 9, p.strTo(&v.Extra)
	}
	return -1, ""
}

func (p *Parser) bidField(name string) (int, string) {
	v := &p.bid
	switch name {
	case "auction":
		return 0, p.intTo(&v.Auction)
	case "bidder":
		return 1, p.intTo(&v.Bidder)
	case "price":
		return 2, p.intTo(&v.Price)
	case "channel":
		return 3, p.strTo(&v.Channel)
	case "url":
		return 4, p.strTo(&v.URL)
	case "dateTime":
		return 5, p.timeTo(&v.Time)
	case "extra":
		return 6, p.strTo(&v.Extra)
	}
	return -1, ""
}

func (p *Parser) intTo(v *int64) (bad string) {
	*v, bad = p.integer()
	return bad
}

func (p *Parser) strTo(v *string) (bad string) {
	if p.peek() != '"' {
		return wantString
	}
	*v, bad = p.str()
	return bad
}

func (p *Parser) timeTo(v *int64) string {
	if c := p.peek(); c == '-' || '0' <= c && c <= '9' {
		ms, bad := p.integer()
		if bad != "" || ms < MinMillis || ms > MaxMillis {
			return wantTime
		}
		*v = ms
		return ""
	} else if c != '"' {
		return wantTime
	}
	s, bad := p.str()
	if bad != "" {
		return bad
	}
	ms, ok := ParseTime(s)
	if !ok {
		return wantTime
	}
	*v = ms
	return ""
}
