package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"tailrace.dev/tailrace/nexmark/event"
)

// Input is all events of a run.
type Input struct {
	Persons  []event.Person
	Auctions []event.Auction
	Bids     []event.Bid
}

// Add decodes one event into the input. It does not retain r.
func (in *Input) Add(r event.Raw) error {
	switch r.Type() {
	case event.TypePerson:
		p, err := event.DecodePerson(r)
		in.Persons = append(in.Persons, p.Clone())
		return err
	case event.TypeAuction:
		a, err := event.DecodeAuction(r)
		in.Auctions = append(in.Auctions, a.Clone())
		return err
	}
	b, err := event.DecodeBid(r)
	in.Bids = append(in.Bids, b.Clone())
	return err
}

// Options are the settings of queries that change answers.
type Options struct {
	// Q2List makes Q2 select the original five auctions.
	Q2List bool
	// Q7Window is the size of Q7's windows in ms; 0 is 10 000.
	Q7Window int64
}

// Answer returns the rows of query 1 … 8 as JSON lines with their line ends, sorted as strings: the
// answer as a multiset.
func Answer(query int, in *Input, o Options) ([]string, error) {
	var rows []string
	switch query {
	case 1:
		rows = q1(in)
	case 2:
		rows = q2(in, o.Q2List)
	case 3:
		rows = q3(in)
	case 4:
		rows = q4(in)
	case 5:
		rows = q5(in)
	case 6:
		rows = q6(in)
	case 7:
		size := o.Q7Window
		if size == 0 {
			size = 10_000
		}
		rows = q7(in, size)
	case 8:
		rows = q8(in)
	default:
		return nil, fmt.Errorf("query %d: there are 1 to 8", query)
	}
	sort.Strings(rows)
	return rows, nil
}

func line(row interface{ AppendJSON([]byte) []byte }) string { return string(row.AppendJSON(nil)) }

func q1(in *Input) (rows []string) {
	for _, b := range in.Bids {
		rows = append(rows, line(&event.Q1Row{Auction: b.Auction, Bidder: b.Bidder, Price: b.Price, Time: b.Time, Extra: b.Extra}))
	}
	return rows
}

func q2(in *Input, list bool) (rows []string) {
	for _, b := range in.Bids {
		chosen := b.Auction%123 == 0
		if list {
			chosen = slices.Contains([]int64{1007, 1020, 2001, 2019, 2087}, b.Auction)
		}
		if chosen {
			rows = append(rows, line(&event.Q2Row{Auction: b.Auction, Price: b.Price, Bidder: b.Bidder, Time: b.Time}))
		}
	}
	return rows
}

func q3(in *Input) (rows []string) {
	for _, a := range in.Auctions {
		for _, p := range in.Persons {
			if a.Category == 10 && a.Seller == p.ID && (p.State == "OR" || p.State == "ID" || p.State == "CA") {
				rows = append(rows, line(&event.Q3Row{Name: p.Name, City: p.City, State: p.State, ID: a.ID}))
			}
		}
	}
	return rows
}

// sale is a closed auction with its winning price.
type sale struct {
	event.Auction
	price int64
}

func sales(in *Input) (out []sale) {
	byAuction := map[int64][]event.Bid{}
	for _, b := range in.Bids {
		byAuction[b.Auction] = append(byAuction[b.Auction], b)
	}
	for _, a := range in.Auctions {
		won, price := false, int64(0)
		for _, b := range byAuction[a.ID] {
			if a.Time <= b.Time && b.Time <= a.Expires && (!won || b.Price > price) {
				won, price = true, b.Price
			}
		}
		if won {
			out = append(out, sale{a, price})
		}
	}
	return out
}

func q4(in *Input) (rows []string) {
	sum, count := map[int64]int64{}, map[int64]int64{}
	for _, s := range sales(in) {
		sum[s.Category] += s.price
		count[s.Category]++
	}
	for c := range sum {
		rows = append(rows, line(&event.Q4Row{Category: c, Sum: sum[c], Count: count[c]}))
	}
	return rows
}

func q6(in *Input) (rows []string) {
	bySeller := map[int64][]sale{}
	for _, s := range sales(in) {
		bySeller[s.Seller] = append(bySeller[s.Seller], s)
	}
	for seller, list := range bySeller {
		slices.SortFunc(list, func(a, b sale) int {
			return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.ID, b.ID))
		})
		list = list[max(0, len(list)-10):]
		sum := int64(0)
		for _, s := range list {
			sum += s.price
		}
		rows = append(rows, line(&event.Q6Row{Seller: seller, Sum: sum, Count: int64(len(list))}))
	}
	return rows
}

// floor returns the start of the window of this size that holds t, for times
// before 1970 too.
func floor(t, size int64) int64 {
	start := t / size * size
	if start > t {
		start -= size
	}
	return start
}

func q5(in *Input) (rows []string) {
	const size, slide = 10_000, 2_000
	counts := map[int64]map[int64]int64{} // window start → auction → bids
	for _, b := range in.Bids {
		for start := floor(b.Time, slide); start+size > b.Time; start -= slide {
			if counts[start] == nil {
				counts[start] = map[int64]int64{}
			}
			counts[start][b.Auction]++
		}
	}
	for start, auctions := range counts {
		most := int64(0)
		for _, n := range auctions {
			most = max(most, n)
		}
		for a, n := range auctions {
			if n == most {
				rows = append(rows, line(&event.Q5Row{Start: start, End: start + size, Auction: a, Num: n}))
			}
		}
	}
	return rows
}

func q7(in *Input, size int64) (rows []string) {
	highest := map[int64]int64{}
	for _, b := range in.Bids {
		start := floor(b.Time, size)
		if h, ok := highest[start]; !ok || b.Price > h {
			highest[start] = b.Price
		}
	}
	for _, b := range in.Bids {
		if start := floor(b.Time, size); b.Price == highest[start] {
			rows = append(rows, line(&event.Q7Row{Start: start, End: start + size, Auction: b.Auction, Bidder: b.Bidder, Price: b.Price, Time: b.Time, Extra: b.Extra}))
		}
	}
	return rows
}

func q8(in *Input) (rows []string) {
	const size = 10_000
	type key struct{ seller, start int64 }
	opened := map[key]bool{}
	for _, a := range in.Auctions {
		opened[key{a.Seller, floor(a.Time, size)}] = true
	}
	for _, p := range in.Persons {
		if start := floor(p.Time, size); opened[key{p.ID, start}] {
			rows = append(rows, line(&event.Q8Row{ID: p.ID, Name: p.Name, Start: start, End: start + size}))
		}
	}
	return rows
}
