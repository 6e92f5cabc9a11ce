package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Figure is panels side by side under one title, with one legend.
type Figure struct {
	// Title says what is measured, in which unit; Sub says under which conditions.
	Title, Sub string
	// X and Y are what the axes of all panels show.
	X, Y   string
	Panels []Panel
	// Legend lists the series, in order; Panels refer to them by index.
	Legend []Series
}

// Series says how one protocol or system is drawn in all panels.
type Series struct {
	Name string
	// Style chooses colour and shape, 0 to 7; Peer is for another system's figures:
	// dashed, grey.
	Style int
}

// Peer is the style of another system.
const Peer = 7

// Panel is one chart. Either the points have values on the X axis, or Categories name groups of
// bars and X is the group's index.
type Panel struct {
	Title      string
	Categories []string
	Lines      []Line
	// Rule, if not 0, draws a horizontal line at this value, for comparison.
	Rule float64
	// Time says that X is a time from 0, of which each line has many points: it has no marks, is
	// interrupted where Y is NaN, and shows zeros. A line that did not keep up is dotted.
	Time bool
	// Mark, if not 0, draws a vertical line at this time.
	Mark float64
}

// Line holds the points of one series, in the order in which the line joins them.
type Line struct {
	Series int
	Points []Point
}

// Point is the median of some trials, with their least and greatest value.
type Point struct {
	X, Y, Lo, Hi float64
	// Hollow: a trial did not keep up. Void: its answer is wrong.
	Hollow, Void bool
	// Tip is the tooltip in browsers.
	Tip string
}

// The palette of Okabe and Ito, without its yellow, which is faint on paper.
var colours = [...]string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#767676"}

const (
	voidColour = "#B00020"
	panelW     = 280
	panelH     = 216
	left       = 50 // within a panel, to its y axis
	right      = 10
	top        = 26
	bottom     = 40
	head       = 62 // within the figure, to its panels, with one extra line
	lineH      = 15
)

// Holds reports whether the figure has any points.
func (f *Figure) Holds() bool {
	for i := range f.Panels {
		for _, l := range f.Panels[i].Lines {
			if f.Panels[i].Time && slices.ContainsFunc(l.Points, func(p Point) bool { return p.Y == 0 }) {
				return true
			}
			if slices.ContainsFunc(l.Points, func(p Point) bool { return drawable(p.Y) }) {
				return true
			}
		}
	}
	return false
}

// svg collects a picture.
type svg struct{ strings.Builder }

func (w *svg) put(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *svg) text(x, y float64, attrs, text string) {
	w.put(`<text x="%s" y="%s" %s>%s</text>`, px(x), px(y), attrs, html.EscapeString(text))
}

func px(v float64) string {
	return strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf("%.1f", v), "0"), ".")
}

// SVG draws the figure.
func (f *Figure) SVG() string {
	columns := min(len(f.Panels), 4)
	if len(f.Panels) == 5 || len(f.Panels) == 6 {
		columns = 3
	}
	columns = max(columns, 1)
	rows := (len(f.Panels) + columns - 1) / columns
	width := max(columns, 3)*panelW + 16
	sub := wrap(f.Sub, (width-24)/6)
	items := f.legend()
	place(items, width)
	head := head + lineH*len(sub) + lineH*items[len(items)-1].row
	height := rows*panelH + head + 14
	w := &svg{}
	w.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" font-family="system-ui, 'DejaVu Sans', Arial, sans-serif" font-size="11" fill="#222">`,
		px(float64(width)), px(float64(height)), px(float64(width)), px(float64(height)))
	w.put("<title>%s</title>", html.EscapeString(f.Title))
	w.put(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	w.text(12, 21, `font-size="15" font-weight="600"`, f.Title)
	for i, line := range sub {
		w.text(12, float64(38+i*lineH), `fill="#555"`, line)
	}
	for _, it := range items {
		y := float64(45 + lineH*len(sub) + lineH*it.row)
		it.draw(w, it.x+9, y)
		w.text(it.x+23, y+4, `font-size="12"`, it.name)
	}
	for i := range f.Panels {
		x, y := float64(8+i%columns*panelW), float64(head+i/columns*panelH)
		w.put(`<g transform="translate(%s %s)">`, px(x), px(y))
		f.panel(w, &f.Panels[i], i%columns == 0)
		w.put("</g>")
	}
	w.put("</svg>")
	return w.String()
}

// item is an item of the legend.
type item struct {
	name string
	draw func(w *svg, x, y float64)
	x    float64
	row  int
}

// legend lists the series, and the marks that occur.
func (f *Figure) legend() (items []item) {
	hollow, void, time := false, false, false
	for i := range f.Panels {
		time = time || f.Panels[i].Time
		for _, l := range f.Panels[i].Lines {
			for _, p := range l.Points {
				hollow, void = hollow || p.Hollow && !p.Void, void || p.Void
			}
		}
	}
	for _, s := range f.Legend {
		items = append(items, item{name: s.Name, draw: func(w *svg, x, y float64) {
			w.put(`<path d="M%s %sh18" stroke="%s" stroke-width="1.6"%s/>`, px(x-9), px(y), colours[s.Style], dash(s.Style))
			if !time {
				shape(w, x, y, s.Style, false, "")
			}
		}})
	}
	if hollow && !time { // the note of a figure over time says it
		items = append(items, item{name: "hollow: did not keep up", draw: func(w *svg, x, y float64) { shape(w, x, y, Peer, true, "") }})
	}
	if void {
		items = append(items, item{name: "void: wrong answer", draw: func(w *svg, x, y float64) { cross(w, x, y) }})
	}
	return items
}

// place arranges the items side by side, in as many rows as they need.
func place(items []item, width int) {
	x, row := 12.0, 0
	for i := range items {
		wide := 40 + 6.6*float64(len([]rune(items[i].name)))
		if x+wide > float64(width) {
			x, row = 12, row+1
		}
		items[i].x, items[i].row = x, row
		x += wide
	}
}

func dash(style int) string {
	if style == Peer {
		return ` stroke-dasharray="5 3"`
	}
	return ""
}

func (f *Figure) panel(w *svg, p *Panel, first bool) {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			xs = append(xs, pt.X)
			ys = append(ys, pt.Y, pt.Lo, pt.Hi)
		}
	}
	if p.Rule != 0 {
		ys = append(ys, p.Rule)
	}
	y := newY(ys, panelH-bottom, top, spread)
	x := newX(xs, left, panelW-right)
	if p.Time {
		x = newTime(xs, left, panelW-right)
	}
	if p.Categories != nil {
		y = newY(ys, panelH-bottom, top, spreadBars)
		x = scale{from: left, to: panelW - right, min: -0.5, max: float64(len(p.Categories)) - 0.5}
	}
	w.text(left, 16, `font-size="12" font-weight="600"`, p.Title)
	if y.log {
		w.text(panelW-right, 16, `text-anchor="end" fill="#777"`, "log axis")
	}
	for _, t := range y.ticks {
		at := y.at(t)
		w.put(`<path d="M%d %sH%d" stroke="#e3e3e3"/>`, left, px(at), panelW-right)
		w.text(left-5, at+3.5, `text-anchor="end"`, Number(t))
	}
	for _, t := range x.ticks {
		at := x.at(t)
		w.put(`<path d="M%s %dv4" stroke="#888"/>`, px(at), panelH-bottom)
		w.text(at, panelH-bottom+15, `text-anchor="middle"`, Number(t))
	}
	for i, c := range p.Categories {
		w.text(x.at(float64(i)), panelH-bottom+15, `text-anchor="middle"`, c)
	}
	w.put(`<path d="M%d %dV%dH%d" fill="none" stroke="#888"/>`, left, top, panelH-bottom, panelW-right)
	w.text((left+panelW-right)/2.0, panelH-bottom+30, `text-anchor="middle" fill="#555"`, f.X)
	if first {
		mid := (top + panelH - bottom) / 2.0
		w.text(9, mid, fmt.Sprintf(`text-anchor="middle" fill="#555" transform="rotate(-90 9 %s)"`, px(mid)), f.Y)
	}
	if p.Rule != 0 {
		w.put(`<path d="M%d %sH%d" stroke="#222" stroke-dasharray="2 2"/>`, left, px(y.at(p.Rule)), panelW-right)
	}
	if p.Mark != 0 {
		w.put(`<path d="M%s %dV%d" stroke="#222" stroke-dasharray="2 2"/>`, px(x.at(p.Mark)), top, panelH-bottom)
	}
	seen := func(l Line) bool { return slices.ContainsFunc(l.Points, func(p Point) bool { return p.Y >= 0 }) }
	if p.Time && slices.ContainsFunc(p.Lines, seen) {
		for _, l := range slices.Backward(p.Lines) {
			f.course(w, l, x, y)
		}
		return
	}
	if !slices.ContainsFunc(ys, drawable) || len(xs) == 0 {
		w.text((left+panelW-right)/2.0, (top+panelH-bottom)/2.0, `text-anchor="middle" fill="#777"`, "no samples")
		return
	}
	if p.Categories != nil {
		f.bars(w, p, x, y)
		return
	}
	// Draw the first series of the legend last, so that it is on top. Points at the same place are
	// shifted sideways, so that equal lines are visible.
	for n := range slices.Backward(p.Lines) {
		beside := x
		by := 2.6 * (float64(n) - float64(len(p.Lines)-1)/2)
		beside.from, beside.to = x.from+by, x.to+by
		f.line(w, p.Lines[n], beside, y)
	}
}

// wrap breaks a text into lines of about width characters.
func wrap(text string, width int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+1+len(word) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

func (f *Figure) line(w *svg, l Line, x, y scale) {
	style := f.Legend[l.Series].Style
	var path strings.Builder
	for _, p := range l.Points {
		if p.Void || !drawable(p.Y) {
			continue
		}
		to := "L"
		if path.Len() == 0 {
			to = "M"
		}
		path.WriteString(to + px(x.at(p.X)) + " " + px(y.at(p.Y)))
	}
	if path.Len() > 0 {
		w.put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.6"%s/>`, path.String(), colours[style], dash(style))
	}
	for _, p := range l.Points {
		if !drawable(p.Y) {
			continue
		}
		at := x.at(p.X)
		whisker(w, at, p, y, colours[style])
		if p.Void {
			cross(w, at, y.at(p.Y))
			continue
		}
		shape(w, at, y.at(p.Y), style, p.Hollow, f.Legend[l.Series].Name+": "+p.Tip)
	}
}

// course draws a line of a panel over time.
func (f *Figure) course(w *svg, l Line, x, y scale) {
	style := f.Legend[l.Series].Style
	var path strings.Builder
	to, dots := "M", dash(style)
	for _, p := range l.Points {
		if math.IsNaN(p.Y) || p.Void {
			to = "M"
			continue
		}
		if p.Hollow {
			dots = ` stroke-dasharray="1.5 2.5"`
		}
		at := x.at(p.X)
		if to == "M" {
			at-- // so that a point alone is a dash
		}
		path.WriteString(to + px(at) + " " + px(y.at(max(p.Y, y.min))))
		if to == "M" {
			path.WriteString("h2")
		}
		to = "L"
	}
	if path.Len() > 0 {
		w.put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.4" stroke-linejoin="round"%s><title>%s</title></path>`,
			path.String(), colours[style], dots, html.EscapeString(f.Legend[l.Series].Name))
	}
	if n := len(l.Points); n > 0 && l.Points[n/2].Void {
		cross(w, x.at(l.Points[n/2].X), (y.from+y.to)/2)
	}
}

func drawable(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

func (f *Figure) bars(w *svg, p *Panel, x, y scale) {
	slot := (x.to - x.from) / float64(len(p.Categories)) * 0.82
	each := min(slot/float64(max(1, len(p.Lines))), 26)
	for n, l := range p.Lines {
		style := f.Legend[l.Series].Style
		for _, pt := range l.Points {
			if !drawable(pt.Y) {
				continue
			}
			mid := x.at(pt.X) + (float64(n)-float64(len(p.Lines)-1)/2)*each
			at := y.at(pt.Y)
			fill := colours[style]
			if pt.Hollow || pt.Void {
				fill = "#fff"
			}
			w.put(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s" stroke="%s"%s><title>%s</title></rect>`,
				px(mid-each/2+0.7), px(at), px(each-1.4), px(max(0.5, y.from-at)), fill, colours[style], dash(style), html.EscapeString(f.Legend[l.Series].Name+": "+pt.Tip))
			whisker(w, mid, pt, y, "#444")
			if pt.Void {
				cross(w, mid, (at+y.from)/2)
			}
		}
	}
}

func whisker(w *svg, x float64, p Point, y scale, colour string) {
	if !drawable(p.Lo) || !(p.Hi > p.Lo) {
		return
	}
	lo, hi := y.at(p.Lo), y.at(p.Hi)
	w.put(`<path d="M%s %sV%sM%s %sh5M%s %sh5" stroke="%s" fill="none"/>`, px(x), px(lo), px(hi), px(x-2.5), px(lo), px(x-2.5), px(hi), colour)
}

func cross(w *svg, x, y float64) {
	w.put(`<path d="M%s %sl8 8m0 -8l-8 8" stroke="%s" stroke-width="2.2" fill="none"/>`, px(x-4), px(y-4), voidColour)
}

// shape draws a mark of some 8 pixels.
func shape(w *svg, x, y float64, style int, hollow bool, tip string) {
	fill, title := colours[style], ""
	if hollow {
		fill = "#fff"
	}
	if tip != "" {
		title = "<title>" + html.EscapeString(tip) + "</title>"
	}
	attrs := fmt.Sprintf(`fill="%s" stroke="%s" stroke-width="1.4"`, fill, colours[style])
	d := ""
	switch style {
	case 0:
		w.put(`<circle cx="%s" cy="%s" r="3.7" %s>%s</circle>`, px(x), px(y), attrs, title)
		return
	case 1:
		d = fmt.Sprintf("M%s %sh7v7h-7z", px(x-3.5), px(y-3.5))
	case 2:
		d = fmt.Sprintf("M%s %sl4.4 7.6h-8.8z", px(x), px(y-4.6))
	case 3:
		d = fmt.Sprintf("M%s %sl4.8 4.8l-4.8 4.8l-4.8 -4.8z", px(x), px(y-4.8))
	case 4:
		d = fmt.Sprintf("M%s %sl4.4 -7.6h-8.8z", px(x), px(y+4.6))
	case 5:
		d = fmt.Sprintf("M%s %sh4v-4h-4v-4h-4v4h-4v4h4v4h4z", px(x+2), px(y+2))
	case 6:
		d = fmt.Sprintf("M%s %sh10v4h-10z", px(x-5), px(y-2))
	default:
		w.put(`<circle cx="%s" cy="%s" r="2.8" %s>%s</circle>`, px(x), px(y), attrs, title)
		return
	}
	w.put(`<path d="%s" %s>%s</path>`, d, attrs, title)
}
