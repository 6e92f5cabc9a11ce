package status

import "time"

// rates measures how many items a task takes and puts out in a second, over the last few.
type rates struct{ older, newer reading }

// reading is how many items there have been at a moment; at is zero if there is none.
type reading struct {
	at      time.Time
	in, out uint64
}

// A rate is measured from a reading that is between rateSpan and twice as old, as long as
// there are commits; it is not measured over less than rateLeast.
const (
	rateSpan  = 2 * time.Second
	rateLeast = time.Second
)

// add takes a reading.
func (r *rates) add(now reading) {
	switch {
	case r.newer.at.IsZero():
		r.newer = now
	case now.at.Sub(r.newer.at) >= rateSpan:
		r.older, r.newer = r.newer, now
	}
}

// perSecond returns the rates at a reading, nil if they are not measured yet.
func (r *rates) perSecond(now reading) (in, out *float64) {
	from := r.older
	if from.at.IsZero() {
		from = r.newer
	}
	span := now.at.Sub(from.at)
	if from.at.IsZero() || span < rateLeast || now.in < from.in || now.out < from.out {
		return nil, nil
	}
	of := func(from, to uint64) *float64 {
		v := float64(to-from) / span.Seconds()
		return &v
	}
	return of(from.in, now.in), of(from.out, now.out)
}

// Measure takes a reading for the rates; at the beginning of an instance the first one.
func (s *Status) Measure(begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begin {
		s.rates = rates{}
	}
	s.rates.add(s.reading(s.clock()))
}

func (s *Status) reading(now time.Time) reading {
	return reading{now, s.ItemsIn.Load(), s.ItemsOut.Load()}
}
