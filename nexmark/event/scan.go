package event

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// plain returns how many bytes at the beginning of b need no escaping in a JSON string: up to the
// first quote, backslash or control character. It looks at eight bytes at a time: in x-ones &^ x &
// highs the lowest set bit marks the lowest zero byte of x.
func plain(b []byte) int {
	const (
		ones   = 0x0101010101010101
		highs  = 0x8080808080808080
		quotes = '"' * ones
		slash  = '\\' * ones
		spaces = ' ' * ones
	)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		q, s := x^quotes, x^slash
		hit := ((q-ones)&^q | (s-ones)&^s | (x-spaces)&^x) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return i
}

// scanner scans one line of JSON. Its methods return "" or the reason why the line is malformed;
// reasons are constants, so a good line does not pay for them.
type scanner struct {
	b   []byte
	i   int
	tmp []byte // unescaped strings; old contents stay valid when it grows
}

const (
	badEnd     = "the line ends in the middle of a value"
	badString  = "a string without its end"
	badControl = "a control character inside a string"
	badEscape  = "an unknown escape in a string"
	badValue   = "not a JSON value"
	badNumber  = "not a JSON number"
	badObject  = "an object without its end, or without a comma or colon"
	badArray   = "an array without its end, or without a comma"
	badDepth   = "nested too deeply"
	badTail    = "something stands behind the object"
	wantObject = "must be an object"
	wantString = "must be a string"
	wantInt    = "must be an integer"
	wantInt64  = "does not fit into 64 bits"
	wantTime   = `must be a time: "yyyy-MM-dd HH:mm:ss.SSS", RFC 3339, or epoch milliseconds`
	wantType   = "must be 0 (person), 1 (auction) or 2 (bid)"
	missing    = "is missing"
	repeated   = "stands twice"
	badUTF8    = "not valid UTF-8"
)

const maxDepth = 512

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// open consumes an opening brace; more is false for an empty object, which it consumes whole.
func (s *scanner) open() (more bool, bad string) {
	if s.peek() != '{' {
		return false, wantObject
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		return false, ""
	}
	return true, ""
}

// key consumes a name and its colon.
func (s *scanner) key() (name string, bad string) {
	if s.peek() != '"' {
		return "", badObject
	}
	if name, bad = s.str(); bad != "" {
		return "", bad
	}
	if s.peek() != ':' {
		return name, badObject
	}
	s.i++
	return name, ""
}

// next consumes the separator after a member: a comma (more) or the closing brace.
func (s *scanner) next() (more bool, bad string) {
	switch s.peek() {
	case ',':
		s.i++
		return true, ""
	case '}':
		s.i++
		return false, ""
	}
	return false, badObject
}

// str consumes a string, which must begin at once. The result aliases the line or, if there were
// escapes, s.tmp.
func (s *scanner) str() (string, string) {
	s.i++
	start := s.i
	s.i += plain(s.b[start:])
	if s.i < len(s.b) && s.b[s.i] == '"' { // nearly always
		s.i++
		return alias(s.b[start : s.i-1]), ""
	}
	from := len(s.tmp)
	s.tmp = append(s.tmp, s.b[start:s.i]...)
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return alias(s.tmp[from:]), ""
		case c < ' ':
			return "", badControl
		case c == '\\':
			if bad := s.escape(); bad != "" {
				return "", bad
			}
		}
		n := plain(s.b[s.i:])
		s.tmp = append(s.tmp, s.b[s.i:s.i+n]...)
		s.i += n
	}
	return "", badString
}

// escape consumes a backslash and the rest of its sequence. A surrogate without its partner becomes
// U+FFFD, as in encoding/json.
func (s *scanner) escape() string {
	if s.i+1 >= len(s.b) {
		return badString
	}
	c := s.b[s.i+1]
	if c == 'u' {
		r, ok := s.hex(s.i)
		if !ok {
			return badEscape
		}
		s.i += 6
		if utf16.IsSurrogate(r) {
			second, ok := s.hex(s.i)
			if r = utf16.DecodeRune(r, second); ok && r != utf8.RuneError {
				s.i += 6
			} else {
				r = utf8.RuneError
			}
		}
		s.tmp = utf8.AppendRune(s.tmp, r)
		return ""
	}
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	default:
		return badEscape
	}
	s.tmp = append(s.tmp, c)
	s.i += 2
	return ""
}

// hex reads \uXXXX at i.
func (s *scanner) hex(i int) (r rune, ok bool) {
	if i+6 > len(s.b) || s.b[i] != '\\' || s.b[i+1] != 'u' {
		return 0, false
	}
	for _, c := range s.b[i+2 : i+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// integer consumes a number without fraction and exponent that fits an int64.
func (s *scanner) integer() (v int64, bad string) {
	c := s.peek()
	if c != '-' && (c < '0' || c > '9') {
		return 0, wantInt
	}
	start := s.i
	neg := c == '-'
	if neg {
		s.i++
	}
	var n uint64
	first := s.i
	for s.i < len(s.b) {
		d := s.b[s.i] - '0'
		if d > 9 {
			break
		}
		n = n*10 + uint64(d)
		s.i++
	}
	count := s.i - first
	switch {
	case count == 0 || count > 1 && s.b[first] == '0':
		return 0, badNumber
	case s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i] == 'e' || s.b[s.i] == 'E'):
		s.i = start
		if bad := s.number(); bad != "" {
			return 0, bad
		}
		return 0, wantInt
	case count > 19, !neg && n > 1<<63-1, neg && n > 1<<63: // 19 digits do not wrap around in 64 bits
		return 0, wantInt64
	}
	if neg {
		n = -n
	}
	return int64(n), ""
}

// number skips any JSON number.
func (s *scanner) number() string {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	first := s.i
	if n := s.digits(); n == 0 || n > 1 && s.b[first] == '0' {
		return badNumber
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			return badNumber
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return badNumber
		}
	}
	return ""
}

func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i - from
}

// skip skips any one value and checks that it is well-formed.
func (s *scanner) skip(depth int) string {
	if depth > maxDepth {
		return badDepth
	}
	switch c := s.peek(); {
	case c == '"':
		_, bad := s.str()
		return bad
	case c == '{':
		more, bad := s.open()
		for more && bad == "" {
			if _, bad = s.key(); bad == "" {
				bad = s.skip(depth + 1)
			}
			if bad == "" {
				more, bad = s.next()
			}
		}
		return bad
	case c == '[':
		return s.skipArray(depth)
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case s.i == len(s.b):
		return badEnd
	}
	return badValue
}

func (s *scanner) skipArray(depth int) string {
	s.i++
	if s.peek() == ']' {
		s.i++
		return ""
	}
	for {
		if bad := s.skip(depth + 1); bad != "" {
			return bad
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			return ""
		default:
			return badArray
		}
	}
}

func (s *scanner) literal(word string) string {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return badValue
	}
	s.i += len(word)
	return ""
}
