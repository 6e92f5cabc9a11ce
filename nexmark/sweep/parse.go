package sweep

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tailrace.dev/tailrace/nexmark/workload"
)

// Parse reads a spec. It returns Errors for invalid specs: unknown and repeated keys, values out of
// bounds, settings that exclude each other. name is the file's name, for the errors.
func Parse(name string, text []byte, known Known) (*Spec, error) {
	p := &parser{name: name, known: known}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, Errors{fmt.Sprintf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	if len(doc.Content) == 0 {
		return nil, Errors{name + ": empty; it needs a list of series"}
	}
	spec := &Spec{CheckEvents: 20_000, CheckSeed: 1}
	defaults := Series{
		Protocols: known.Protocols, CommitIntervals: []Duration{Duration(100 * time.Millisecond)}, Parallelism: []int{0}, Replicas: []int{1},
		Trials: 1, Duration: Duration(10 * time.Second), Warmup: Duration(3 * time.Second), Emit: "eager", Source: "log",
	}
	var list *yaml.Node
	p.mapping(doc.Content[0], "a spec", fields{
		"name":   func(n *yaml.Node) { spec.Name = p.text(n) },
		"title":  func(n *yaml.Node) { spec.Title = p.text(n) },
		"check":  func(n *yaml.Node) { p.check(n, spec) },
		"series": func(n *yaml.Node) { list = n },
		// Read the defaults before the series, wherever the file has them.
		"defaults": func(n *yaml.Node) { p.series(n, "defaults", &defaults) },
	})
	switch {
	case list == nil:
		p.fail(doc.Content[0], "series: missing; what is to be measured?")
	case deref(list).Kind != yaml.SequenceNode || len(deref(list).Content) == 0:
		p.fail(list, "series: want a list of at least one")
	default:
		for i, n := range deref(list).Content {
			s := defaults
			s.Line, s.Settings, s.Lists = n.Line, maps.Clone(defaults.Settings), maps.Clone(defaults.Lists)
			what := fmt.Sprintf("series %d", i+1)
			before := len(p.errs)
			p.series(n, what, &s)
			if s.Kind == "" && before == len(p.errs) {
				p.fail(n, "%s: kind: missing; use %s", what, listed(kinds))
			}
			if before == len(p.errs) {
				s.check(func(format string, args ...any) { p.fail(n, what+": "+format, args...) })
			}
			spec.Series = append(spec.Series, s)
		}
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return spec, nil
}

type parser struct {
	name  string
	known Known
	errs  Errors
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, fmt.Sprintf("%s:%d: %s", p.name, n.Line, fmt.Sprintf(format, args...)))
}

// fields maps each key of a mapping to the function that reads its value.
type fields map[string]func(n *yaml.Node)

func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (p *parser) mapping(n *yaml.Node, what string, f fields) {
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s: want key: value lines; the keys are %s", what, listed(slices.Sorted(maps.Keys(f))))
		return
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		switch read, ok := f[key.Value]; {
		case !ok:
			p.fail(key, "%s: unknown key %q; the keys are %s", what, key.Value, listed(slices.Sorted(maps.Keys(f))))
		case seen[key.Value]:
			p.fail(key, "%s: key %q is there twice", what, key.Value)
		default:
			read(n.Content[i+1])
		}
		seen[key.Value] = true
	}
}

func (p *parser) check(n *yaml.Node, spec *Spec) {
	if n.Kind == yaml.ScalarNode && (n.Value == "off" || n.Value == "false") {
		spec.CheckEvents = 0
		return
	}
	p.mapping(n, "check", fields{
		"events": func(n *yaml.Node) { spec.CheckEvents = p.number(n, "events", 100, 50_000) },
		"seed":   func(n *yaml.Node) { spec.CheckSeed = uint64(p.number(n, "seed", 0, math.MaxInt64)) },
	})
}

func (p *parser) series(n *yaml.Node, what string, s *Series) {
	positive := func(key string, to *Duration, least time.Duration) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = p.duration(n, key, least) }
	}
	one := func(key string, to *string, of ...string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			delete(s.Lists, key)
			if n = deref(n); n.Kind != yaml.SequenceNode {
				*to = p.choice(n, key, of)
				return
			}
			p.list(n, key, s, func(n *yaml.Node) string { return p.choice(n, key, of) })
		}
	}
	p.mapping(n, what, fields{
		"kind":      func(n *yaml.Node) { s.Kind = Kind(p.choice(n, "kind", strs(kinds))) },
		"title":     func(n *yaml.Node) { s.Title = p.text(n) },
		"queries":   func(n *yaml.Node) { s.Queries = p.numbers(n, "queries", 1, 8) },
		"workloads": func(n *yaml.Node) { s.Workloads = p.workloads(n) },
		"protocols": func(n *yaml.Node) { s.Protocols = p.protocols(n) },
		"rates":     func(n *yaml.Node) { p.rates(n, s) },
		"commit-intervals": func(n *yaml.Node) {
			s.CommitIntervals = nil
			p.each(n, "commit-intervals", func(n *yaml.Node) {
				s.CommitIntervals = append(s.CommitIntervals, p.duration(n, "commit-intervals", 100*time.Microsecond))
			})
		},
		"parallelism": func(n *yaml.Node) { s.Parallelism = p.numbers(n, "parallelism", 1, 1024) },
		"replicas": func(n *yaml.Node) {
			s.Replicas = p.numbers(n, "replicas", 1, 3)
			if contains(s.Replicas, 2) {
				p.fail(n, "replicas: 1 (the embedded log) or 3 (a cluster of processes)")
			}
		},
		"workers":  func(n *yaml.Node) { s.Workers = int(p.number(n, "workers", 1, 64)) },
		"trials":   func(n *yaml.Node) { s.Trials = int(p.number(n, "trials", 1, 1000)) },
		"duration": positive("duration", &s.Duration, 100*time.Millisecond),
		"warmup":   positive("warmup", &s.Warmup, 0),
		"emit":     one("emit", &s.Emit, "eager", "final"),
		"source":   one("source", &s.Source, "log", "chained"),
		"fail-at":  positive("fail-at", &s.FailAt, time.Millisecond),
		"recovery": func(n *yaml.Node) {
			s.Recovery = nil
			p.each(n, "recovery", func(n *yaml.Node) {
				s.Recovery = append(s.Recovery, p.choice(n, "recovery", []string{"none", "snapshot", "standby"}))
			})
		},
		"bytes": func(n *yaml.Node) { s.Bytes = p.number(n, "bytes", 16, 8<<20) },
		"over":  func(n *yaml.Node) { s.Over = p.over(n) },
		"values": func(n *yaml.Node) {
			s.Values = nil
			p.each(n, "values", func(n *yaml.Node) {
				v := p.text(n)
				if contains(s.Values, v) {
					p.fail(n, "values: %s is there twice", v)
				}
				s.Values = append(s.Values, v)
			})
		},
		"settings": func(n *yaml.Node) { p.settings(n, what, s) },
	})
}

func (p *parser) settings(n *yaml.Node, what string, s *Series) {
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s: settings: want lines of flag: value, the flags of nexmark bench without their --", what)
		return
	}
	if s.Settings == nil {
		s.Settings = map[string]string{}
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, v := n.Content[i], deref(n.Content[i+1])
		exists, free := p.known.Setting(key.Value)
		switch {
		case !exists:
			p.fail(key, "%s: settings: nexmark bench has no flag --%s", what, key.Value)
		case !free:
			p.fail(key, "%s: settings: --%s is the sweep's to set, by the keys of the series and its own flags", what, key.Value)
		case v.Kind == yaml.SequenceNode:
			delete(s.Settings, key.Value)
			p.list(v, key.Value, s, func(n *yaml.Node) string { return n.Value })
		case v.Kind != yaml.ScalarNode:
			p.fail(v, "%s: settings: %s: want one value", what, key.Value)
		default:
			delete(s.Lists, key.Value)
			s.Settings[key.Value] = v.Value
		}
	}
}

// workloads reads names of workloads that are no queries.
func (p *parser) workloads(n *yaml.Node) (out []string) {
	p.each(n, "workloads", func(n *yaml.Node) {
		switch w, err := workload.ByName(n.Value); {
		case err != nil:
			p.fail(n, "workloads: there is no workload %q; use %s", n.Value, listed(workload.Names()))
		case w.Query > 0:
			p.fail(n, "workloads: %s is one of NEXMark's queries; use queries: %d", w.Name, w.Query)
		case contains(out, w.Name):
			p.fail(n, "workloads: %s is there twice", w.Name)
		default:
			out = append(out, w.Name)
		}
	})
	return out
}

// over reads the name of what a series varies.
func (p *parser) over(n *yaml.Node) string {
	if exists, free := p.known.Setting(n.Value); n.Kind != yaml.ScalarNode || !contains(varied, n.Value) && !(exists && free) {
		p.fail(n, "over: %q: use %s, or a flag of nexmark bench that has a list of values in settings", n.Value, listed(varied))
	}
	return n.Value
}

// list reads the values of what a series of kind over varies.
func (p *parser) list(n *yaml.Node, key string, s *Series, read func(n *yaml.Node) string) {
	var values []string
	p.each(n, key, func(n *yaml.Node) {
		v := read(n)
		if contains(values, v) {
			p.fail(n, "%s: %s is there twice", key, v)
		}
		values = append(values, v)
	})
	if s.Lists == nil {
		s.Lists = map[string][]string{}
	}
	s.Lists[key] = values
}

// protocols reads "all", or a list. A name that ends in ? is left out if there is no such protocol.
func (p *parser) protocols(n *yaml.Node) []string {
	if n.Kind == yaml.ScalarNode && n.Value == "all" {
		return p.known.Protocols
	}
	var out []string
	p.each(n, "protocols", func(n *yaml.Node) {
		name, optional := strings.CutSuffix(n.Value, "?")
		switch {
		case contains(p.known.Protocols, name) && !contains(out, name):
			out = append(out, name)
		case contains(out, name):
			p.fail(n, "protocols: %s is there twice", name)
		case !optional:
			p.fail(n, "protocols: unknown protocol %q; use all, or some of %s", name, listed(p.known.Protocols))
		}
	})
	return out
}

func (p *parser) rates(n *yaml.Node, s *Series) {
	s.Rates, s.Until = nil, nil
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		p.each(n, "rates", func(n *yaml.Node) {
			if n.Value == "max" {
				s.Rates = append(s.Rates, 0)
			} else {
				s.Rates = append(s.Rates, p.number(n, "rates", 1, 1_000_000_000))
			}
		})
		return
	}
	u := &Until{Factor: 2}
	p.mapping(n, "rates", fields{"until-p99": func(n *yaml.Node) {
		p.mapping(n, "until-p99", fields{
			"start": func(n *yaml.Node) { u.Start = p.number(n, "start", 1, 1_000_000_000) },
			"limit": func(n *yaml.Node) { u.Limit = p.number(n, "limit", 1, 1_000_000_000) },
			"p99":   func(n *yaml.Node) { u.P99 = p.duration(n, "p99", time.Millisecond) },
			"factor": func(n *yaml.Node) {
				v, err := strconv.ParseFloat(n.Value, 64)
				if err != nil || v < 1.01 || v > 100 {
					p.fail(n, "factor: %q: want a number from 1.01 to 100", n.Value)
					v = 2
				}
				u.Factor = v
			},
		})
		if u.Start == 0 || u.Limit < u.Start || u.P99 == 0 {
			p.fail(n, "until-p99: needs start, p99, and limit, the highest rate to try, not below start")
		}
	}})
	s.Until = u
}

func (p *parser) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		p.fail(n, "want a text")
	}
	return n.Value
}

func (p *parser) choice(n *yaml.Node, key string, of []string) string {
	if n.Kind != yaml.ScalarNode || !contains(of, n.Value) {
		p.fail(n, "%s: %q: use %s", key, n.Value, listed(of))
	}
	return n.Value
}

func (p *parser) number(n *yaml.Node, key string, least, most int64) int64 {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
		p.fail(n, "%s: %q: want a whole number from %d to %d", key, n.Value, least, most)
		return least
	}
	return v
}

// numbers reads 3, 1-8, or a list of such.
func (p *parser) numbers(n *yaml.Node, key string, least, most int64) (out []int) {
	p.each(n, key, func(n *yaml.Node) {
		from, to, span := strings.Cut(n.Value, "-")
		if !span {
			to = from
		}
		a, err := strconv.ParseInt(strings.TrimSpace(from), 10, 64)
		b, err2 := strconv.ParseInt(strings.TrimSpace(to), 10, 64)
		if err != nil || err2 != nil || a < least || b > most || a > b {
			p.fail(n, "%s: %q: want numbers from %d to %d, as 3, [1, 3] or 1-8", key, n.Value, least, most)
			return
		}
		for v := a; v <= b; v++ {
			if contains(out, int(v)) {
				p.fail(n, "%s: %d is there twice", key, v)
			}
			out = append(out, int(v))
		}
	})
	return out
}

func (p *parser) duration(n *yaml.Node, key string, least time.Duration) Duration {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < least {
		p.fail(n, "%s: %q: want a time as 100ms or 30s, at least %v", key, n.Value, least)
		return Duration(max(least, time.Second))
	}
	return Duration(v)
}

// each reads a list, or one value as a list of one.
func (p *parser) each(n *yaml.Node, key string, read func(n *yaml.Node)) {
	n = deref(n)
	switch {
	case n.Kind == yaml.ScalarNode:
		read(n)
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		for _, c := range n.Content {
			if c = deref(c); c.Kind != yaml.ScalarNode {
				p.fail(c, "%s: want single values in the list", key)
				continue
			}
			read(c)
		}
	default:
		p.fail(n, "%s: want a value, or a list of values", key)
	}
}

func strs[T ~string](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

func listed[T ~string](list []T) string { return strings.Join(strs(list), ", ") }
