package servers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

func (p *Plan) sort() {
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.AtMs, b.AtMs) })
}

// String describes a fault in one line.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", f.Kind, f.Who)
	if f.Whom != "" {
		fmt.Fprintf(&b, " → %s", f.Whom)
	}
	if f.N != 0 {
		fmt.Fprintf(&b, " (%d)", f.N)
	}
	if f.ForMs > 0 {
		fmt.Fprintf(&b, " for %d ms", f.ForMs)
	}
	return b.String()
}

// String describes a task in one line.
func (t Task) String() string {
	return fmt.Sprintf("%s on c%d: from %d ms on %d operations every %d ms, tags %v, key %d, flight %d, size %d, anew after %d, credit %d, slow %d ms, life %d ms",
		t.Kind, t.Client, t.StartMs, t.Ops, t.GapMs, t.Tags, t.Key, t.Flight, t.Size, t.Anew, t.Credit, t.SlowMs, t.LifeMs)
}

// story is the log of a run, by virtual time, with the messages of the processes.
type story struct {
	began time.Time
	level slog.Level // for the processes' messages

	mu     sync.Mutex
	lines  []string
	counts map[string]int // of messages, without their details
	digest uint64
}

// most is the largest number of lines that are kept.
const most = 2_000_000

func newStory(level slog.Level) *story {
	return &story{began: time.Now(), level: level, counts: map[string]int{}}
}

func (s *story) line(who, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := fmt.Sprintf("%9.3f %-4s %s", time.Since(s.began).Seconds(), who, text)
	for i := range len(l) { // FNV-1a
		s.digest = (s.digest ^ uint64(l[i])) * 1099511628211
	}
	if len(s.lines) >= most {
		s.lines = slices.Delete(s.lines, 0, most/4)
	}
	s.lines = append(s.lines, l)
}

func (s *story) printf(who, format string, args ...any) { s.line(who, fmt.Sprintf(format, args...)) }

// count counts an event that a run should exercise.
func (s *story) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// text returns the last lines of the story.
func (s *story) text(lines int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines[max(0, len(s.lines)-lines):], "\n")
}

// logger returns a logger that writes to the story.
func (s *story) logger(who string) *slog.Logger {
	return slog.New(&handler{s: s, who: who})
}

type handler struct {
	s     *story
	who   string
	attrs []slog.Attr
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.s.level }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	if strings.ContainsAny(r.Message, "0123456789[") {
		if h.s.level >= slog.LevelInfo {
			return nil // raft logs a lot
		}
	} else {
		h.s.count(r.Message)
	}
	var b strings.Builder
	if r.Level >= slog.LevelWarn {
		b.WriteString(r.Level.String() + " ")
	}
	b.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.s.line(h.who, b.String())
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(slices.Clone(h.attrs), attrs...)
	return &c
}

func (h *handler) WithGroup(string) slog.Handler { return h }

// Tell formats a run for people: its plan, what failed, and what happened.
func Tell(r *Result) string {
	var b strings.Builder
	p := r.Plan
	fmt.Fprintf(&b, "seed %d, theme: %s\n\n", p.Seed, p.Theme)
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "BROKEN: %s: %s\n", f.Check, f.Text)
	}
	fmt.Fprintf(&b, "\nsettings: %+v\n%d clients, faults for %d ms\n", p.Settings, p.Clients, p.Length)
	for _, c := range p.Clocks {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	for _, t := range p.Tasks {
		fmt.Fprintf(&b, "  task %d: %s\n", t.ID, t)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  at %d ms: %s\n", f.AtMs, f)
	}
	b.WriteString("\n" + r.Story + "\n")
	return b.String()
}
