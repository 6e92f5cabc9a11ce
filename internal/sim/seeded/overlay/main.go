// Command overlay writes the files of package seeded's overlay: files of the installed Go release
// with a few lines changed, and their list for go build -overlay.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// change replaces a text that must occur exactly once in a file.
type change struct{ file, old, new string }

var changes = []change{
	// A goroutine that waits for a lock is durably blocked.
	{"runtime/runtime2.go", "	waitReasonSyncCondWait:          true,\n", `	waitReasonSyncCondWait:          true,
	waitReasonSyncMutexLock:         true,
	waitReasonSyncRWMutexRLock:      true,
	waitReasonSyncRWMutexLock:       true,
`},
	// Choices that depend on the seed.
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := simRandn(uint32(norder + 1))"},
	{"runtime/time.go", "			t.rand = cheaprand()\n", "			t.rand = simRandn(1 << 31)\n"},
	{"runtime/rand.go", "func rand() uint64 {\n", `func rand() uint64 {
	if simState != 0 && getg().bubble != nil {
		return simRand()
	}
`},
	// Values that are random in each process become constant: the hash seed, and with it the order
	// of large maps.
	{"runtime/rand.go", "	globalRand.state.Init(*seed)\n", `	*seed = [32]byte{1}
	globalRand.state.Init(*seed)
`},
	// Addresses are the same in every process, and so is the order of maps with pointers as keys.
	{"runtime/malloc.go", "	randomizeHeapBase = goexperiment", "	randomizeHeapBase = false && goexperiment"},
	// A context cancels its children in the order in which they were created, not in that of their
	// addresses.
	{"context/context.go", "	children map[canceler]struct{} //", "	made     int\n	children map[canceler]int //"},
	{"context/context.go", "				p.children = make(map[canceler]struct{})\n", "				p.children = make(map[canceler]int)\n"},
	{"context/context.go", "			p.children[child] = struct{}{}\n", "			p.made++\n			p.children[child] = p.made\n"},
	{"context/context.go", "	for child := range c.children {\n", `	for len(c.children) > 0 {
		var child canceler
		for o, n := range c.children {
			if child == nil || n < c.children[child] {
				child = o
			}
		}
		delete(c.children, child)
`},
	// The order of goroutines does not depend on how many ran outside of bubbles.
	{"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if simState == 0 && pp.schedtick%61 == 0 && !sched.runq.empty() {"},
	// Real time does not preempt goroutines.
	{"runtime/proc.go", "} else if pd.schedwhen+forcePreemptNS <= now {", "} else if pd.schedwhen+simPreemptNS() <= now {"},
	{"internal/sync/mutex.go", "	starvationThresholdNs = 1e6\n", "	starvationThresholdNs = 1e18\n"},
	// More interleavings.
	{"internal/sync/mutex.go", `func (m *Mutex) Lock() {
`, `func (m *Mutex) Lock() {
	runtime_simYield()
`},
	{"internal/sync/runtime.go", "//go:linkname runtime_nanotime\n", `//go:linkname runtime_simYield
func runtime_simYield()

//go:linkname runtime_nanotime
`},
}

const added = `package runtime

import (
	"internal/runtime/math"
	_ "unsafe"
)

// simState is the state of the seeded source; 0: there is none.
var simState uint64

// simEvery: one of so many locks lets another goroutine run first; 0: none.
var simEvery uint32

//go:linkname simSeed
func simSeed(seed uint64, every uint32) {
	simState, simEvery = seed, every
	for range 8 {
		simRand()
	}
}

//go:nosplit
func simRand() uint64 {
	simState += 0xa0761d6478bd642f
	hi, lo := math.Mul64(simState, simState^0xe7037ed1a0b428db)
	return hi ^ lo
}

//go:nosplit
func simRandn(n uint32) uint32 {
	if simState == 0 || getg().bubble == nil {
		return cheaprandn(n)
	}
	return uint32(uint64(uint32(simRand())) * uint64(n) >> 32)
}

func simPreemptNS() int64 {
	if simState != 0 {
		return 20e9
	}
	return forcePreemptNS
}

//go:linkname simYield internal/sync.runtime_simYield
func simYield() {
	if simEvery == 0 {
		return
	}
	gp := getg()
	if gp.bubble == nil || gp.m.curg != gp || gp.m.locks != 0 || simRandn(simEvery) != 0 {
		return
	}
	Gosched()
}
`

func main() {
	out := flag.String("o", "", "directory to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	if out == "" {
		return fmt.Errorf("give -o DIRECTORY")
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	b, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	texts := map[string]string{}
	for _, c := range changes {
		text, ok := texts[c.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, "src", c.file))
			if err != nil {
				return err
			}
			text = string(b)
		}
		if n := strings.Count(text, c.old); n != 1 {
			return fmt.Errorf("%s of %s has %d times:\n%s\nthis release of Go is not known; see internal/sim/seeded/overlay", c.file, version, n, c.old)
		}
		texts[c.file] = strings.Replace(text, c.old, c.new, 1)
	}
	texts["runtime/simruntime.go"] = added
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(out, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		// Write only if it changed, or everything would be rebuilt each time.
		if old, err := os.ReadFile(to); err != nil || string(old) != text {
			if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
				return err
			}
		}
		replace[filepath.Join(root, "src", file)] = to
	}
	b, err = json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "overlay.json"), b, 0o644)
}
