package tail

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/pulse"
)

// watcher receives the lines of one tail.
type watcher struct {
	messages int
	lines    []pulse.Line
	dropped  int64
}

func (w *watcher) receive(l pulse.Lines) {
	w.messages++
	w.lines = append(w.lines, l.Lines...)
	w.dropped += l.Dropped
}

// offer finishes n requests with a status.
func offer(t *Tails, n, status int) {
	for i := range n {
		if open := t.Open(); open != nil {
			open.Offer(&pulse.Line{RequestID: strconv.Itoa(i), Status: status})
		}
	}
}

func TestTailReceivesTheRequestsThatItSelects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tails, all, refused := New(), &watcher{}, &watcher{}
		defer tails.Close()
		offer(tails, 1, 200) // before anybody watches
		tails.Follow(pulse.Tail{ID: "all"}, all.receive)
		tails.Follow(pulse.Tail{ID: "refused", Filter: pulse.Filter{Class: 4}}, refused.receive)
		offer(tails, 3, 200)
		offer(tails, 2, 402)
		time.Sleep(pulse.TailBatch)
		synctest.Wait()
		if len(all.lines) != 5 || all.messages != 1 || len(refused.lines) != 2 {
			t.Errorf("%d lines in %d messages, and %d; want 5 in one, and 2", len(all.lines), all.messages, len(refused.lines))
		}
		tails.Follow(pulse.Tail{ID: "all", Closed: true}, all.receive)
		tails.Follow(pulse.Tail{ID: "refused", Closed: true}, refused.receive)
		if tails.Open() != nil {
			t.Error("a tail is open after all were closed")
		}
	})
}

func TestTailEndsUnlessItIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tails, w := New(), &watcher{}
		for range 5 {
			tails.Follow(pulse.Tail{ID: "one"}, w.receive)
			time.Sleep(pulse.TailRenewal)
		}
		if tails.Open() == nil {
			t.Error("the tail has ended although it was renewed")
		}
		time.Sleep(pulse.TailEnd)
		synctest.Wait()
		if tails.Open() != nil {
			t.Error("the tail is open although nobody has renewed it")
		}
	})
}

func TestLinesBeyondTheRateAreCountedAsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tails, w := New(), &watcher{}
		defer tails.Close()
		tails.Follow(pulse.Tail{ID: "one"}, w.receive)
		for range 2 {
			offer(tails, pulse.MaxLines+30, 200)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if len(w.lines) != 2*pulse.MaxLines || w.dropped != 60 {
			t.Errorf("%d lines, %d dropped; want %d and 60", len(w.lines), w.dropped, 2*pulse.MaxLines)
		}
	})
}

func TestTailsAreBounded(t *testing.T) {
	t.Parallel()
	tails, w := New(), &watcher{}
	defer tails.Close()
	for i := range maxTails + 5 {
		tails.Follow(pulse.Tail{ID: strconv.Itoa(i)}, w.receive)
	}
	if n := len(tails.Open().tails); n != maxTails {
		t.Errorf("%d tails are open; want %d", n, maxTails)
	}
}

// A request pays for nobody's watching.
func TestAskingForOpenTailsAllocatesNothing(t *testing.T) {
	tails := New()
	if n := testing.AllocsPerRun(100, func() { offer(tails, 1, 200) }); n != 0 {
		t.Errorf("%v allocations; want none", n)
	}
}
