package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	personLine  = `{"event_type":0,"person":{"id":1000,"name":"Ann A","emailAddress":"a@b.com","creditCard":"1 2","city":"Boise","state":"ID","dateTime":"2015-07-15 00:00:00.000","extra":"x"},"auction":null,"bid":null}`
	auctionLine = `{"event_type":1,"person":null,"auction":{"id":1000,"itemName":"i","description":"d","initialBid":28873,"reserve":29448,"dateTime":"2015-07-15 00:00:00.010","expires":"2015-07-15 00:00:10.000","seller":1000,"category":13,"extra":""},"bid":null}`
	bidLine     = `{"event_type":2,"person":null,"auction":null,"bid":{"auction":1000,"bidder":1001,"price":32530001,"channel":"Baidu","url":"https://x.y/z","dateTime":"2015-07-15 00:00:00.080","extra":"e"}}`
)

func TestLinesComeBackByteForByte(t *testing.T) {
	var p Parser
	for _, line := range []string{personLine, auctionLine, bidLine} {
		raw, err := p.Append(nil, []byte(line))
		require.NoError(t, err)
		n, err := Len(append(raw[:len(raw):len(raw)], 2, 2, 2))
		require.NoError(t, err)
		require.Equal(t, len(raw), n)
		out, err := AppendJSON(nil, raw)
		require.NoError(t, err)
		require.Equal(t, line+"\n", string(out))
	}
}

func TestMembersInAnyOrderAndUnknownOnes(t *testing.T) {
	const line = ` { "bid" : {"extra":"e","new":[1,{"a":[]},-2.5e+3,true,false,null,"q\"\u00e4"],"dateTime":1436918400080 , "url":"https://x.y/z",
		"channel":"Bai\u0064u","price":32530001,"bidder":1001,"\u0061uction":1000}, "z":{}, "auction":{"any":1}, "event_type":2 } ` + "\r\n"
	var p Parser
	want, err := p.Append(nil, []byte(bidLine))
	require.NoError(t, err)
	got, err := p.Append([]byte("before"), []byte(line))
	require.NoError(t, err)
	require.Equal(t, "before"+string(want), string(got))
}

func TestMalformedLinesNameTheField(t *testing.T) {
	sub := func(old, new string) string {
		require.Contains(t, bidLine, old)
		return strings.Replace(bidLine, old, new, 1)
	}
	for _, c := range []struct{ line, field, reason string }{
		{``, "", wantObject},
		{`[]`, "", wantObject},
		{`{}`, "event_type", missing},
		{`{"event_type":3}`, "event_type", wantType},
		{`{"event_type":"2"}`, "event_type", wantInt},
		{`{"event_type":2}`, "bid", missing},
		{`{"event_type":2,"bid":null}`, "bid", wantObject},
		{`{"event_type":2,"event_type":2}`, "event_type", repeated},
		{`{"bid":{},"bid":{}}`, "bid", repeated},
		{bidLine + "x", "", badTail},
		{bidLine[:len(bidLine)-1], "", badObject},
		{bidLine[:len(bidLine)-3], "bid.extra", badString},
		{sub(`"price":32530001,`, ``), "bid.price", missing},
		{sub(`"price":32530001`, `"price":"32530001"`), "bid.price", wantInt},
		{sub(`"price":32530001`, `"price":1.5`), "bid.price", wantInt},
		{sub(`"price":32530001`, `"price":1e3`), "bid.price", wantInt},
		{sub(`"price":32530001`, `"price":01`), "bid.price", badNumber},
		{sub(`"price":32530001`, `"price":-`), "bid.price", badNumber},
		{sub(`"price":32530001`, `"price":null`), "bid.price", wantInt},
		{sub(`"price":32530001`, `"price":9223372036854775808`), "bid.price", wantInt64},
		{sub(`"price":32530001`, `"price":-9223372036854775809`), "bid.price", wantInt64},
		{sub(`"price":32530001`, `"price":36893488147419103233`), "bid.price", wantInt64},
		{sub(`"price":32530001`, `"price":1,"price":2`), "bid.price", repeated},
		{sub(`"Baidu"`, `7`), "bid.channel", wantString},
		{sub(`"Baidu"`, `null`), "bid.channel", wantString},
		{sub(`"Baidu"`, `"\x"`), "bid.channel", badEscape},
		{sub(`"Baidu"`, `"\u12g4"`), "bid.channel", badEscape},
		{sub(`"Baidu"`, "\"a\tb\""), "bid.channel", badControl},
		{sub(`"Baidu"`, "\"\xff\""), "", badUTF8},
		{sub(`2015-07-15 00`, `2015-02-29 00`), "bid.dateTime", wantTime},
		{sub(`"2015-07-15 00:00:00.080"`, `true`), "bid.dateTime", wantTime},
		{sub(`"2015-07-15 00:00:00.080"`, `1e12`), "bid.dateTime", wantTime},
		{sub(`"2015-07-15 00:00:00.080"`, `9223372036854775807`), "bid.dateTime", wantTime},
		{sub(`"extra"`, `"new":tru,"extra"`), "bid.new", badValue},
		{sub(`"extra"`, `"new":[1,],"extra"`), "bid.new", badValue},
		{sub(`"extra"`, `"new":[1 2],"extra"`), "bid.new", badArray},
		{sub(`"extra"`, `"new":`+strings.Repeat("[", 600)+`,"extra"`), "bid.new", badDepth},
	} {
		var p Parser
		got, err := p.Append([]byte("before"), []byte(c.line))
		var le *LineError
		require.ErrorAs(t, err, &le, c.line)
		require.Equal(t, LineError{Field: c.field, Reason: c.reason}, *le, c.line)
		require.Equal(t, "before", string(got))
	}
	require.Equal(t, "a.jsonl:17: bid.price: is missing", (&LineError{File: "a.jsonl", Line: 17, Field: "bid.price", Reason: missing}).Error())
}

func TestExtremeIntegers(t *testing.T) {
	var p Parser
	for _, v := range []int64{math.MinInt64, -1, 0, 1, 1e18, math.MaxInt64} {
		raw, err := p.Append(nil, []byte(strings.Replace(bidLine, "32530001", strconv.FormatInt(v, 10), 1)))
		require.NoError(t, err)
		_, _, price, ok := BidKey(raw)
		require.True(t, ok)
		require.Equal(t, v, price)
	}
}

func TestParsingAllocatesNothing(t *testing.T) {
	var p Parser
	buf := make([]byte, 0, 4096)
	lines := [][]byte{[]byte(personLine), []byte(auctionLine), []byte(bidLine), []byte(strings.Replace(bidLine, "Baidu", `B\u00e4`, 1))}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, l := range lines {
			if _, err := p.Append(buf, l); err != nil {
				t.Fatal(err)
			}
		}
	}))
}

// oracle is the parser written with encoding/json and package time. It returns
// the canonical line.
func oracle(line []byte) (string, error) {
	if !utf8.Valid(line) {
		return "", errors.New("not UTF-8")
	}
	top, err := members(line)
	if err != nil {
		return "", err
	}
	var typ int64
	if err := json.Unmarshal(top["event_type"], &typ); err != nil || string(top["event_type"]) == "null" || typ < 0 || typ > 2 {
		return "", fmt.Errorf("event_type: %w", err)
	}
	name := Type(typ).String()
	obj, err := members(top[name])
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"event_type":%d`, typ)
	for t, names := range [][]string{personNames[:], auctionNames[:], bidNames[:]} {
		if t != int(typ) {
			fmt.Fprintf(&out, `,"%s":null`, Type(t))
			continue
		}
		sep := "{"
		fmt.Fprintf(&out, `,"%s":`, name)
		for _, n := range names {
			raw := obj[n]
			if len(raw) == 0 || string(raw) == "null" {
				return "", errors.New(n + " is missing")
			}
			fmt.Fprintf(&out, `%s"%s":`, sep, n)
			sep = ","
			switch {
			case n == "dateTime" || n == "expires":
				s, err := oracleTime(raw)
				if err != nil {
					return "", err
				}
				fmt.Fprintf(&out, `"%s"`, s)
			case raw[0] == '"':
				var s string
				if err := json.Unmarshal(raw, &s); err != nil || isInt(n) {
					return "", errors.New(n)
				}
				e := json.NewEncoder(&out)
				e.SetEscapeHTML(false)
				if err := e.Encode(s); err != nil {
					return "", err
				}
				out.Truncate(out.Len() - 1)
			default:
				var v int64
				if err := json.Unmarshal(raw, &v); err != nil || !isInt(n) {
					return "", errors.New(n)
				}
				fmt.Fprintf(&out, "%d", v)
			}
		}
		out.WriteString("}")
	}
	out.WriteString("}\n")
	return out.String(), nil
}

func isInt(name string) bool {
	switch name {
	case "id", "initialBid", "reserve", "seller", "category", "auction", "bidder", "price":
		return true
	}
	return false
}

var timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\d[ Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?$`)

func oracleTime(raw json.RawMessage) (string, error) {
	const layout = "2006-01-02 15:04:05.000"
	var at time.Time
	var ms int64
	var s string
	switch {
	case json.Unmarshal(raw, &ms) == nil:
		at = time.UnixMilli(ms).UTC()
	case json.Unmarshal(raw, &s) == nil && timeForm.MatchString(s): // package time also takes "1:00:00" and "0,5"
		err := errors.New("no layout")
		for _, l := range []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02t15:04:05", time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02t15:04:05Z07:00"} {
			if err != nil {
				at, err = time.Parse(l, strings.Replace(s, "z", "Z", 1))
			}
		}
		if err != nil {
			return "", err
		}
		at = at.UTC()
	default:
		return "", errors.New("neither number nor string")
	}
	if at.Year() < 1 || at.Year() > 9999 {
		return "", errors.New("year")
	}
	return at.Truncate(time.Millisecond).Format(layout), nil
}

// members splits an object and refuses what the parser refuses: repeated names that matter.
func members(b []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	m := map[string]json.RawMessage{}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("no object")
	}
	known := map[string]bool{"event_type": true, "person": true, "auction": true, "bid": true}
	for _, names := range [][]string{personNames[:], auctionNames[:], bidNames[:]} {
		for _, n := range names {
			known[n] = true
		}
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		if _, dup := m[name.(string)]; dup && known[name.(string)] {
			return nil, errAmbiguous
		}
		m[name.(string)] = v
	}
	if !json.Valid(b) {
		return nil, errors.New("not valid")
	}
	return m, nil
}

// errAmbiguous marks lines on which the two need not agree: the oracle refuses a repeated name even
// in an object that the parser skips.
var errAmbiguous = errors.New("a name stands twice")

func FuzzParse(f *testing.F) {
	for _, l := range []string{personLine, auctionLine, bidLine} {
		f.Add([]byte(l))
		f.Add([]byte(strings.Replace(l, "2015-07-15 00:00:00.000", "2015-07-15T02:00:00.123456+02:00", 1)))
	}
	f.Add([]byte(strings.Replace(bidLine, "Baidu", `\ud83d\ude00\ud800\n\u0000"`, 1)))
	f.Add([]byte(strings.Replace(bidLine, `"2015-07-15 00:00:00.080"`, "-62135596800000", 1)))
	f.Add([]byte(`{"bid":{"auction":1},"event_type":2,"x":[{}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) > 2*maxDepth || bytes.Count(line, []byte(",\"")) > 100 {
			return // perhaps deeper than the parser descends
		}
		want, wantErr := oracle(line)
		if errors.Is(wantErr, errAmbiguous) {
			return
		}
		var p Parser
		raw, err := p.Append(nil, line)
		if wantErr != nil {
			require.Error(t, err, "%q: the oracle says %v", line, wantErr)
			return
		}
		require.NoError(t, err, "%q", line)
		got, err := AppendJSON(nil, raw)
		require.NoError(t, err)
		// The two escape differently; compare the decoded values.
		var a, b any
		require.NoError(t, json.Unmarshal(got, &a))
		require.NoError(t, json.Unmarshal([]byte(want), &b))
		require.Equal(t, b, a, "%q", line)
	})
}

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct{ name, line string }{{"person", personLine}, {"auction", auctionLine}, {"bid", bidLine}} {
		b.Run(c.name, func(b *testing.B) {
			var p Parser
			line, buf := []byte(c.line), make([]byte, 0, 4096)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Append(buf, line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
