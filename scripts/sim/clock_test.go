package sim

import (
	"testing"
	"time"
)

func TestMonotonicClockStandsStillInASuspensionAndNeverGoesBack(t *testing.T) {
	t.Parallel()
	w := &world{}
	a := &actor{w: w, rate: 1}
	last := a.clock()
	at := func(now, want time.Duration) {
		t.Helper()
		w.now = now
		got := a.clock()
		if got.Mono != want || got.Mono < last.Mono || got.Boot != now {
			t.Errorf("at %s: got %+v after %+v; want Mono %s", now, got, last, want)
		}
		last = got
	}
	at(time.Second, time.Second)
	a.suspend(4 * time.Second)
	at(3*time.Second, time.Second)
	a.suspend(time.Second) // within the first
	a.suspend(3 * time.Second)
	at(6*time.Second, time.Second)
	at(8*time.Second, 3*time.Second)
	a.suspend(10 * time.Second)
	a.stop(20 * time.Second)
	at(10*time.Second, 3*time.Second)
	a.resume()
	at(10*time.Second, 3*time.Second)
	at(12*time.Second, 5*time.Second)
}
