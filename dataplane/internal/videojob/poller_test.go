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
type fakeQueue struct {
	tasks   chan *Task
	mu      sync.Mutex
	fails   int
	waiters int
	results []string
}

// waiting is how many wait in Next when nothing else goes on.
func (q *fakeQueue) waitingTakers() int {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiters
}

func (q *fakeQueue) addWaiters(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters += n
}

func newQueue() *fakeQueue { return &fakeQueue{tasks: make(chan *Task, 10)} }

func (q *fakeQueue) NextVideoTask(ctx context.Context) (*Task, error) {
	q.mu.Lock()
	failing := q.fails > 0
	if failing {
		q.fails--
	}
	q.mu.Unlock()
	if failing {
		return nil, errNoReply
	}
	q.addWaiters(1)
	defer q.addWaiters(-1)
	select {
	case task := <-q.tasks:
		return task, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("next: %w", ctx.Err())
	}
}

func (q *fakeQueue) addResult(text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.results = append(q.results, text)
}

// put queues a job.
func (q *fakeQueue) put(id string, tries int) {
	q.tasks <- &Task{
		Poll: event.VideoPoll{V: event.Version, ID: id}, Deliveries: tries,
		Acknowledge: func() { q.addResult(id + " done") }, RetryAfter: func(d time.Duration) { q.addResult(id + " later " + d.String()) },
	}
}

func (q *fakeQueue) takeResults() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	notes := q.results
	q.results = nil
	return notes
}

// TestPoller follows a job from its creation to its end.
func TestPoller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := setup(t), newQueue()
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
			{"not sent yet", func() { w.createJob(t, "") }, jobID, "video_1 later 1s"},
			{"queued", func() { w.createJob(t, "up_1"); w.providers.respond(200, providerObject("queued", "")) }, jobID, "video_1 later 1s"},
			{"provider fails", func() { w.providers.respond(500, "{}") }, jobID, "video_1 later 1s"},
			{"provider has had enough", func() { w.providers.respond(429, "{}"); w.providers.header = http.Header{"Retry-After": {"20"}} }, jobID, "video_1 later 20s"},
			{"control plane is down", func() { w.store.down = true }, jobID, "video_1 later 1s"},
			{"cannot be billed", func() {
				w.store.down = false
				w.biller.err = errNoReply
				w.providers.respond(200, providerObject("completed", ""))
			}, jobID, "video_1 later 1s"},
			{"is not recorded", func() { w.biller.err = nil; w.store.failures = 1 }, jobID, "video_1 later 1s"},
			{"completed", func() {}, jobID, "video_1 done"},
			{"ended before", func() { w.providers.respond(500, "{}") }, jobID, "video_1 done"},
		}
		for _, step := range steps {
			step.do()
			q.put(step.id, 1)
			synctest.Wait()
			if diff := cmp.Diff([]string{step.want}, q.takeResults()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
		if got := w.store.job(jobID); got.Status != event.VideoCompleted {
			t.Errorf("got %+v", got)
		}
	})
}

// A queue that fails is left alone for a while, and then asked again.
func TestPollerOutlivesItsQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := setup(t), newQueue()
		q.fails = 2 * concurrentPolls
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		started := time.Now()
		p.Start(t.Context())
		defer p.Stop()
		q.put("video_9", 1)
		for len(q.tasks) > 0 {
			time.Sleep(queueRetryInterval)
			synctest.Wait()
		}
		if waited := time.Since(started); waited != 2*queueRetryInterval {
			t.Errorf("the queue was asked again after %s; want %s", waited, 2*queueRetryInterval)
		}
		if diff := cmp.Diff([]string{"video_9 done"}, q.takeResults()); diff != "" {
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
		w, q := setup(t), newQueue()
		w.createJob(t, "up_1")
		w.Tracker.providers = mute{}
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		defer p.Stop()
		for range concurrentPolls {
			if waits := q.waitingTakers(); waits != 1 {
				t.Fatalf("%d wait for a job; want one", waits)
			}
			q.put(jobID, 1)
		}
		if waits, left := q.waitingTakers(), len(q.tasks); waits != 0 || left != 0 {
			t.Errorf("%d wait and %d jobs are left, with as many as can be asked about at once", waits, left)
		}
	})
}

// Stop waits for what is being asked, and puts it back.
func TestPollerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, q := setup(t), newQueue()
		w.createJob(t, "up_1")
		asked := make(chan struct{})
		w.Tracker.providers = silentProvider{asked}
		p := NewPoller(w.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		q.put(jobID, 3)
		<-asked
		p.Stop()
		if diff := cmp.Diff([]string{"video_1 later 2.25s"}, q.takeResults()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A provider that does not answer is not waited for without end.
func TestAskIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		v := w.createJob(t, "up_1")
		w.Tracker.providers = silentProvider{make(chan struct{})}
		started := time.Now()
		if got, err := w.Refresh(t.Context(), v); got != v || !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != pollTimeout {
			t.Errorf("got %v, %v after %s", got, err, time.Since(started))
		}
	})
}

func TestPauseGrows(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond, 3375 * time.Millisecond}
	for i, d := range want {
		if got := pollInterval(i + 1); got != d {
			t.Errorf("after %d looks: got %s; want %s", i+1, got, d)
		}
	}
	for _, tries := range []int{10, 1000, 1 << 30} {
		if got := pollInterval(tries); got != maxPollInterval {
			t.Errorf("after %d looks: got %s; want %s", tries, got, maxPollInterval)
		}
	}
	if got := pollInterval(0); got != minPollInterval {
		t.Errorf("before any: got %s", got)
	}
}
