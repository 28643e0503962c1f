package videojob

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/event"
)

// workQueue is a queue that delivers tasks in their order, and those that were put back again after their delay, as
// NATS does.
type workQueue struct {
	mu    sync.Mutex
	tasks []*Task
	more  chan struct{}
	// receivers is how many calls wait for a task now, most how many waited at a time.
	receivers, most int
}

func newWorkQueue() *workQueue { return &workQueue{more: make(chan struct{}, 1)} }

func (q *workQueue) deliver(task *Task) {
	q.mu.Lock()
	q.tasks = append(q.tasks, task)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// put adds a task of a job that never ends until it is acknowledged.
func (q *workQueue) put(account, id string, deliveries int) {
	q.deliver(&Task{
		Poll: event.VideoPoll{V: event.Version, ID: id, AccountID: account}, Deliveries: deliveries, Acknowledge: func() {},
		RetryAfter: func(d time.Duration) { time.AfterFunc(d, func() { q.put(account, id, deliveries+1) }) },
	})
}

func (q *workQueue) NextVideoTask(ctx context.Context) (*Task, error) {
	q.mu.Lock()
	q.receivers++
	q.most = max(q.most, q.receivers)
	q.mu.Unlock()
	defer func() { q.mu.Lock(); q.receivers--; q.mu.Unlock() }()
	for {
		q.mu.Lock()
		if len(q.tasks) > 0 {
			task := q.tasks[0]
			q.tasks = q.tasks[1:]
			q.mu.Unlock()
			return task, nil
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-ctx.Done():
			return nil, fmt.Errorf("no task: %w", ctx.Err())
		}
	}
}

// hangingProvider answers no poll. It records when the jobs are polled.
type hangingProvider struct {
	mu     sync.Mutex
	polled map[string][]time.Time
}

func (h *hangingProvider) Do(ctx context.Context, call *provider.Call) (*provider.Answer, error) {
	h.mu.Lock()
	h.polled[call.Path] = append(h.polled[call.Path], time.Now())
	h.mu.Unlock()
	<-ctx.Done()
	return nil, provider.CallFailure(call, ctx.Err())
}

func (h *hangingProvider) firstPoll(upstream string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(h.polled["/v1/videos/"+upstream], time.Time{})[0]
}

// crowd starts a Poller whose provider never answers, and queues the jobs of accounts. In the given number of turns,
// each of them as long as a poll may take, it polls the job of a further account whose task comes last.
func crowd(t *testing.T, accounts, jobs, turns int) {
	t.Helper()
	f, q, h := setup(t), newWorkQueue(), &hangingProvider{polled: map[string][]time.Time{}}
	f.Tracker.providers = h
	add := func(account, id string) {
		v := newJob("up_" + id)
		v.ID, v.AccountID = id, account
		f.store.jobs[id] = *v
		q.put(account, id, 1)
	}
	for j := range jobs {
		for a := range accounts {
			add(fmt.Sprint("acc_", a), fmt.Sprintf("video_%d_%d", a, j))
		}
	}
	add("acc_last", "last")
	started := time.Now()
	p := NewPoller(f.Tracker, q, slog.New(slog.DiscardHandler))
	p.Start(t.Context())
	time.Sleep(time.Duration(turns) * pollTimeout)
	synctest.Wait()
	at := h.firstPoll("up_last")
	p.Stop()
	if latest := started.Add(time.Duration(turns) * pollTimeout); at.IsZero() || at.After(latest) {
		t.Errorf("the last account's job was polled at %v; want it by %v", at, latest)
	}
	if q.most != 1 {
		t.Errorf("%d goroutines waited for a task at once; want 1", q.most)
	}
}

// One account's jobs hang at their provider: they leave workers to the other accounts, and their tasks do not stay in
// front of those of others.
func TestJobsOfOneAccountDoNotDelayAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { crowd(t, 1, 10_000, 0) })
}

// Where several accounts take all workers, a further account has the next turn.
func TestAccountsTakeTurnsAtPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { crowd(t, 5, 1_000, 1) })
}

func newTask(account string, n int) *Task {
	return &Task{Poll: event.VideoPoll{ID: fmt.Sprint(account, n), AccountID: account}}
}

func ids(tasks ...*Task) (names []string) {
	for _, task := range tasks {
		if task != nil {
			names = append(names, task.Poll.ID)
		}
	}
	return names
}

func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	w := turns{accounts: map[string]*share{}}
	polled := func() (names []string) {
		for task := w.next(); task != nil; task = w.next() {
			names = append(names, task.Poll.ID)
		}
		return names
	}
	check := func(step string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v; want %v", step, got, want)
		}
	}
	var excess []string
	fill := func(account string, from, to int) []string {
		for i := from; i < to; i++ {
			excess = append(excess, ids(w.add(newTask(account, i)))...)
		}
		return excess
	}
	check("an account fills its part of the waiting ones", fill("a", 0, 9), "a8")
	check("it is polled", polled(), "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7")
	excess = nil
	check("it fills its part again", fill("a", 10, 18))
	check("it has its part of the polls", polled(), "a10", "a11", "a12", "a13")
	check("further accounts wait", append(fill("b", 0, 8), fill("c", 0, 4)...))
	check("one that has less pushes out the newest of the longest", fill("c", 4, 6), "b7", "b6")
	excess = nil
	check("one that has as much goes back", fill("c", 6, 7), "c6")
	check("the free polls go round", polled(), "b0", "c0", "b1", "c1")
	w.done(newTask("a", 0))
	check("an account below its part goes on", polled(), "a14")
	if left := len(w.drain()); left != 11 {
		t.Errorf("%d tasks wait at the end; want 11", left)
	}
}

// Stop puts back what waits for its turn.
func TestPollerStopPutsWaitingTasksBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, q := setup(t), newQueue()
		f.createJob(t, "up_1")
		f.Tracker.providers = silentProvider{}
		p := NewPoller(f.Tracker, q, slog.New(slog.DiscardHandler))
		p.Start(t.Context())
		for range pollsPerAccount + 2 {
			q.put(jobID, 1)
			synctest.Wait()
		}
		p.Stop()
		waiting := 0
		for _, result := range q.takeResults() {
			if result == "video_1 retry after 0s" {
				waiting++
			}
		}
		if waiting != 2 {
			t.Errorf("%d waiting tasks were put back; want 2", waiting)
		}
	})
}
