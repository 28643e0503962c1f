package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGarbageIsBoundedForEachHeap(t *testing.T) {
	t.Parallel()
	for scanned, want := range map[uint64]int{0: 400, 1 << 20: 400, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 64 << 20: 50, 1 << 40: 50} {
		if got := percentOf(scanned); got != want {
			t.Errorf("%d bytes: got %d; want %d", scanned, got, want)
		}
	}
}

// The tests below change the process, so they are not parallel.

//nolint:paralleltest // see above
func TestPercentFollowsTheLiveHeap(*testing.T) {
	before := debug.SetGCPercent(100)
	stop := Tune()
	defer func() { stop(); debug.SetGCPercent(before) }()
	percent := func() int {
		const name = "/gc/gogc:percent"
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		return int(sample[0].Value.Uint64())
	}
	await := func(ok func() bool) {
		for !ok() {
			runtime.GC()
			runtime.Gosched()
		}
	}
	await(func() bool { return percent() > 200 })
	large := make([]byte, 200<<20)
	await(func() bool { return percent() == minPercent })
	runtime.KeepAlive(large)
	large = nil //nolint:ineffassign,wastedassign // so that it is garbage
	await(func() bool { return percent() > 200 })
}

//nolint:paralleltest // see above
func TestIdleProcessReturnsMemory(t *testing.T) {
	released := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection but those of the test
	var trim trimmer
	burst := make([]byte, 64<<20)
	for i := 0; i < len(burst); i += os.Getpagesize() {
		burst[i] = 1
	}
	trim.init()
	runtime.KeepAlive(burst)
	burst = nil //nolint:ineffassign,wastedassign // so that it is garbage
	runtime.GC()
	if trim.check() {
		t.Error("memory was returned while the process was busy")
	}
	if !trim.check() || released() < 48<<20 {
		t.Errorf("%d bytes are released", released())
	}
	if trim.check() {
		t.Error("memory was returned again although little was unused")
	}
}
