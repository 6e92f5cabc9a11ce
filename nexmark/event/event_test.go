package event

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawPerson(t *rapid.T) Person {
	s, i := rapid.String(), rapid.Int64()
	return Person{i.Draw(t, "id"), s.Draw(t, "name"), s.Draw(t, "email"), s.Draw(t, "card"), s.Draw(t, "city"), s.Draw(t, "state"), drawTime(t), s.Draw(t, "extra")}
}

func drawAuction(t *rapid.T) Auction {
	s, i := rapid.String(), rapid.Int64()
	return Auction{
		i.Draw(t, "id"), s.Draw(t, "item"), s.Draw(t, "description"), i.Draw(t, "initial"), i.Draw(t, "reserve"),
		drawTime(t), drawTime(t), i.Draw(t, "seller"), i.Draw(t, "category"), s.Draw(t, "extra"),
	}
}

func drawBid(t *rapid.T) Bid {
	s, i := rapid.String(), rapid.Int64()
	return Bid{i.Draw(t, "auction"), i.Draw(t, "bidder"), i.Draw(t, "price"), s.Draw(t, "channel"), s.Draw(t, "url"), drawTime(t), s.Draw(t, "extra")}
}

func drawTime(t *rapid.T) int64 { return rapid.Int64Range(MinMillis, MaxMillis).Draw(t, "time") }

// Both the binary form and the JSON form survive a round trip.
func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, a, b := drawPerson(t), drawAuction(t), drawBid(t)
		raws := []Raw{AppendPerson(nil, &p), AppendAuction(nil, &a), AppendBid(nil, &b)}
		var parser Parser
		for _, r := range raws {
			line, err := AppendJSON(nil, r)
			require.NoError(t, err)
			again, err := parser.Append(nil, line)
			require.NoError(t, err)
			require.Equal(t, r, Raw(again))
		}
		p2, err := DecodePerson(raws[0])
		require.NoError(t, err)
		require.Equal(t, p, p2.Clone())
		a2, err := DecodeAuction(raws[1])
		require.NoError(t, err)
		require.Equal(t, a, a2.Clone())
		b2, err := DecodeBid(raws[2])
		require.NoError(t, err)
		require.Equal(t, b, b2.Clone())
		require.Equal(t, []int64{p.Time, a.Time, b.Time}, []int64{raws[0].Time(), raws[1].Time(), raws[2].Time()})
	})
}

// The decoders refuse every proper prefix of an event, and an event with a byte too many.
func TestCutEventsAreRefused(t *testing.T) {
	b := Bid{1, 2, 3, "channel", strings.Repeat("u", 200), 5, "extra"}
	raw := Raw(AppendBid(nil, &b))
	for n := range raw {
		_, err := DecodeBid(raw[:n])
		require.ErrorIs(t, err, ErrMalformed)
		_, err = Len(raw[:n])
		require.ErrorIs(t, err, ErrMalformed)
	}
	_, err := DecodeBid(append(raw, 0))
	require.ErrorIs(t, err, ErrMalformed)
	_, err = DecodePerson(raw)
	require.ErrorIs(t, err, ErrMalformed)
	_, err = DecodeAuction(raw)
	require.ErrorIs(t, err, ErrMalformed)
}

func FuzzDecode(f *testing.F) {
	var p Parser
	for _, l := range []string{personLine, auctionLine, bidLine} {
		raw, err := p.Append(nil, []byte(l))
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Len(b)
		line, jsonErr := AppendJSON(nil, b)
		require.Equal(t, err == nil && n == len(b), jsonErr == nil)
		if jsonErr == nil {
			require.True(t, json.Valid(line), "%q", line)
		}
	})
}

// Package time is the oracle.
func TestTimes(t *testing.T) {
	const layout = "2006-01-02 15:04:05.000"
	check := func(t require.TestingT, ms int64) {
		text := string(AppendTime(nil, ms))
		require.Equal(t, time.UnixMilli(ms).UTC().Format(layout), text)
		back, ok := ParseTime(text)
		require.True(t, ok, text)
		require.Equal(t, ms, back)
	}
	for _, ms := range []int64{MinMillis, MaxMillis, -1, 0, 1, 951782400000, 1709164800000, 1436918400000} {
		check(t, ms)
	}
	for day := MinMillis; day < MaxMillis; day += 13 * msPerDay {
		check(t, day)
	}
	rapid.Check(t, func(t *rapid.T) {
		ms := drawTime(t)
		check(t, ms)
		at := time.UnixMilli(ms)
		zone := time.FixedZone("", rapid.IntRange(-14*60, 14*60).Draw(t, "zone")*60)
		if y := at.In(zone).Year(); y < 1 || y > 9999 {
			return
		}
		back, ok := ParseTime(at.In(zone).Format(time.RFC3339Nano))
		require.True(t, ok)
		require.Equal(t, ms, back)
	})
	for _, bad := range []string{
		"", "2015-07-15", "2015-13-01 00:00:00", "2015-00-01 00:00:00", "2015-01-00 00:00:00", "2015-04-31 00:00:00", "1900-02-29 00:00:00",
		"2015-07-15 24:00:00", "2015-07-15 00:60:00", "2015-07-15 00:00:60", "2015-07-15 00:00:00.", "2015-07-15 00:00:00.0000000000", "2015-07-15 00:00:00+2",
		"2015-07-15 00:00:00+25:00", "2015-07-15_00:00:00", "0000-01-01 00:00:00", "0001-01-01 00:00:00+01:00", "2015-07-15 00:00:00.000x", "201a-07-15 00:00:00",
	} {
		_, ok := ParseTime(bad)
		require.False(t, ok, bad)
	}
}

func TestRows(t *testing.T) {
	at, _ := ParseTime("2015-07-15 00:00:00.080")
	start, end := at-at%10000, at-at%10000+10000
	for want, got := range map[string][]byte{
		`{"auction":1000,"bidder":1001,"price":29537240.908,"dateTime":"2015-07-15 00:00:00.080","extra":"a\"b"}`: (&Q1Row{1000, 1001, 32530001, at, `a"b`}).AppendJSON(nil),
		`{"auction":1107,"price":4257,"bidder":1001,"dateTime":"2015-07-15 00:00:00.080"}`:                        (&Q2Row{1107, 4257, 1001, at}).AppendJSON(nil),
		`{"name":"Ann A","city":"Boise","state":"ID","id":1123}`:                                                  (&Q3Row{"Ann A", "Boise", "ID", 1123}).AppendJSON(nil),
		`{"category":10,"avg":189.2}`: (&Q4Row{10, 946, 5}).AppendJSON(nil),
		`{"window_start":"2015-07-15 00:00:00.000","window_end":"2015-07-15 00:00:10.000","auction":1000,"num":184}`: (&Q5Row{start, end, 1000, 184}).AppendJSON(nil),
		`{"seller":1000,"avg":380.0}`: (&Q6Row{1000, 760, 2}).AppendJSON(nil),
		`{"window_start":"2015-07-15 00:00:00.000","window_end":"2015-07-15 00:00:10.000","auction":1000,"bidder":1007,"price":95902720,"dateTime":"2015-07-15 00:00:00.080","extra":"x"}`: (&Q7Row{start, end, 1000, 1007, 95902720, at, "x"}).AppendJSON(nil),
		`{"id":1000,"name":"Ann A","window_start":"2015-07-15 00:00:00.000","window_end":"2015-07-15 00:00:10.000"}`:                                                                       (&Q8Row{1000, "Ann A", start, end}).AppendJSON(nil),
	} {
		require.Equal(t, want+"\n", string(got))
	}
}

func TestEuroIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "cents")
		want := new(big.Rat).Mul(big.NewRat(908, 1000), new(big.Rat).SetInt64(v)).FloatString(3)
		require.Equal(t, want, string(AppendEuro(nil, v)))
	})
	require.Equal(t, "-8374821809464136433.664", string(AppendEuro(nil, math.MinInt64)))
}

func TestMeanIsTheNearestFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum, count := rapid.Int64().Draw(t, "sum"), rapid.Int64Range(1, math.MaxInt64).Draw(t, "count")
		want, _ := big.NewRat(sum, count).Float64()
		text := string(AppendMean(nil, sum, count))
		got, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Contains(t, text, ".")
		require.True(t, json.Valid([]byte(text)))
	})
	require.Equal(t, "9000000000000000000.0", string(AppendMean(nil, 9e18, 1)))
	require.Equal(t, "0.3333333333333333", string(AppendMean(nil, 1, 3)))
}

func TestStringsAreWrittenAsValidUTF8(t *testing.T) {
	require.Equal(t, `"a\"\\\n\u0001`+"\u2028é\ufffd\ufffd<\"", string(AppendString(nil, "a\"\\\n\x01\u2028é\xff\xfe<")))
}

func BenchmarkDecodeBid(b *testing.B) {
	bid := Bid{1000, 1001, 32530001, "Baidu", "https://www.nexmark.com/abcd", 1436918400080, strings.Repeat("x", 20)}
	raw := AppendBid(nil, &bid)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBid(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendBid(b *testing.B) {
	bid := Bid{1000, 1001, 32530001, "Baidu", "https://www.nexmark.com/abcd", 1436918400080, strings.Repeat("x", 20)}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		AppendBid(buf, &bid)
	}
}

func BenchmarkAppendQ1(b *testing.B) {
	r := Q1Row{1000, 1001, 32530001, 1436918400080, strings.Repeat("x", 20)}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		r.AppendJSON(buf)
	}
}
