package segment

import (
	"cmp"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

const (
	// scrubWeek is how long it takes to read a full disk, if no rate is given.
	scrubWeek = 7 * 24 * time.Hour
	// leastScrubRate is the least rate then, in bytes a second.
	leastScrubRate = 1 << 20
)

// Pacer bounds how many bytes all that use it together read in a second, to find damage.
type Pacer struct {
	rate int64
	quit <-chan struct{}

	mu   sync.Mutex
	next time.Time // when more may be read
}

// NewPacer returns a pacer of a rate in bytes a second; 0: as much as is needed to read a
// full disk, the one that a directory is on, in a week. It ends when quit is closed.
func NewPacer(fsys vfs.FS, dir string, rate int64, quit <-chan struct{}) *Pacer {
	if rate == 0 {
		rate = leastScrubRate
		if _, total, err := fsys.Free(dir); err == nil && total < 1<<50 { // a real one
			rate = max(rate, total/int64(scrubWeek/time.Second))
		}
	}
	return &Pacer{rate: cmp.Or(max(rate, 0), leastScrubRate), quit: quit}
}

// Wait waits until so many bytes may have been read. KindClosed: the pacer has ended.
func (p *Pacer) Wait(bytes int) error {
	now := time.Now()
	p.mu.Lock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second)))
	pause := p.next.Sub(now)
	p.mu.Unlock()
	if pause < time.Millisecond { // the next one waits for this one too
		pause = 0
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-p.quit:
		return sharedlog.Errorf(sharedlog.KindClosed, "no more is read to find damage")
	case <-t.C:
		return nil
	}
}
