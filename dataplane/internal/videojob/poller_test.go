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

	"modelgateway/shared/event"
)

// fakeQueue delivers the tasks that are put into it and records the result of each.
type fakeQueue struct {
	tasks chan *Task
	mu    sync.Mutex
	// failures is how many calls of NextVideoTask fail.
	failures int
	results  []string
}

func newQueue() *fakeQueue { return &fakeQueue{tasks: make(chan *Task, 10)} }

func (q *fakeQueue) NextVideoTask(ctx context.Context) (*Task, error) {
	q.mu.Lock()
	failing := q.failures > 0
	if failing {
		q.failures--
	}
	q.mu.Unlock()
	if failing {
		return nil, errNoReply
	}
	select {
	case task := <-q.tasks:
		return task, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no task: %w", ctx.Err())
	}
}

func (q *fakeQueue) addResult(text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.results = append(q.results, text)
}

// put adds a task for a job.
func (q *fakeQueue) put(id string, deliveries int) {
	q.tasks <- &Task{
		Poll: event.VideoPoll{V: event.Version, ID: id}, Deliveries: deliveries,
		Acknowledge: func() { q.addResult(id + " acknowledged") }, RetryAfter: func(d time.Duration) { q.addResult(id + " retry after " + d.String()) },
	}
}

func (q *fakeQueue) takeResults() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	results := q.results
	q.results = nil
	return results
}

// The poller polls a job from its creation to its end.
func TestPollerPollsJobUntilItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, q := setup(t), newQueue()
		p := NewPoller(f.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		defer p.Stop()
		steps := []struct {
			name string
			do   func()
			id   string
			want string
		}{
			{"job does not exist", func() {}, "video_9", "video_9 acknowledged"},
			{"not accepted by a provider yet", func() { f.createJob(t, "") }, jobID, "video_1 retry after 1s"},
			{"queued", func() { f.createJob(t, "up_1"); f.providers.respond(200, providerObject("queued", "")) }, jobID, "video_1 retry after 1s"},
			{"provider fails", func() { f.providers.respond(500, "{}") }, jobID, "video_1 retry after 1s"},
			{"provider limits the rate", func() { f.providers.respond(429, "{}"); f.providers.header = http.Header{"Retry-After": {"20"}} }, jobID, "video_1 retry after 20s"},
			{"control plane does not reply", func() { f.store.down = true }, jobID, "video_1 retry after 1s"},
			{"cannot be charged", func() {
				f.store.down = false
				f.charger.err = errNoReply
				f.providers.respond(200, providerObject("completed", ""))
			}, jobID, "video_1 retry after 1s"},
			{"record cannot be written", func() { f.charger.err = nil; f.store.failures = 1 }, jobID, "video_1 retry after 1s"},
			{"completed", func() {}, jobID, "video_1 acknowledged"},
			{"has ended already", func() { f.providers.respond(500, "{}") }, jobID, "video_1 acknowledged"},
		}
		for _, step := range steps {
			step.do()
			q.put(step.id, 1)
			synctest.Wait()
			if diff := cmp.Diff([]string{step.want}, q.takeResults()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
		if got := f.store.job(jobID); got.Status != event.VideoCompleted {
			t.Errorf("got %+v; want a completed job", got)
		}
	})
}

func TestPollerRetriesFailedQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, q := setup(t), newQueue()
		q.failures = 2
		p := NewPoller(f.Tracker, q, slog.New(slog.DiscardHandler))
		started := time.Now()
		p.Start(t.Context())
		defer p.Stop()
		q.put("video_9", 1)
		for len(q.tasks) > 0 {
			time.Sleep(queueRetryInterval)
			synctest.Wait()
		}
		if waited := time.Since(started); waited != 2*queueRetryInterval {
			t.Errorf("the task was received after %s; want %s", waited, 2*queueRetryInterval)
		}
		if diff := cmp.Diff([]string{"video_9 acknowledged"}, q.takeResults()); diff != "" {
			t.Errorf("results of the tasks (-want +got):\n%s", diff)
		}
	})
}

// Stop cancels the polls under way and puts their tasks back.
func TestPollerStopPutsTasksBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, q := setup(t), newQueue()
		f.createJob(t, "up_1")
		called := make(chan struct{})
		f.Tracker.providers = silentProvider{called}
		p := NewPoller(f.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		q.put(jobID, 3)
		<-called
		p.Stop()
		if diff := cmp.Diff([]string{"video_1 retry after 2.25s"}, q.takeResults()); diff != "" {
			t.Errorf("results of the tasks (-want +got):\n%s", diff)
		}
	})
}

func TestPollTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		v := f.createJob(t, "up_1")
		f.Tracker.providers = silentProvider{}
		started := time.Now()
		if got, err := f.Refresh(t.Context(), v); got != v || !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != pollTimeout {
			t.Errorf("got %v, %v after %s; want the job as it was and a timeout after %s", got, err, time.Since(started), pollTimeout)
		}
	})
}

func TestPollIntervalGrows(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond, 3375 * time.Millisecond}
	for i, d := range want {
		if got := pollInterval(i + 1); got != d {
			t.Errorf("after %d deliveries: got %s; want %s", i+1, got, d)
		}
	}
	for _, deliveries := range []int{10, 1000, 1 << 30} {
		if got := pollInterval(deliveries); got != maxPollInterval {
			t.Errorf("after %d deliveries: got %s; want %s", deliveries, got, maxPollInterval)
		}
	}
	if got := pollInterval(0); got != minPollInterval {
		t.Errorf("after 0 deliveries: got %s; want %s", got, minPollInterval)
	}
}
