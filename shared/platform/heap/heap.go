// Package heap sets how often the garbage collector runs, and returns memory to the system after a burst.
//
// A constant GOGC allows garbage in proportion to the live heap. The live heap of a plane is a few megabytes at one time and
// a hundred at another, so any constant either costs processor time for a small heap or much memory for a large one.
package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"modelgateway/shared/platform/retry"
)

const (
	// garbage is how much garbage may accumulate between two collections, in bytes.
	garbage = 32 << 20
	// The bounds of GOGC: a large heap is not collected all the time, and a small one does not wait until it is a
	// multiple of what it holds.
	minPercent, maxPercent = 50, 400
	// minChange is the change of GOGC in percent of its value that is made. A change stops all goroutines for a moment.
	minChange = 10
)

// percentOf returns GOGC for a heap. scanned is what GOGC refers to: the live heap, the stacks and the globals, in bytes.
func percentOf(scanned uint64) int {
	return int(min(max(garbage*100/max(scanned, 1), minPercent), maxPercent))
}

// tuner sets GOGC after each collection.
type tuner struct {
	percent int
	samples [3]metrics.Sample
	stopped atomic.Bool
}

// Tune sets GOGC by the live heap from now on, until stop is called. GOMEMLIMIT still bounds the heap.
func Tune() (stop func()) {
	t := &tuner{percent: maxPercent, samples: [3]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	debug.SetGCPercent(t.percent)
	t.awaitCollection()
	return func() { t.stopped.Store(true) }
}

// awaitCollection calls collected after the next collection.
func (t *tuner) awaitCollection() {
	type collectable struct{ _ *byte } // with a pointer, so that it is an object of its own
	runtime.AddCleanup(&collectable{}, (*tuner).collected, t)
}

func (t *tuner) collected() {
	if t.stopped.Load() {
		return
	}
	metrics.Read(t.samples[:])
	scanned := uint64(0)
	for i := range t.samples {
		scanned += t.samples[i].Value.Uint64()
	}
	if to := percentOf(scanned); max(to-t.percent, t.percent-to)*100 > t.percent*minChange {
		t.percent = to
		debug.SetGCPercent(to)
	}
	t.awaitCollection()
}

const (
	// idleCheck is the interval in which Trim looks for unused memory.
	idleCheck = 15 * time.Second
	// minTrimmed is how much memory must be unused to be returned, in bytes.
	minTrimmed = 12 << 20
)

// Trim returns memory to the system when the process has become idle, until ctx ends. Without it, the garbage of a burst
// would stay until the next collection, which an idle process starts after minutes.
func Trim(ctx context.Context) {
	var t trimmer
	t.init()
	for retry.Sleep(ctx, idleCheck) {
		t.check()
	}
}

// trimmer returns unused memory.
type trimmer struct {
	samples [5]metrics.Sample
	cycles  uint64
}

func (t *trimmer) init() {
	for i, name := range []string{
		"/gc/cycles/total:gc-cycles", "/gc/heap/live:bytes", "/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes",
		"/memory/classes/heap/free:bytes",
	} {
		t.samples[i].Name = name
	}
	metrics.Read(t.samples[:])
	t.cycles = t.samples[0].Value.Uint64()
}

// check returns memory if no collection has run since the last check, which means that little was allocated. It reports
// whether it has.
func (t *trimmer) check() bool {
	metrics.Read(t.samples[:])
	cycles, live := t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64()
	idle := cycles == t.cycles
	t.cycles = cycles
	held := t.samples[2].Value.Uint64() + t.samples[3].Value.Uint64() + t.samples[4].Value.Uint64()
	if !idle || held < live+minTrimmed {
		return false
	}
	runtime.GC() // the pools drop their objects in the second collection
	debug.FreeOSMemory()
	metrics.Read(t.samples[:1])
	t.cycles = t.samples[0].Value.Uint64()
	return true
}
