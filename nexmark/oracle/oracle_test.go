package oracle

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/event"
)

// A small input worked out by hand: both ends of an auction, ties, an auction without a bid, one
// without a seller, a bid at the very end of a window.
func TestByHand(t *testing.T) {
	in := &Input{
		Persons: []event.Person{{ID: 1, Name: "Ann", City: "Boise", State: "ID", Time: 5_000}, {ID: 2, Name: "Bob", State: "WA", Time: 15_000}},
		Auctions: []event.Auction{
			{ID: 123, Seller: 1, Category: 10, Time: 5_000, Expires: 9_000},
			{ID: 200, Seller: 1, Category: 10, Time: 6_000, Expires: 20_000},
			{ID: 201, Seller: 2, Category: 11, Time: 20_000, Expires: 21_000},
			{ID: 202, Seller: 9, Category: 10, Time: 20_000, Expires: 30_000},
		},
		Bids: []event.Bid{
			{Auction: 123, Bidder: 7, Price: 999, Time: 4_999}, // before it opens
			{Auction: 123, Bidder: 7, Price: 10, Time: 5_000},  // its first ms
			{Auction: 123, Bidder: 8, Price: 21, Time: 9_000},  // its last
			{Auction: 123, Bidder: 8, Price: 998, Time: 9_001}, // too late
			{Auction: 200, Bidder: 7, Price: 30, Time: 10_000}, // the next window's first
			{Auction: 200, Bidder: 8, Price: 30, Time: 10_001},
		},
	}
	want := map[int][]string{
		2: {
			`{"auction":123,"price":10,"bidder":7,"dateTime":"1970-01-01 00:00:05.000"}`,
			`{"auction":123,"price":21,"bidder":8,"dateTime":"1970-01-01 00:00:09.000"}`,
			`{"auction":123,"price":998,"bidder":8,"dateTime":"1970-01-01 00:00:09.001"}`,
			`{"auction":123,"price":999,"bidder":7,"dateTime":"1970-01-01 00:00:04.999"}`,
		},
		3: {`{"name":"Ann","city":"Boise","state":"ID","id":123}`, `{"name":"Ann","city":"Boise","state":"ID","id":200}`},
		4: {`{"category":10,"avg":25.5}`},
		6: {`{"seller":1,"avg":25.5}`},
		7: {
			`{"window_start":"1970-01-01 00:00:00.000","window_end":"1970-01-01 00:00:10.000","auction":123,"bidder":7,"price":999,"dateTime":"1970-01-01 00:00:04.999","extra":""}`,
			`{"window_start":"1970-01-01 00:00:10.000","window_end":"1970-01-01 00:00:20.000","auction":200,"bidder":7,"price":30,"dateTime":"1970-01-01 00:00:10.000","extra":""}`,
			`{"window_start":"1970-01-01 00:00:10.000","window_end":"1970-01-01 00:00:20.000","auction":200,"bidder":8,"price":30,"dateTime":"1970-01-01 00:00:10.001","extra":""}`,
		},
		8: {`{"id":1,"name":"Ann","window_start":"1970-01-01 00:00:00.000","window_end":"1970-01-01 00:00:10.000"}`},
	}
	for q, rows := range want {
		got, err := Answer(q, in, Options{})
		require.NoError(t, err)
		for i := range rows {
			rows[i] += "\n"
		}
		require.Equal(t, rows, got, "query %d", q)
	}
	five, err := Answer(5, in, Options{})
	require.NoError(t, err)
	var rows []string
	for _, r := range []event.Q5Row{
		{Start: -4, Auction: 123, Num: 2},
		{Start: -2, Auction: 123, Num: 2},
		{Start: 0, Auction: 123, Num: 4},
		{Start: 2, Auction: 123, Num: 4},
		{Start: 4, Auction: 123, Num: 4},
		{Start: 6, Auction: 123, Num: 2},
		{Start: 6, Auction: 200, Num: 2},
		{Start: 8, Auction: 123, Num: 2},
		{Start: 8, Auction: 200, Num: 2},
		{Start: 10, Auction: 200, Num: 2},
	} {
		r.Start, r.End = r.Start*1000, r.Start*1000+10_000
		rows = append(rows, line(&r))
	}
	require.Equal(t, rows, five)
}

func TestLastTenByExpiryThenID(t *testing.T) {
	in := &Input{}
	for id := int64(1); id <= 12; id++ {
		in.Auctions = append(in.Auctions, event.Auction{ID: id, Seller: 5, Expires: 100 - id/2})
		in.Bids = append(in.Bids, event.Bid{Auction: id, Price: id * 100})
	}
	// Latest expiry first: 1, then 3 2, 5 4, 7 6, 9 8, then of 11 and 10 the greater id.
	got, err := Answer(6, in, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"{\"seller\":5,\"avg\":560.0}\n"}, got)
}
