package join

import "tailrace.dev/tailrace/operators/serde"

// Match is the answer to an entry that refers to another one: it is not in the result (Some is false), or has both values, or
// only its own (With is false).
type Match[L, R any] struct {
	Some, With bool
	Left       L
	Right      R
}

// MatchSerde returns the serde of matches.
func MatchSerde[L, R any](ls serde.Serde[L], rs serde.Serde[R]) serde.Serde[Match[L, R]] {
	return serde.New("match of "+serde.NameOf(ls)+" and "+serde.NameOf(rs),
		func(dst []byte, m *Match[L, R]) []byte {
			dst = serde.AppendBool(serde.AppendBool(dst, m.Some), m.With)
			if m.Some {
				dst = ls.Append(dst, &m.Left)
			}
			if m.With {
				dst = rs.Append(dst, &m.Right)
			}
			return dst
		},
		func(r *serde.Reader, m *Match[L, R]) {
			*m = Match[L, R]{Some: r.Bool(), With: r.Bool()}
			if m.Some {
				serde.Take(r, ls, &m.Left)
			}
			if m.With {
				serde.Take(r, rs, &m.Right)
			}
		})
}
