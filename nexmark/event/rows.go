package event

import (
	"math/big"
	"strconv"
	"unsafe"
)

// The rows of the eight answers. Prices and sums are cents, times and window
// bounds ms. Each row's AppendJSON writes it as one line, with its line end.

// Q1Row is a bid. Price is in cents as it was bid; AppendJSON writes it in euro.
type Q1Row struct {
	Auction, Bidder, Price, Time int64
	Extra                        string
}

// Q2Row is a bid on one of the chosen auctions.
type Q2Row struct{ Auction, Price, Bidder, Time int64 }

// Q3Row is an auction (ID) with its local seller.
type Q3Row struct {
	Name, City, State string
	ID                int64
}

// Q4Row is the mean Sum/Count of a category's winning prices.
type Q4Row struct{ Category, Sum, Count int64 }

// Q5Row is an auction with the most bids of a window.
type Q5Row struct{ Start, End, Auction, Num int64 }

// Q6Row is the mean Sum/Count of a seller's last winning prices.
type Q6Row struct{ Seller, Sum, Count int64 }

// Q7Row is a bid of a window's highest price.
type Q7Row struct {
	Start, End                   int64
	Auction, Bidder, Price, Time int64
	Extra                        string
}

// Q8Row is a person who opened an auction in the window of the registration.
type Q8Row struct {
	ID         int64
	Name       string
	Start, End int64
}

// AppendJSON appends the row as a line.
func (r *Q1Row) AppendJSON(dst []byte) []byte {
	dst = intField(dst, `{"auction":`, r.Auction)
	dst = intField(dst, `,"bidder":`, r.Bidder)
	dst = AppendEuro(append(dst, `,"price":`...), r.Price)
	dst = timeField(dst, `,"dateTime":`, r.Time)
	dst = strField(dst, `,"extra":`, r.Extra)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q2Row) AppendJSON(dst []byte) []byte {
	dst = intField(dst, `{"auction":`, r.Auction)
	dst = intField(dst, `,"price":`, r.Price)
	dst = intField(dst, `,"bidder":`, r.Bidder)
	dst = timeField(dst, `,"dateTime":`, r.Time)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q3Row) AppendJSON(dst []byte) []byte {
	dst = strField(dst, `{"name":`, r.Name)
	dst = strField(dst, `,"city":`, r.City)
	dst = strField(dst, `,"state":`, r.State)
	dst = intField(dst, `,"id":`, r.ID)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q4Row) AppendJSON(dst []byte) []byte {
	dst = intField(dst, `{"category":`, r.Category)
	dst = AppendMean(append(dst, `,"avg":`...), r.Sum, r.Count)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q5Row) AppendJSON(dst []byte) []byte {
	dst = window(append(dst, '{'), r.Start, r.End)
	dst = intField(dst, `,"auction":`, r.Auction)
	dst = intField(dst, `,"num":`, r.Num)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q6Row) AppendJSON(dst []byte) []byte {
	dst = intField(dst, `{"seller":`, r.Seller)
	dst = AppendMean(append(dst, `,"avg":`...), r.Sum, r.Count)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q7Row) AppendJSON(dst []byte) []byte {
	dst = window(append(dst, '{'), r.Start, r.End)
	dst = intField(dst, `,"auction":`, r.Auction)
	dst = intField(dst, `,"bidder":`, r.Bidder)
	dst = intField(dst, `,"price":`, r.Price)
	dst = timeField(dst, `,"dateTime":`, r.Time)
	dst = strField(dst, `,"extra":`, r.Extra)
	return append(dst, "}\n"...)
}

// AppendJSON appends the row as a line.
func (r *Q8Row) AppendJSON(dst []byte) []byte {
	dst = intField(dst, `{"id":`, r.ID)
	dst = strField(dst, `,"name":`, r.Name)
	dst = window(append(dst, ','), r.Start, r.End)
	return append(dst, "}\n"...)
}

func window(dst []byte, start, end int64) []byte {
	dst = timeField(dst, `"window_start":`, start)
	return timeField(dst, `,"window_end":`, end)
}

// AppendEuro appends 0.908 × cents, exact to its three decimals, for every int64: it multiplies the
// thousands separately, so nothing overflows.
func AppendEuro(dst []byte, cents int64) []byte {
	n := uint64(cents)
	if cents < 0 {
		dst = append(dst, '-')
		n = -n
	}
	rest := n % 1000 * 908
	dst = strconv.AppendUint(dst, n/1000*908+rest/1000, 10)
	frac := rest % 1000
	return append(dst, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
}

// AppendMean appends sum/count as the float64 nearest to the exact quotient, in the shortest
// notation that reads back as the same value, without exponent and always with a fraction
// ("380.0"). count must not be 0.
func AppendMean(dst []byte, sum, count int64) []byte {
	from := len(dst)
	dst = strconv.AppendFloat(dst, mean(sum, count), 'f', -1, 64)
	for _, c := range dst[from:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

func mean(sum, count int64) float64 {
	const exact = 1 << 53 // integers up to here are exact float64s, and the division rounds once
	if -exact <= sum && sum <= exact && -exact <= count && count <= exact {
		return float64(sum) / float64(count)
	}
	f, _ := new(big.Rat).SetFrac64(sum, count).Float64()
	return f
}

func appendInt(dst []byte, v int64) []byte { return strconv.AppendInt(dst, v, 10) }

func plainString(s string) int { return plain(unsafe.Slice(unsafe.StringData(s), len(s))) }
