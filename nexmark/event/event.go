package event

import "strings"

// Type is the kind of an event; its values are those of the JSON field event_type.
type Type byte

// The kinds of event.
const (
	TypePerson Type = iota
	TypeAuction
	TypeBid
	types // the number of kinds
)

// String returns "person", "auction" or "bid".
func (t Type) String() string {
	switch t {
	case TypePerson:
		return "person"
	case TypeAuction:
		return "auction"
	case TypeBid:
		return "bid"
	}
	return "unknown"
}

// Person is the registration of a buyer or seller. Time is in ms.
type Person struct {
	ID         int64
	Name       string
	Email      string
	CreditCard string
	City       string
	State      string
	Time       int64
	Extra      string
}

// Auction is the opening of an auction. Prices are cents, times ms; the auction
// takes bids from Time to Expires, both included.
type Auction struct {
	ID          int64
	ItemName    string
	Description string
	InitialBid  int64
	Reserve     int64
	Time        int64
	Expires     int64
	Seller      int64
	Category    int64
	Extra       string
}

// Bid is an offer for an auction. The price is in cents, Time in ms.
type Bid struct {
	Auction int64
	Bidder  int64
	Price   int64
	Channel string
	URL     string
	Time    int64
	Extra   string
}

// Clone returns a copy that shares no memory with p's source.
func (p Person) Clone() Person {
	p.Name, p.Email, p.CreditCard = strings.Clone(p.Name), strings.Clone(p.Email), strings.Clone(p.CreditCard)
	p.City, p.State, p.Extra = strings.Clone(p.City), strings.Clone(p.State), strings.Clone(p.Extra)
	return p
}

// Clone returns a copy that shares no memory with a's source.
func (a Auction) Clone() Auction {
	a.ItemName, a.Description, a.Extra = strings.Clone(a.ItemName), strings.Clone(a.Description), strings.Clone(a.Extra)
	return a
}

// Clone returns a copy that shares no memory with b's source.
func (b Bid) Clone() Bid {
	b.Channel, b.URL, b.Extra = strings.Clone(b.Channel), strings.Clone(b.URL), strings.Clone(b.Extra)
	return b
}
