package seeded_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/seeded"
)

// choices returns what the runtime decides in a bubble: the order of maps, selects, simultaneous
// timers and goroutines, and random numbers.
func choices(t *testing.T, seed uint64) (text string) {
	synctest.Test(t, func(*testing.T) {
		seeded.Seed(seed, 4)
		defer seeded.Seed(0, 0)
		var b strings.Builder
		var mu sync.Mutex
		say := func(what string, x any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprint(&b, what, x, " ")
		}
		big := map[string]int{}
		for i := range 100 {
			big[fmt.Sprint(i)] = i
		}
		for k := range big {
			say("k", k)
		}
		a, c := make(chan int, 20), make(chan int, 20)
		for i := range 20 {
			a <- i
			c <- i
		}
		for range 20 {
			select {
			case <-a:
				say("s", 1)
			case <-c:
				say("s", 2)
			}
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Millisecond)
				say("t", i)
				say("r", rand.Uint32())
			})
		}
		wg.Wait()
		text = b.String()
	})
	return text
}

// With the overlay the same seed gives the same choices, and another seed others.
func TestSeed(t *testing.T) {
	if !seeded.On {
		require.NotEmpty(t, choices(t, 1)) // the runtime's own choice
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first := choices(t, 1)
	for range 20 {
		require.Equal(t, first, choices(t, 1))
	}
	require.NotEqual(t, first, choices(t, 2))
}

// With the overlay time advances while a sleeping goroutine holds a lock.
func TestLocksAreDurable(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		var mu sync.Mutex
		var rw sync.RWMutex
		var wg sync.WaitGroup
		mu.Lock()
		rw.Lock()
		if seeded.On {
			wg.Go(mu.Lock)
			wg.Go(rw.RLock)
		}
		time.Sleep(time.Hour)
		mu.Unlock()
		rw.Unlock()
		wg.Wait()
	})
}
