package event

// The text form of times is yyyy-MM-dd HH:mm:ss.SSS in UTC. Package time can do all of this, but at
// five times the cost, and each event has a time to read or write.

// MinMillis and MaxMillis bound the times that have a text form: the first
// millisecond of the year 1 and the last of 9999.
const (
	MinMillis int64 = -62135596800000
	MaxMillis int64 = 253402300799999
)

const (
	msPerSecond = 1000
	msPerMinute = 60 * msPerSecond
	msPerHour   = 60 * msPerMinute
	msPerDay    = 24 * msPerHour
)

// AppendTime appends the text form of a time in ms, without quotes. It clamps times outside
// MinMillis … MaxMillis, which parsing does not produce.
func AppendTime(dst []byte, ms int64) []byte {
	ms = min(max(ms, MinMillis), MaxMillis)
	day := ms / msPerDay
	rest := ms % msPerDay
	if rest < 0 {
		day, rest = day-1, rest+msPerDay
	}
	y, m, d := civil(day)
	var b [23]byte
	digits(b[0:4], y)
	b[4] = '-'
	digits(b[5:7], m)
	b[7] = '-'
	digits(b[8:10], d)
	b[10] = ' '
	digits(b[11:13], int(rest/msPerHour))
	b[13] = ':'
	digits(b[14:16], int(rest/msPerMinute%60))
	b[16] = ':'
	digits(b[17:19], int(rest/msPerSecond%60))
	b[19] = '.'
	digits(b[20:23], int(rest%msPerSecond))
	return append(dst, b[:]...)
}

// ParseTime reads a time: yyyy-MM-dd, a space or a T, HH:mm:ss, optionally a
// fraction of one to nine digits (cut off after the millisecond), optionally a
// zone (Z or ±hh:mm; without one the time is UTC). That covers the NEXMark form
// and RFC 3339.
func ParseTime(s string) (ms int64, ok bool) {
	if len(s) < 19 || s[4] != '-' || s[7] != '-' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	if c := s[10]; c != ' ' && c != 'T' && c != 't' {
		return 0, false
	}
	y, ok1 := number(s[0:4])
	mo, ok2 := number(s[5:7])
	d, ok3 := number(s[8:10])
	h, ok4 := number(s[11:13])
	mi, ok5 := number(s[14:16])
	sec, ok6 := number(s[17:19])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) || y < 1 || mo < 1 || mo > 12 || d < 1 || d > daysIn(y, mo) || h > 23 || mi > 59 || sec > 59 {
		return 0, false
	}
	frac, s, ok := fraction(s[19:])
	if !ok {
		return 0, false
	}
	zone, ok := offset(s)
	if !ok {
		return 0, false
	}
	ms = days(y, mo, d)*msPerDay + int64(h)*msPerHour + int64(mi)*msPerMinute + int64(sec)*msPerSecond + frac - zone
	return ms, ms >= MinMillis && ms <= MaxMillis
}

// fraction consumes ".ddd…" from s and returns it in ms.
func fraction(s string) (ms int64, rest string, ok bool) {
	if s == "" || s[0] != '.' {
		return 0, s, true
	}
	i, scale := 1, int64(100)
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		ms += int64(s[i]-'0') * scale
		scale /= 10
		i++
	}
	return ms, s[i:], i > 1 && i <= 10
}

// offset parses a whole zone and returns it in ms east of UTC.
func offset(s string) (ms int64, ok bool) {
	switch {
	case s == "" || s == "Z" || s == "z":
		return 0, true
	case len(s) != 6 || s[3] != ':' || s[0] != '+' && s[0] != '-':
		return 0, false
	}
	h, ok1 := number(s[1:3])
	m, ok2 := number(s[4:6])
	if !ok1 || !ok2 || h > 23 || m > 59 {
		return 0, false
	}
	ms = int64(h)*msPerHour + int64(m)*msPerMinute
	if s[0] == '-' {
		ms = -ms
	}
	return ms, true
}

func number(s string) (n int, ok bool) {
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int(c)
	}
	return n, true
}

func digits(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

func daysIn(y, m int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// days and civil convert between a date and the days since 1970-01-01 in the
// proleptic Gregorian calendar. Both count years from March, so that the leap
// day is a year's last, and in eras of 400 years, which are all alike.

const (
	daysPerEra = 146097
	epochDays  = 719468 // from 0000-03-01 to 1970-01-01
)

func days(y, m, d int) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era, yoe := y/400, y%400
	doy := (153*(m-3)+2)/5 + d - 1
	return int64(era*daysPerEra+yoe*365+yoe/4-yoe/100+doy) - epochDays
}

func civil(day int64) (y, m, d int) {
	n := int(day) + epochDays
	era, doe := n/daysPerEra, n%daysPerEra
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = doy - (153*mp+2)/5 + 1
	m, y = mp+3, era*400+yoe
	if m > 12 {
		m, y = m-12, y+1
	}
	return y, m, d
}
