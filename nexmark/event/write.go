package event

import (
	"fmt"
	"unicode/utf8"
)

// AppendJSON appends an event as one JSON line, with its line end. The line always has all three
// objects; two of them are null.
func AppendJSON(dst []byte, r Raw) ([]byte, error) {
	switch r.Type() {
	case TypePerson:
		p, err := DecodePerson(r)
		if err != nil {
			return dst, err
		}
		return appendPersonJSON(dst, &p), nil
	case TypeAuction:
		a, err := DecodeAuction(r)
		if err != nil {
			return dst, err
		}
		return appendAuctionJSON(dst, &a), nil
	case TypeBid:
		b, err := DecodeBid(r)
		if err != nil {
			return dst, err
		}
		return appendBidJSON(dst, &b), nil
	}
	return dst, fmt.Errorf("%w: type %d", ErrMalformed, r.Type())
}

func appendPersonJSON(dst []byte, p *Person) []byte {
	dst = intField(append(dst, `{"event_type":0,"person":{`...), `"id":`, p.ID)
	dst = strField(dst, `,"name":`, p.Name)
	dst = strField(dst, `,"emailAddress":`, p.Email)
	dst = strField(dst, `,"creditCard":`, p.CreditCard)
	dst = strField(dst, `,"city":`, p.City)
	dst = strField(dst, `,"state":`, p.State)
	dst = timeField(dst, `,"dateTime":`, p.Time)
	dst = strField(dst, `,"extra":`, p.Extra)
	return append(dst, `},"auction":null,"bid":null}`+"\n"...)
}

func appendAuctionJSON(dst []byte, a *Auction) []byte {
	dst = intField(append(dst, `{"event_type":1,"person":null,"auction":{`...), `"id":`, a.ID)
	dst = strField(dst, `,"itemName":`, a.ItemName)
	dst = strField(dst, `,"description":`, a.Description)
	dst = intField(dst, `,"initialBid":`, a.InitialBid)
	dst = intField(dst, `,"reserve":`, a.Reserve)
	dst = timeField(dst, `,"dateTime":`, a.Time)
	dst = timeField(dst, `,"expires":`, a.Expires)
	dst = intField(dst, `,"seller":`, a.Seller)
	dst = intField(dst, `,"category":`, a.Category)
	dst = strField(dst, `,"extra":`, a.Extra)
	return append(dst, `},"bid":null}`+"\n"...)
}

func appendBidJSON(dst []byte, b *Bid) []byte {
	dst = intField(append(dst, `{"event_type":2,"person":null,"auction":null,"bid":{`...), `"auction":`, b.Auction)
	dst = intField(dst, `,"bidder":`, b.Bidder)
	dst = intField(dst, `,"price":`, b.Price)
	dst = strField(dst, `,"channel":`, b.Channel)
	dst = strField(dst, `,"url":`, b.URL)
	dst = timeField(dst, `,"dateTime":`, b.Time)
	dst = strField(dst, `,"extra":`, b.Extra)
	return append(dst, "}}\n"...)
}

func intField(dst []byte, name string, v int64) []byte {
	return appendInt(append(dst, name...), v)
}

func strField(dst []byte, name, v string) []byte {
	return AppendString(append(dst, name...), v)
}

func timeField(dst []byte, name string, ms int64) []byte {
	dst = append(append(dst, name...), '"')
	return append(AppendTime(dst, ms), '"')
}

// AppendString appends s as a JSON string. It escapes only what must be escaped; bytes that are not
// UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // the conversion replaces each bad byte
	}
	for {
		n := plainString(s)
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return append(dst, '"')
		}
		switch c := s[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[n+1:]
	}
}
