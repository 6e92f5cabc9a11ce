package proctest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Drawn reports whether a run of the tests includes a cell of a matrix, of which it takes one in so
// many. TAILRACE_DRAW selects the cells: a number, which scripts/test.sh derives from the commit, so
// that each cell has its turn, or "all"; unset is 0. TAILRACE_SOAK=1 takes all, too. The name of a cell
// that is included is appended to the file that TAILRACE_DRAWN names, which scripts/test.sh prints.
// Drawn panics if TAILRACE_DRAW is neither, and if the file cannot be written.
func Drawn(name string, cell, parts int) bool {
	s := os.Getenv("TAILRACE_DRAW")
	if os.Getenv("TAILRACE_SOAK") == "" && s != "all" {
		var draw uint64
		if s != "" {
			var err error
			if draw, err = strconv.ParseUint(s, 10, 32); err != nil {
				panic(fmt.Sprintf("TAILRACE_DRAW: %v", err))
			}
		}
		if (uint64(cell)+draw)%uint64(parts) != 0 {
			return false
		}
	}
	if list := os.Getenv("TAILRACE_DRAWN"); list != "" {
		f, err := os.OpenFile(list, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, name)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			panic(fmt.Sprintf("TAILRACE_DRAWN: %v", err))
		}
	}
	return true
}
