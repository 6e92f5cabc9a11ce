package embedded

import (
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// scrubPause is the pause between two rounds through all closed segments.
const scrubPause = 10 * time.Second

// scrub reads all closed segments, again and again, at a bounded rate, so that damage is found
// while a copy may still exist. It rewrites a damaged header or trailer. Other damage is logged,
// and readers that reach it get an error.
func (b *background) scrub() {
	l := b.log
	pace := segment.NewPacer(l.opt.FS, l.dir, l.opt.ScrubRate, b.quit)
	for {
		for _, info := range l.store.Segments() {
			if info.State != segment.StateClosed || info.Damage != nil {
				continue
			}
			repaired, err := l.store.Check(info.ID, pace.Wait)
			if repaired != "" {
				l.opt.Logger.Warn("a segment file was damaged and has been repaired", "dir", l.dir, "segment", info.ID, "was", repaired)
			}
			switch sharedlog.KindOf(err) {
			case sharedlog.KindClosed:
				return
			case sharedlog.KindTrimmed, sharedlog.KindCorrupt: // deleted meanwhile, or logged by Log.damaged
			default:
				if err != nil {
					b.fail(err)
					return
				}
			}
		}
		select {
		case <-time.After(scrubPause):
		case <-b.quit:
			return
		}
	}
}
