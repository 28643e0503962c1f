package videojob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/event"
)

// queue hands out what is put into it and notes what becomes of each task.
type queue struct {
	tasks chan *Task
	mu    sync.Mutex
	fails int
	waits int
	notes []string
}

// waiting is how many wait in Next when nothing else goes on.
func (q *queue) waiting() int {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits
}

func (q *queue) wait(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits += n
}

func newQueue() *queue { return &queue{tasks: make(chan *Task, 10)} }

func (q *queue) Next(ctx context.Context) (*Task, error) {
	q.mu.Lock()
	failing := q.fails > 0
	if failing {
		q.fails--
	}
	q.mu.Unlock()
	if failing {
		return nil, errDown
	}
	q.wait(1)
	defer q.wait(-1)
	select {
	case task := <-q.tasks:
		return task, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("next: %w", ctx.Err())
	}
}

func (q *queue) note(text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notes = append(q.notes, text)
}

// put queues a job.
func (q *queue) put(id string, tries int) {
	q.tasks <- &Task{
		Poll: event.VideoPoll{V: event.Version, ID: id}, Tries: tries,
		Done: func() { q.note(id + " done") }, Later: func(d time.Duration) { q.note(id + " later " + d.String()) },
	}
}

func (q *queue) taken() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	notes := q.notes
	q.notes = nil
	return notes
}

// TestPoller follows a job from its creation to its end.
func TestPoller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(t), newQueue()
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		defer p.Stop()
		steps := []struct {
			name string
			do   func()
			id   string
			want string
		}{
			{"no such job", func() {}, "video_9", "video_9 done"},
			{"not sent yet", func() { w.job(t, "") }, jobID, "video_1 later 1s"},
			{"queued", func() { w.job(t, "up_1"); w.providers.says(200, said("queued", "")) }, jobID, "video_1 later 1s"},
			{"provider fails", func() { w.providers.says(500, "{}") }, jobID, "video_1 later 1s"},
			{"provider has had enough", func() { w.providers.says(429, "{}"); w.providers.header = http.Header{"Retry-After": {"20"}} }, jobID, "video_1 later 20s"},
			{"control plane is down", func() { w.records.down = true }, jobID, "video_1 later 1s"},
			{"cannot be billed", func() { w.records.down = false; w.bills.err = errDown; w.providers.says(200, said("completed", "")) }, jobID, "video_1 later 1s"},
			{"is not recorded", func() { w.bills.err = nil; w.records.fails = 1 }, jobID, "video_1 later 1s"},
			{"completed", func() {}, jobID, "video_1 done"},
			{"ended before", func() { w.providers.says(500, "{}") }, jobID, "video_1 done"},
		}
		for _, step := range steps {
			step.do()
			q.put(step.id, 1)
			synctest.Wait()
			if diff := cmp.Diff([]string{step.want}, q.taken()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
		if got := w.records.job(jobID); got.Status != event.VideoCompleted {
			t.Errorf("got %+v", got)
		}
	})
}

// A queue that fails is left alone for a while, and then asked again.
func TestPollerOutlivesItsQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(t), newQueue()
		q.fails = 2 * pollers
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		started := time.Now()
		p.Start(t.Context())
		defer p.Stop()
		q.put("video_9", 1)
		for len(q.tasks) > 0 {
			time.Sleep(queuePause)
			synctest.Wait()
		}
		if waited := time.Since(started); waited != 2*queuePause {
			t.Errorf("the queue was asked again after %s; want %s", waited, 2*queuePause)
		}
		if diff := cmp.Diff([]string{"video_9 done"}, q.taken()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// mute never answers.
type mute struct{}

func (mute) Do(ctx context.Context, call provider.Call) (*provider.Answer, error) {
	<-ctx.Done()
	return nil, provider.CallFailure(&call, ctx.Err())
}

// Many jobs are asked about at once, and one poller at a time waits for the
// next one.
func TestPollersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(t), newQueue()
		w.job(t, "up_1")
		w.Tracker.providers = mute{}
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		defer p.Stop()
		for range pollers {
			if waits := q.waiting(); waits != 1 {
				t.Fatalf("%d wait for a job; want one", waits)
			}
			q.put(jobID, 1)
		}
		if waits, left := q.waiting(), len(q.tasks); waits != 0 || left != 0 {
			t.Errorf("%d wait and %d jobs are left, with as many as can be asked about at once", waits, left)
		}
	})
}

// Stop waits for what is being asked, and puts it back.
func TestPollerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(t), newQueue()
		w.job(t, "up_1")
		asked := make(chan struct{})
		w.Tracker.providers = stalled{asked}
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		q.put(jobID, 3)
		<-asked
		p.Stop()
		if diff := cmp.Diff([]string{"video_1 later 2.25s"}, q.taken()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A provider that does not answer is not waited for without end.
func TestAskIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := w.job(t, "up_1")
		w.Tracker.providers = stalled{make(chan struct{})}
		started := time.Now()
		if got, err := w.Refresh(t.Context(), v); got != v || !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != askTimeout {
			t.Errorf("got %v, %v after %s", got, err, time.Since(started))
		}
	})
}

func TestPauseGrows(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond, 3375 * time.Millisecond}
	for i, d := range want {
		if got := pauseAfter(i + 1); got != d {
			t.Errorf("after %d looks: got %s; want %s", i+1, got, d)
		}
	}
	for _, tries := range []int{10, 1000, 1 << 30} {
		if got := pauseAfter(tries); got != maxPause {
			t.Errorf("after %d looks: got %s; want %s", tries, got, maxPause)
		}
	}
	if got := pauseAfter(0); got != firstPause {
		t.Errorf("before any: got %s", got)
	}
}
