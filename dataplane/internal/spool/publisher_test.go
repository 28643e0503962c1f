package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/event"
)

// stream keeps what is published; down, it takes nothing and says so late.
type fakeStream struct {
	mu      sync.Mutex
	down    bool
	batches []event.Batch
	ids     map[string]bool
	at      []time.Time
}

func (s *fakeStream) PublishUsage(ctx context.Context, session int64, id string, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	}
	var b event.Batch
	if err := json.Unmarshal(payload, &b); err != nil {
		return err
	}
	if b.Session != session || b.BatchID != id || s.ids[id] {
		return errors.New("the batch contradicts its message, or repeats an id")
	}
	s.ids[id] = true
	s.batches, s.at = append(s.batches, b), append(s.at, time.Now())
	return nil
}

func (s *fakeStream) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// sizes are the numbers of events by message.
func (s *fakeStream) sizes() (sizes []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		sizes = append(sizes, len(b.Events))
	}
	return sizes
}

func newPublisher(t *testing.T) (*Spool, *fakeStream, *Publisher) {
	t.Helper()
	s, _, _ := setup(t)
	s.cfg.MaxEvents = 10_000
	to := &fakeStream{ids: map[string]bool{}}
	return s, to, NewPublisher(s, to, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func finishMany(t *testing.T, s *Spool, from, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("r", from+i)
		finish(start(t, s, 1, id), 1, id, 1)
	}
}

func TestPublisherGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, to, p := newPublisher(t)
		p.Start(t.Context())
		begun := time.Now()
		finishMany(t, s, 0, 600)
		synctest.Wait()
		if len(to.sizes()) != 0 {
			t.Error("published before others could join")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]int{500, 100}, to.sizes()); diff != "" {
			t.Errorf("events by message (-want +got):\n%s", diff)
		}
		if waited := to.at[0].Sub(begun); waited > 100*time.Millisecond {
			t.Errorf("waited for %v", waited)
		}
		settle(s, 1, 600)
		time.Sleep(time.Hour)
		if len(to.sizes()) != 2 {
			t.Error("settled events were published again")
		}
		p.Stop()
	})
}

func TestPublisherOutlastsTheStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, to, p := newPublisher(t)
		to.setDown(true)
		p.Start(t.Context())
		finishMany(t, s, 0, 20)
		time.Sleep(30 * time.Minute)
		to.setDown(false)
		time.Sleep(publishTimeout + publishInterval)
		synctest.Wait()
		settle(s, 1, 20)
		p.Stop()
		if got := to.sizes(); len(got) == 0 || got[0] != 20 {
			t.Errorf("events by message: %v; want all 20 in the first", got)
		}
	})
}

// A lost watermark, or a lost tail of the stream, is made good by publishing
// again; a stream that was made anew gets all at once.
func TestPublisherRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, to, p := newPublisher(t)
		p.Start(t.Context())
		finishMany(t, s, 0, 2)
		time.Sleep(3200 * time.Millisecond)
		settle(s, 1, 1)
		s.Republish()
		time.Sleep(batchDelay)
		synctest.Wait()
		if diff := cmp.Diff([]int{2, 2, 1}, to.sizes()); diff != "" {
			t.Errorf("events by message (-want +got):\n%s", diff)
		}
		p.Stop()
	})
}

// Stop cuts the publishing that hangs, and publishes the rest if it can.
func TestPublisherStop(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("down ", down), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, to, p := newPublisher(t)
				to.setDown(true)
				p.Start(t.Context())
				finishMany(t, s, 0, 3)
				time.Sleep(time.Second) // one is under way
				to.setDown(down)
				begun := time.Now()
				p.Stop()
				want := []int{3}
				if down {
					want = nil
				}
				if diff := cmp.Diff(want, to.sizes()); diff != "" {
					t.Errorf("events by message (-want +got):\n%s", diff)
				}
				if took := time.Since(begun); took > publishTimeout {
					t.Errorf("took %v", took)
				}
				if got := s.UsedCapacity(); got != 3 {
					t.Errorf("%d events are kept; want 3", got)
				}
			})
		})
	}
}
