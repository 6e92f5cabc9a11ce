package query

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
)

// world draws events that exercise the corner cases of the queries: few keys, few prices (ties),
// gaps in time, auctions of all durations, bids before and after their auction, out of order by up
// to disorder ms.
func world(seed uint64, n, parts int, disorder int64) (parted [][]optest.Timed[event.Raw], in *oracle.Input) {
	rng := rand.New(rand.NewPCG(seed, 7))
	pick := func(vs ...string) string { return vs[rng.IntN(len(vs))] }
	parted = make([][]optest.Timed[event.Raw], parts)
	in = &oracle.Input{}
	now := int64(1_436_918_400_000)
	persons, auctions := int64(1000), int64(1000)
	for i := range n {
		now += rng.Int64N(60)
		if rng.IntN(200) == 0 {
			now += 25_000 // a silent gap
		}
		at := now
		if disorder > 0 {
			at -= rng.Int64N(disorder)
		}
		var raw event.Raw
		switch k := rng.IntN(10); {
		case k == 0:
			raw = event.AppendPerson(nil, &event.Person{
				ID: persons, Name: fmt.Sprint("p ", persons), City: pick("Boise", "Bend"),
				State: pick("OR", "ID", "CA", "WA", "AZ"), Time: at, Extra: "x",
			})
			persons++
		case k < 4:
			seller := max(1000, persons-rng.Int64N(6)+1)
			if rng.IntN(2) == 0 { // with more than ten sales
				seller = 1000 + rng.Int64N(3)
			}
			raw = event.AppendAuction(nil, &event.Auction{
				ID: auctions, Seller: seller, Category: 10 + rng.Int64N(3),
				InitialBid: 1, Reserve: 1 << 40, Time: at, Expires: at + rng.Int64N(3000),
			})
			auctions++
		default:
			raw = event.AppendBid(nil, &event.Bid{
				Auction: auctions + 1 - rng.Int64N(8)*rng.Int64N(4), Bidder: 1000 + rng.Int64N(5),
				Price: 100 * rng.Int64N(12), Time: at, Extra: fmt.Sprint("é\"", i%3),
			})
		}
		p := rng.IntN(parts)
		parted[p] = append(parted[p], optest.At(at, raw))
		if err := in.Add(raw); err != nil {
			panic(err) // a bug of this test
		}
	}
	return parted, in
}

// rows reads an answer in the form in which it is compared: as a multiset, or the last row of each
// key.
func rows(t *testing.T, query int, file string) []string {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	all := strings.SplitAfter(string(b), "\n")
	all = all[:len(all)-1]
	if query == 4 || query == 6 {
		last := map[string]string{}
		for _, row := range all {
			key, _, _ := strings.Cut(row, ",")
			last[key] = row
		}
		all = all[:0]
		for _, row := range last {
			all = append(all, row)
		}
	}
	slices.Sort(all)
	return all
}

func check(t *testing.T, p Params, delay int64, parted [][]optest.Timed[event.Raw], in *oracle.Input, o optest.Options) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rows")
	plan, err := Build(p, optest.Items(delay, parted...), Output{File: file})
	require.NoError(t, err)
	report, err := optest.Run(plan, o)
	require.NoError(t, err)
	want, err := oracle.Answer(p.Number, in, oracle.Options{Q2List: p.Q2List, Q7Window: p.Q7Window.Milliseconds()})
	require.NoError(t, err)
	require.NotEmpty(t, want, "the world is too small for query %d", p.Number)
	got := rows(t, p.Number, file)
	if !slices.Equal(want, got) {
		t.Fatalf("query %d: %d rows, %d expected; late %d\nfirst of mine not expected: %q\nfirst missing: %q",
			p.Number, len(got), len(want), report.Late, firstNotIn(got, want), firstNotIn(want, got))
	}
}

func firstNotIn(a, b []string) string {
	for _, x := range a {
		if _, ok := slices.BinarySearch(b, x); !ok {
			return x
		}
	}
	return "(repetitions only)"
}

func TestAnswers(t *testing.T) {
	for q := 1; q <= 8; q++ {
		t.Run(fmt.Sprintf("q%d", q), func(t *testing.T) {
			for seed := range uint64(24) {
				rng := rand.New(rand.NewPCG(seed, 5))
				disorder := []int64{0, 3000}[seed%2]
				parted, in := world(seed, 1500, []int{1, 4}[rng.IntN(2)], disorder)
				o := optest.Options{
					Parallelism: []int{1, 2, 4}[rng.IntN(3)], Groups: []int{8, 64}[rng.IntN(2)], Seed: seed,
				}
				if seed%3 != 0 {
					o.CrashEvery = 40
				}
				p := Params{Number: q, Q2List: seed%4 == 0, Logged: seed%2 == 0}
				check(t, p, disorder+1000, parted, in, o)
			}
		})
	}
}

// Eager emission ends with the same last row of each key and window.
func TestEagerEndsAlike(t *testing.T) {
	for _, q := range []int{4, 6} {
		for seed := range uint64(8) {
			parted, in := world(seed, 1500, 2, 3000)
			check(t, Params{Number: q, Emission: operators.Eager}, 4000, parted, in, optest.Options{Parallelism: 2, Groups: 8, Seed: seed, CrashEvery: 50})
		}
	}
}

func TestUnknownQuery(t *testing.T) {
	_, err := Build(Params{Number: 10}, source.NewFiles([]string{"x"}, 0, false), Output{})
	require.ErrorContains(t, err, "there is no query 10")
	for q := 1; q <= 8; q++ {
		require.ErrorContains(t, err, Title(q))
	}
}
