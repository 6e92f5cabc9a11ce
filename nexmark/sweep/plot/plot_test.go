package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/internal/script"
)

// figure uses every feature once.
func figure() *Figure {
	return &Figure{
		Title: "p50 & p99", Sub: strings.Repeat("said at length ", 14), X: "events/s", Y: "ms",
		Legend: []Series{{"fused", 0}, {"marker", 1}, {"txn", 2}, {"aligned", 3}, {"unsafe", 4}, {"sixth", 5}, {"seventh", 6}, {"Kafka Streams", Peer}},
		Panels: []Panel{
			{Title: "linear", Rule: 10, Lines: []Line{
				{0, []Point{{X: 1000, Y: 10, Lo: 8, Hi: 13, Tip: "10 ms"}, {X: 2000, Y: 12}, {X: 4000, Y: 30, Hollow: true}}},
				{1, []Point{{X: 1000, Y: 20, Void: true}, {X: 2000, Y: 20, Void: true}}},
				{7, []Point{{X: 1500, Y: 25}, {X: 3000, Y: 35, Hollow: true}}},
			}},
			{Title: "logarithmic", Lines: []Line{{2, []Point{{X: 1, Y: 1}, {X: 1000, Y: 3000}}}, {3, []Point{{X: 1, Y: 2}}}, {5, []Point{{X: 1000, Y: 2}}}, {6, []Point{{X: 1000, Y: 20}}}}},
			{Title: "bars", Categories: []string{"10ms", "100ms"}, Lines: []Line{
				{0, []Point{{X: 0, Y: 5, Lo: 4, Hi: 6}, {X: 1, Y: 50}}}, {4, []Point{{X: 0, Y: 4, Hollow: true}, {X: 1, Y: 40, Void: true}}},
			}},
			{Title: "nothing", Lines: []Line{{0, nil}}},
			{Title: "no samples", Lines: []Line{{0, []Point{{X: 10, Y: 0}}}}},
		},
	}
}

// The same figure gives the same bytes, and they are well-formed.
func TestFigure(t *testing.T) {
	svg := figure().SVG()
	script.Golden(t, "testdata/figure.svg", svg)
	wellFormed(t, svg)
}

// A figure over time shows a standstill at zero and interrupts a line where nothing was measured.
func TestTime(t *testing.T) {
	nan := math.NaN()
	points := func(ys ...float64) (pts []Point) {
		for i, y := range ys {
			pts = append(pts, Point{X: float64(i+1) / 10, Y: y})
		}
		return pts
	}
	late, void := points(5, 5, 6), points(5, 5, 5)
	for i := range late {
		late[i].Hollow, void[i].Void = true, true
	}
	f := &Figure{
		Title: "events & latency over time", Sub: "a standstill", X: "s", Y: "ms", Legend: []Series{{"fused", 0}, {"marker", 1}, {"txn", 2}},
		Panels: []Panel{
			{Title: "linear", Time: true, Mark: 0.3, Lines: []Line{{0, points(10, 11, 0, 0, 30, 10)}, {1, late}, {2, void}}},
			{Title: "logarithmic, gaps", Time: true, Lines: []Line{{0, points(10, nan, 1000, nan, nan, 10, 12)}}},
			{Title: "zeros", Time: true, Lines: []Line{{0, points(0, 0)}}},
			{Title: "nothing", Time: true, Mark: 1, Lines: []Line{{0, points(nan, nan)}, {1, nil}}},
		},
	}
	require.True(t, f.Holds())
	require.True(t, (&Figure{Panels: f.Panels[2:3]}).Holds(), "a standstill is something to see")
	require.False(t, (&Figure{Panels: f.Panels[3:]}).Holds())
	svg := f.SVG()
	script.Golden(t, "testdata/time.svg", svg)
	wellFormed(t, svg)
	require.NotContains(t, svg, "NaN")
}

func wellFormed(t require.TestingT, svg string) {
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// Whatever the values are, an axis contains them, its ticks are on it and distinct, and no
// coordinate is NaN.
func TestAxes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0.001, 1e8), 1, 8).Draw(t, "values")
		y := newY(values, 200, 20, spread)
		x := newX(values, 50, 270)
		for _, v := range values {
			require.True(t, y.at(v) <= 200.5 && y.at(v) >= 19.5, "%v at %v of %+v", v, y.at(v), y)
			require.True(t, x.at(v) >= 49.5 && x.at(v) <= 270.5, "%v at %v of %+v", v, x.at(v), x)
		}
		require.GreaterOrEqual(t, len(y.ticks), 2)
		require.LessOrEqual(t, len(y.ticks), 13)
		require.GreaterOrEqual(t, len(x.ticks), 1)
		names := map[string]bool{}
		for _, tick := range y.ticks {
			require.True(t, y.at(tick) <= 200.5 && y.at(tick) >= 19.5)
			require.False(t, names[Number(tick)], "%v is there twice: %v", Number(tick), y.ticks)
			names[Number(tick)] = true
		}
		f := figure()
		f.Panels[0].Lines[0].Points = nil
		for i, v := range values {
			f.Panels[0].Lines[0].Points = append(f.Panels[0].Lines[0].Points, Point{X: float64(i + 1), Y: v, Lo: v / 2, Hi: v * 2})
		}
		svg := f.SVG()
		wellFormed(t, svg)
		require.NotContains(t, svg, "NaN")
		require.NotContains(t, svg, "Inf")
	})
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.05: "0.05", 0.5: "0.5", 1: "1", 12.34: "12.3", 500: "500", 1000: "1k", 1500: "1.5k", 1234: "1234", 20_000: "20k", 2_500_000: "2.5M", -3: "-3",
	} {
		require.Equal(t, want, Number(v))
	}
	require.Equal(t, 1.0, stepFor(1))
	require.Equal(t, 20.0, stepFor(10.5))
	require.InDelta(t, 0.05, stepFor(0.03), 1e-9)
	require.False(t, math.IsNaN(below(0.001)))
}
