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
	"modelgateway/shared/lease/usagelog"
)

// fakeStream stores batches. While it is down, a publication fails when its
// context ends.
type fakeStream struct {
	mu      sync.Mutex
	down    bool
	batches []event.Batch
	ids     map[string]bool
	at      []time.Time // of each batch
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
		return errors.New("the batch and its message have different ids, or the id is repeated")
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

// sizes returns the number of events of each message.
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
	stream := &fakeStream{ids: map[string]bool{}}
	return s, stream, NewPublisher(s, stream, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func finishMany(t *testing.T, s *Spool, from, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("r", from+i)
		finish(start(t, s, 1, id), 1, id, 1)
	}
}

func TestPublisherBatchesEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stream, p := newPublisher(t)
		p.Start(t.Context())
		begun := time.Now()
		finishMany(t, s, 0, 600)
		synctest.Wait()
		if len(stream.sizes()) != 0 {
			t.Error("an event was published before others could share its message")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]int{500, 100}, stream.sizes()); diff != "" {
			t.Errorf("events by message (-want +got):\n%s", diff)
		}
		if waited := stream.at[0].Sub(begun); waited > 100*time.Millisecond {
			t.Errorf("the first message took %v; want at most 100ms", waited)
		}
		settle(s, 1, 600)
		time.Sleep(time.Hour)
		if len(stream.sizes()) != 2 {
			t.Error("settled events were published again")
		}
		p.Stop()
	})
}

// While events wait for others to share their message, further ones do not wake the publisher: each wake-up would start a
// thread. The time of the next message is that of the first event after this one.
func TestCostsOfAWaitingEventIncludeNoWakeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stream, p := newPublisher(t)
		p.Start(t.Context())
		begun := time.Now()
		finishMany(t, s, 0, 1)
		synctest.Wait()
		finishMany(t, s, 1, 1)
		synctest.Wait()
		if len(s.wake) != 1 {
			t.Error("the second event woke the publisher")
		}
		time.Sleep(3 * usagelog.BatchDelay / 2)
		finishMany(t, s, 2, 1)
		time.Sleep(usagelog.BatchDelay)
		synctest.Wait()
		if diff := cmp.Diff([]int{2, 1}, stream.sizes()); diff != "" {
			t.Fatalf("events by message (-want +got):\n%s", diff)
		}
		if at, want := stream.at[1].Sub(begun), 5*usagelog.BatchDelay/2; at != want {
			t.Errorf("the second message was published after %v; want %v", at, want)
		}
		p.Stop()
	})
}

// An event that is queued while a message is under way is announced again after it.
func TestPublisherSeesEventsThatAreQueuedDuringAPublication(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stream, p := newPublisher(t)
		stream.setDown(true)
		p.Start(t.Context())
		finishMany(t, s, 0, 1)
		time.Sleep(usagelog.BatchDelay)
		synctest.Wait() // the publication is under way
		finishMany(t, s, 1, 1)
		stream.setDown(false)
		time.Sleep(publishTimeout + usagelog.BatchDelay)
		synctest.Wait()
		if diff := cmp.Diff([]int{2}, stream.sizes()); diff != "" {
			t.Errorf("events by message (-want +got):\n%s", diff)
		}
		p.Stop()
	})
}

func TestPublisherRetriesWhileStreamIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stream, p := newPublisher(t)
		stream.setDown(true)
		p.Start(t.Context())
		finishMany(t, s, 0, 20)
		time.Sleep(30 * time.Minute)
		stream.setDown(false)
		time.Sleep(publishTimeout + usagelog.PublishInterval)
		synctest.Wait()
		settle(s, 1, 20)
		p.Stop()
		if got := stream.sizes(); len(got) == 0 || got[0] != 20 {
			t.Errorf("events by message: %v; want all 20 in the first message", got)
		}
	})
}

// An event that is not reported settled in time is published again: the watermark
// or the end of the stream may be lost. After Republish every unsettled event is
// published at once.
func TestPublisherRepeatsUnsettledEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stream, p := newPublisher(t)
		p.Start(t.Context())
		finishMany(t, s, 0, 2)
		time.Sleep(3200 * time.Millisecond)
		settle(s, 1, 1)
		s.Republish()
		time.Sleep(usagelog.BatchDelay)
		synctest.Wait()
		if diff := cmp.Diff([]int{2, 2, 1}, stream.sizes()); diff != "" {
			t.Errorf("events by message (-want +got):\n%s", diff)
		}
		p.Stop()
	})
}

// Stop cancels a publication that hangs and publishes the events that are due,
// unless the stream is still down.
func TestPublisherStopPublishesDueEvents(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("stream down ", down), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, stream, p := newPublisher(t)
				stream.setDown(true)
				p.Start(t.Context())
				finishMany(t, s, 0, 3)
				time.Sleep(time.Second) // a publication is under way
				stream.setDown(down)
				begun := time.Now()
				p.Stop()
				want := []int{3}
				if down {
					want = nil
				}
				if diff := cmp.Diff(want, stream.sizes()); diff != "" {
					t.Errorf("events by message (-want +got):\n%s", diff)
				}
				if took := time.Since(begun); took > publishTimeout {
					t.Errorf("Stop took %v; want at most %v", took, publishTimeout)
				}
				if got := s.UsedCapacity(); got != 3 {
					t.Errorf("the spool has %d unsettled events; want 3", got)
				}
			})
		})
	}
}
