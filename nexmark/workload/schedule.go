package workload

import (
	"math/bits"

	"tailrace.dev/tailrace/nexmark/generator"
)

// schedule is the part that the generators of all workloads have in common: when item k is sent, and
// the random numbers that it is made of.
type schedule struct {
	events   *generator.Generator
	seed     uint64
	disorder int64 // ms
	lag      int64 // ms
	lagFrom  int64 // ms since 1970
}

func newSchedule(p *Params, c generator.Config) (*schedule, error) {
	g, err := generator.New(c)
	if err != nil {
		return nil, err
	}
	return &schedule{events: g, seed: generator.Mix(c.Seed + golden), disorder: c.Disorder.Milliseconds(), lag: p.duration(lag, 0).Milliseconds(), lagFrom: c.Base + p.duration(lagFrom, 0).Milliseconds()}, nil
}

const golden = 0x9e3779b97f4a7c15

// Due implements source.Items.
func (s *schedule) Due(k int64) int64 { return s.events.Due(k) }

// draw returns 64 random bits for item k.
func (s *schedule) draw(k int64) uint64 { return generator.Mix(s.seed + uint64(k)*golden) }

// at returns the event time of item k on a clock that is right: when it is sent, or up to the
// disorder before that. h are its random bits.
func (s *schedule) at(k int64, h uint64) int64 {
	t := s.events.Due(k)
	if s.disorder > 0 {
		t -= below(generator.Mix(h+golden), s.disorder+1)
	}
	return t
}

// lagging returns the event time of an item of a key whose time would be t: the clocks of one in four keys stand at lagFrom for
// lag, and are so much behind from then on. The items of a key are as much in order as they were.
func (s *schedule) lagging(key, t int64) int64 {
	if s.lag == 0 || t <= s.lagFrom || generator.Mix(uint64(key)^s.seed)%4 > 0 {
		return t
	}
	return max(s.lagFrom, t-s.lag)
}

// below returns a number in [0, n) that is made of random bits.
func below(h uint64, n int64) int64 {
	hi, _ := bits.Mul64(h, uint64(n))
	return int64(hi)
}
