package videojob

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/retry"
)

// Task is a message of the work queue: a video job that is to be polled.
type Task struct {
	Poll event.VideoPoll
	// Deliveries is how often the task was delivered, this time included.
	Deliveries int
	// Acknowledge removes the task from the queue. RetryAfter asks the queue to deliver the task again after a delay.
	// The caller calls one of them, once.
	Acknowledge func()
	RetryAfter  func(d time.Duration)
}

// Queue is the work queue of video jobs. It delivers each task to one proxy at a
// time.
type Queue interface {
	// NextVideoTask waits for a task. It returns an error if ctx ends before.
	NextVideoTask(ctx context.Context) (*Task, error)
}

const (
	// minPollInterval is the delay after the first poll of a job. The delay grows up to maxPollInterval.
	minPollInterval = time.Second
	maxPollInterval = 30 * time.Second
	// minPutBackInterval is the least delay of a task that goes back to the queue without a poll.
	minPutBackInterval = 5 * time.Second
	// queueRetryInterval is the delay after an error of the queue.
	queueRetryInterval = time.Second
)

// Poller polls the jobs of the work queue until they end, whether or not their
// clients ask for them. It receives every task at once, so that no account's task
// waits behind the tasks of another; the accounts take turns, and tasks that are
// too many go back to the queue.
type Poller struct {
	tracker *Tracker
	queue   Queue
	log     *slog.Logger
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	turns   turns
}

// NewPoller returns a Poller that is not started.
func NewPoller(t *Tracker, q Queue, log *slog.Logger) *Poller {
	return &Poller{
		tracker: t,
		queue:   q,
		log:     log,
		turns:   turns{accounts: map[string]*share{}},
	}
}

// Start polls jobs until Stop is called.
func (p *Poller) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.tasks.Go(func() { p.receive(ctx) })
}

// Stop cancels the polls under way and returns when they have ended. Their tasks,
// and those that wait for their turn, are delivered again, to any proxy.
func (p *Poller) Stop() {
	p.stop()
	p.tasks.Wait()
	for _, task := range p.turns.drain() {
		task.RetryAfter(0)
	}
}

// receive takes tasks from the queue. Only one goroutine of a proxy waits for one:
// the queue bounds the waiting requests of all proxies together.
func (p *Poller) receive(ctx context.Context) {
	var repeatedErrors retry.ErrorFilter
	for ctx.Err() == nil {
		task, err := p.queue.NextVideoTask(ctx)
		if task != nil {
			if excess := p.turns.add(task); excess != nil {
				excess.RetryAfter(max(minPutBackInterval, pollInterval(excess.Deliveries)))
			}
			p.startPolls(ctx)
		}

		if ctx.Err() != nil {
			return
		}
		if repeatedErrors.IsNew(err) {
			p.log.Warn("fetch from the work queue of video jobs failed", slog.Any("error", err))
		}
		if err != nil {
			retry.Sleep(ctx, queueRetryInterval)
		}
	}
}

// startPolls polls the tasks whose turn it is.
func (p *Poller) startPolls(ctx context.Context) {
	for ctx.Err() == nil {
		task := p.turns.next()
		if task == nil {
			return
		}
		p.tasks.Go(func() {
			p.poll(ctx, task)
			p.turns.done(task)
			p.startPolls(ctx)
		})
	}
}

func (p *Poller) poll(ctx context.Context, task *Task) {
	v, err := p.tracker.Find(ctx, task.Poll.ID, "")
	if errors.Is(err, ErrNotFound) {
		task.Acknowledge()
		return
	}

	if err == nil {
		v, err = p.tracker.Refresh(ctx, v)
	}
	if err == nil {
		err = p.tracker.ReportLoss(v)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("poll of a video job failed", slog.String("video_id", task.Poll.ID), slog.Any("error", err))
	}

	if err == nil && v.Ended() {
		task.Acknowledge()
		return
	}

	task.RetryAfter(max(pollInterval(task.Deliveries), providerCooldown(err)))
}

// providerCooldown returns the cooldown that follows from a provider's refusal, or
// zero. Without it, polls could be more frequent than the provider allows.
func providerCooldown(err error) time.Duration {
	var failure *provider.Failure
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.RouteCooldown
}

// pollInterval returns the delay after a poll. It grows by half with each delivery.
func pollInterval(deliveries int) time.Duration {
	d := minPollInterval
	for range deliveries - 1 {
		if d += d / 2; d >= maxPollInterval {
			return maxPollInterval
		}
	}
	return d
}
