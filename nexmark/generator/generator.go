package generator

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
)

// The proportions of the three kinds: a round of 50 events holds one person,
// three auctions and 46 bids, in this order.
const (
	Round    = persons + auctions + bids
	persons  = 1
	auctions = 3
	bids     = 46
)

const (
	firstID       = 1000 // of people and of auctions
	firstCategory = 10
	categories    = 5
	inFlight      = 100  // auctions that take bids at one time
	active        = 1000 // people that sell and bid at one time
	lead          = 10   // ids ahead of the newest that are referred to already
	hundred       = 100  // one hot auction, seller and bidder per so many ids

	personBytes  = 200
	auctionBytes = 500
	bidBytes     = 100
)

// DefaultBase is the default time of the first event: 2015-07-15 00:00:00 UTC.
const DefaultBase int64 = 1436918400000

// DefaultRate is the default number of events in a second of event time.
const DefaultRate int64 = 10_000

// Config selects the events. Nothing but its fields decides their bytes.
type Config struct {
	// Seed chooses the random part.
	Seed uint64
	// Events is the total number of events; 0 means no end.
	Events int64
	// Rate is the number of events in a second of event time; 0 is DefaultRate.
	Rate int64
	// Base is the time of event 0 in ms.
	Base int64
	// Disorder bounds how much later an event may come than a younger one; 0 sends events in the
	// order of their times.
	Disorder time.Duration
	// Surge is a time with another rate; none, if its For is 0.
	Surge Surge `json:",omitzero"`
}

// Surge is a time in which events come at another rate.
type Surge struct {
	// At is when it begins, from the base time on, and For how long it is, in whole ms.
	At, For time.Duration
	// Rate is the number of events in a second of event time.
	Rate int64
}

// Validate returns an error that names an invalid setting.
func (c Config) Validate() error {
	switch {
	case c.Events < 0:
		return fmt.Errorf("events: %d; at least 1, or 0 for no end", c.Events)
	case c.Rate < 0 || c.Rate > 1e9:
		return fmt.Errorf("event rate: %d a second; at least 1, at most 1 000 000 000", c.Rate)
	case c.Base < event.MinMillis || c.Base > event.MaxMillis:
		return fmt.Errorf("base time: %d ms lies outside the years 1 to 9999", c.Base)
	case c.Surge.At < 0 || c.Surge.For < 0 || c.Surge.For > 0 && (c.Surge.Rate < 1 || c.Surge.Rate > 1e9):
		return fmt.Errorf("surge: %v after the beginning, %v long, %d events a second; not before the beginning, and at least 1, at most 1 000 000 000 a second", c.Surge.At, c.Surge.For, c.Surge.Rate)
	case c.Disorder < 0 || c.Disorder > 24*time.Hour:
		return fmt.Errorf("disorder: %v; at least 0, at most 24h", c.Disorder)
	}
	return nil
}

// Generator makes the events of a Config. It is immutable and safe for concurrent use.
type Generator struct {
	cfg  Config
	seed uint64
	gap  float64 // ms between two events
	// With a surge: the numbers of its first event and of the first one behind it.
	surge, after int64
	group        int64  // events in a stretch that is shuffled; ≤ 1: no shuffling
	text         []byte // random letters with spaces, for names and descriptions
	fill         []byte // random letters, for addresses and padding
}

// poolBytes is the number of offsets at which a random text may begin. Texts are pieces of two
// pools: making them letter by letter would be most of the cost.
const (
	poolBytes = 1 << 15
	maxText   = 1 << 10
)

// New returns the generator of a valid Config.
func New(cfg Config) (*Generator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	g := &Generator{cfg: cfg, seed: Mix(cfg.Seed + golden)}
	g.gap = 1000 / float64(cfg.Rate)
	g.surge = cfg.Surge.At.Milliseconds() * cfg.Rate / 1000
	g.after = g.surge + cfg.Surge.For.Milliseconds()*cfg.Surge.Rate/1000
	g.group = int64(cfg.Disorder/time.Millisecond) * cfg.Rate / 1000
	r := random(Mix(g.seed ^ golden))
	g.text, g.fill = make([]byte, poolBytes+maxText), make([]byte, poolBytes+maxText)
	for i := range g.text {
		g.fill[i] = byte('a' + r.below(26))
		if g.text[i] = g.fill[i]; r.below(13) == 0 {
			g.text[i] = ' '
		}
	}
	return g, nil
}

// Config returns the generator's configuration, with defaults filled in.
func (g *Generator) Config() Config { return g.cfg }

// Due returns the scheduled time in ms of the k-th event sent; without disorder it is that event's
// own time.
func (g *Generator) Due(k int64) int64 { return g.at(k) }

// Append appends the k-th event sent (k from 0), in binary form. With disorder it is some event of
// k's stretch, not necessarily event k.
func (g *Generator) Append(dst []byte, k int64) []byte {
	if g.group > 1 {
		first := k - k%g.group
		size := g.group
		if n := g.cfg.Events - first; g.cfg.Events > 0 && n < size {
			size = n
		}
		k = first + int64(Permute(uint64(k-first), uint64(size), g.seed^Mix(uint64(first))))
	}
	r := random(Mix(g.seed + uint64(k)*golden))
	switch n := k % Round; {
	case n < persons:
		return g.person(dst, k, &r)
	case n < persons+auctions:
		return g.auction(dst, k, &r)
	}
	return g.bid(dst, k, &r)
}

// Arrival returns which event is sent j-th (from 0) by partition p of n: each
// takes every n-th round.
func Arrival(p, n int, j int64) int64 {
	return (j/Round*int64(n)+int64(p))*Round + j%Round
}

// Share returns how many of a total of events fall to partition p of n.
func Share(p, n int, events int64) int64 {
	rounds := events / Round
	share := rounds / int64(n) * Round
	switch turn := rounds % int64(n); {
	case int64(p) < turn:
		share += Round
	case int64(p) == turn:
		share += events % Round
	}
	return share
}

// at returns the time of event k. It estimates the quotient and corrects it: dividing by a variable
// took a tenth of the time of an event.
func (g *Generator) at(k int64) int64 {
	if k >= g.surge && g.after > g.surge {
		if k < g.after {
			return g.cfg.Base + g.cfg.Surge.At.Milliseconds() + (k-g.surge)*1000/g.cfg.Surge.Rate
		}
		k += g.surge - g.after + g.cfg.Surge.For.Milliseconds()*g.cfg.Rate/1000
	}
	ms := int64(float64(k) * g.gap)
	if rest := k*1000 - ms*g.cfg.Rate; uint64(rest) >= uint64(g.cfg.Rate) { // or it is negative
		ms += rest / g.cfg.Rate
		if rest < 0 && rest%g.cfg.Rate != 0 {
			ms--
		}
	}
	return g.cfg.Base + ms
}

// lastPerson and lastAuction return the newest of their kind as of event k, counted from 0; −1
// means none.
func lastPerson(k int64) int64 { return k / Round }

func lastAuction(k int64) int64 {
	n := k % Round
	return k/Round*auctions + min(n, auctions) - 1
}

// somePerson returns one of the last active people, or of the next few.
func (g *Generator) somePerson(k int64, r *random) int64 {
	n := lastPerson(k) + 1
	recent := min(n, active)
	return n - recent + r.below(recent+lead)
}

// someAuction returns one of the last auctions in flight, or of the next few.
func someAuction(k int64, x uint64) int64 {
	last := lastAuction(k)
	first := max(last-inFlight, 0)
	hi, _ := bits.Mul64(x, uint64(last-first+1+lead))
	return first + int64(hi)
}

func (g *Generator) person(dst []byte, k int64, r *random) []byte {
	from := len(dst)
	dst = append(dst, byte(event.TypePerson))
	dst = ints(dst, g.at(k), firstID+lastPerson(k))
	first, last := pick(firstNames, r), pick(lastNames, r)
	dst = append(dst, byte(len(first)+1+len(last)))
	dst = append(append(append(dst, first...), ' '), last...)
	user, host := g.piece(g.fill, r, 7), g.piece(g.fill, r, 5)
	dst = append(dst, byte(len(user)+1+len(host)+4))
	dst = append(append(append(append(dst, user...), '@'), host...), ".com"...)
	dst = append(dst, 4*4+3)
	for i := range 4 {
		if i > 0 {
			dst = append(dst, ' ')
		}
		n := r.below(10000)
		dst = append(dst, byte('0'+n/1000), byte('0'+n/100%10), byte('0'+n/10%10), byte('0'+n%10))
	}
	dst = str(dst, pick(cities, r))
	dst = str(dst, pick(states, r))
	return g.filling(dst, personBytes-(len(dst)-from), r)
}

func (g *Generator) auction(dst []byte, k int64, r *random) []byte {
	from := len(dst)
	seller := lastPerson(k) / hundred * hundred
	if r.below(4) == 0 {
		seller = g.somePerson(k, r)
	}
	now := g.at(k)
	horizon := g.at(k+inFlight*Round/auctions) - now
	initial := price(r.next())
	dst = append(dst, byte(event.TypeAuction))
	dst = ints(dst, now, firstID+lastAuction(k), firstID+seller, firstCategory+r.below(categories),
		initial, initial+price(r.next()), now+1+r.below(max(2*horizon, 1)))
	dst = blob(dst, g.piece(g.text, r, 20))
	dst = blob(dst, g.piece(g.text, r, 100))
	return g.filling(dst, auctionBytes-(len(dst)-from), r)
}

func (g *Generator) bid(dst []byte, k int64, r *random) []byte {
	from := len(dst)
	// One random number makes the four small choices, with a bit or two each.
	dice := r.next()
	// The processor cannot predict a coin toss, so there is no branch on it.
	auction := lastAuction(k) / hundred * hundred
	cold := dice&1 - 1 // all ones if it is
	auction ^= (auction ^ someAuction(k, Mix(uint64(*r)+golden))) & int64(cold)
	*r += random(golden & cold)
	bidder := lastPerson(k)/hundred*hundred + 1
	if dice>>1&3 == 0 {
		bidder = g.somePerson(k, r)
	}
	// Most events are bids: write a bid in place, by stores of a known size.
	dst = slices.Grow(dst, bidMost)
	b := dst[from : from+bidMost]
	b[0] = byte(event.TypeBid)
	binary.LittleEndian.PutUint64(b[1:], uint64(g.at(k)))
	binary.LittleEndian.PutUint64(b[9:], uint64(firstID+auction))
	binary.LittleEndian.PutUint64(b[17:], uint64(firstID+bidder))
	binary.LittleEndian.PutUint64(b[25:], uint64(price(r.next())))
	n := bidFixed
	if dice>>3&1 == 0 {
		n += copy(b[n:], hotChannels[dice>>4&3])
	} else {
		digits, d := decimal(uint32(r.below(coldChannels)))
		b[n] = byte(len(coldName) + d)
		*(*[len(coldName)]byte)(b[n+1:]) = [len(coldName)]byte([]byte(coldName))
		n += 1 + len(coldName)
		binary.LittleEndian.PutUint32(b[n:], digits)
		n += d
		b[n] = byte(len(coldURL) + d)
		*(*[len(coldURL)]byte)(b[n+1:]) = [len(coldURL)]byte([]byte(coldURL))
		n += 1 + len(coldURL)
		binary.LittleEndian.PutUint32(b[n:], digits)
		n += d
	}
	return g.filling(dst[:from+n], bidBytes-n, r)
}

const (
	bidFixed = 1 + 4*8
	// bidMost bounds the size of a bid up to its padding, including what the fixed-size stores
	// write beyond its end.
	bidMost = bidFixed + 1 + len(coldName) + 1 + len(coldURL) + 2*4
)

// decimal returns the decimal digits of a number below 10 000, the first in the lowest byte, and
// their number.
func decimal(v uint32) (digits uint32, n int) {
	digits = '0' + v/1000 | ('0'+v/100%10)<<8 | ('0'+v/10%10)<<16 | ('0'+v%10)<<24
	switch {
	case v >= 1000:
		return digits, 4
	case v >= 100:
		return digits >> 8, 3
	case v >= 10:
		return digits >> 16, 2
	}
	return digits >> 24, 1
}

// piece returns a random text of 3 to limit−1 letters.
func (g *Generator) piece(pool []byte, r *random, limit int64) []byte {
	n := 3 + r.below(limit-3)
	at := r.below(poolBytes)
	return pool[at : at+n]
}

// filling appends the last string of an event: as long as the remaining room, give or take a fifth.
func (g *Generator) filling(dst []byte, room int, r *random) []byte {
	const prefix = 1 // the length of the string itself; it takes two bytes for long strings, one in 500
	n := int64(max(room-prefix, 0))
	x := r.next()
	if d := n / 5; d > 0 {
		n += int64(x>>32*uint64(2*d+1)>>32) - d
	}
	at := x & (poolBytes - 1)
	return blob(dst, g.fill[at:at+uint64(n)])
}

func pick(list []string, r *random) string { return list[r.below(int64(len(list)))] }

func ints(dst []byte, vs ...int64) []byte {
	for _, v := range vs {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

func blob(dst, b []byte) []byte { return append(binary.AppendUvarint(dst, uint64(len(b))), b...) }

func str(dst []byte, s string) []byte { return append(binary.AppendUvarint(dst, uint64(len(s))), s...) }

// price returns round(10^(6u) · 100) for u = x / 2^64: the ten high bits choose a step of the
// table, and the rest interpolates linearly to the next step, which is off by 2 parts in 100 000 at
// most.
func price(x uint64) int64 {
	i := x >> 54
	lo, hi := prices[i], prices[i+1]
	f := x << 10 >> 48 // the next 16 bits
	return int64((lo + (hi-lo)*f>>16 + 1<<(priceShift-1)) >> priceShift)
}

// below returns a number in [0, n).
func (r *random) below(n int64) int64 {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int64(hi)
}
