package sim

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Search runs count seeds, starting with first, on all processors. It passes each
// result to see, one at a time and in no particular order, and ends early when
// see returns false.
func Search(first, count uint64, rules func() *Rules, see func(Result) bool) {
	var next atomic.Uint64
	var stopped atomic.Bool
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !stopped.Load() {
				n := next.Add(1) - 1
				if n >= count {
					return
				}
				r := Run(first+n, rules(), false)
				mu.Lock()
				if !stopped.Load() && !see(r) {
					stopped.Store(true)
				}
				mu.Unlock()
			}
		})
	}

	all.Wait()
}
