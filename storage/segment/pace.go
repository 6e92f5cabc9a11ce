package segment

import (
	"cmp"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

const (
	// scrubWeek is the time to read a full disk at the default rate.
	scrubWeek = 7 * 24 * time.Hour
	// leastScrubRate is the minimum of the default rate, in bytes per second.
	leastScrubRate = 1 << 20
)

// Pacer limits the rate at which all its users together read data to find damage.
type Pacer struct {
	rate int64
	quit <-chan struct{}

	mu   sync.Mutex
	next time.Time // earliest time of the next read
}

// NewPacer returns a pacer with a rate in bytes per second; 0: the rate that reads the disk with
// the directory dir, if it is full, in a week. It ends when quit is closed.
func NewPacer(fsys vfs.FS, dir string, rate int64, quit <-chan struct{}) *Pacer {
	if rate == 0 {
		rate = leastScrubRate
		if _, total, err := fsys.Free(dir); err == nil && total < 1<<50 { // a real disk
			rate = max(rate, total/int64(scrubWeek/time.Second))
		}
	}
	return &Pacer{rate: cmp.Or(max(rate, 0), leastScrubRate), quit: quit}
}

// Wait waits until the given number of bytes may be read. It returns KindClosed if the pacer has
// ended.
func (p *Pacer) Wait(bytes int) error {
	now := time.Now()
	p.mu.Lock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second)))
	pause := p.next.Sub(now)
	p.mu.Unlock()
	if pause < time.Millisecond { // the next call waits for this one, too
		pause = 0
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-p.quit:
		return sharedlog.Errorf(sharedlog.KindClosed, "the scrubber has stopped")
	case <-t.C:
		return nil
	}
}
