package videojob

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"modelgateway/dataplane/internal/logdedup"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/sleep"
)

// Task is one job on the work queue.
type Task struct {
	Poll event.VideoPoll
	// Tries counts how often the job was taken from the queue, this time included.
	Deliveries int
	// Done takes the job off the queue; Later puts it back for a while.
	Acknowledge func()
	RetryAfter  func(d time.Duration)
}

// Queue hands out jobs, each to one proxy at a time.
type Queue interface {
	// Next waits for a job. It returns an error when ctx ends.
	NextVideoTask(ctx context.Context) (*Task, error)
}

const (
	// pollers is how many jobs a proxy asks about at once.
	concurrentPolls = 16
	// firstPause is the pause after the first look; it grows to maxPause.
	minPollInterval = time.Second
	maxPollInterval = 30 * time.Second
	// queuePause follows a queue that fails.
	queueRetryInterval = time.Second
)

// Poller works off the queue, whether or not clients ask.
type Poller struct {
	tracker *Tracker
	queue   Queue
	log     *slog.Logger
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	// taking is full while one waits for a job: the queue bounds how many may, of all proxies.
	receiving chan struct{}
}

// NewPoller returns a Poller that is not started.
func NewPoller(t *Tracker, q Queue, log *slog.Logger) *Poller {
	return &Poller{tracker: t, queue: q, log: log, receiving: make(chan struct{}, 1)}
}

// Start polls until Stop.
func (p *Poller) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	for range concurrentPolls {
		p.tasks.Go(func() { p.run(ctx) })
	}
}

// Stop ends polling; what was taken from the queue and not finished comes to
// another proxy.
func (p *Poller) Stop() {
	p.stop()
	p.tasks.Wait()
}

func (p *Poller) run(ctx context.Context) {
	var trouble logdedup.Filter
	for ctx.Err() == nil {
		task, err := p.nextTask(ctx)
		if ctx.Err() != nil {
			return
		}
		if trouble.IsNew(err) {
			p.log.Warn("take video job", slog.Any("error", err))
		}
		if err != nil {
			sleep.For(ctx, queueRetryInterval)
			continue
		}
		p.poll(ctx, task)
	}
}

func (p *Poller) nextTask(ctx context.Context) (*Task, error) {
	select {
	case p.receiving <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.receiving }()
	return p.queue.NextVideoTask(ctx)
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
	if err != nil && ctx.Err() == nil {
		p.log.Warn("poll video job", slog.String("video_id", task.Poll.ID), slog.Any("error", err))
	}
	if err == nil && v.Ended() {
		task.Acknowledge()
		return
	}
	task.RetryAfter(max(pollInterval(task.Deliveries), providerCooldown(err)))
}

// aside is for how long a provider that has refused to answer should be left
// alone: however many jobs are due, they are asked about as fast as it allows.
func providerCooldown(err error) time.Duration {
	var failure *provider.Failure
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.RouteCooldown
}

// pauseAfter grows by half with each look.
func pollInterval(tries int) time.Duration {
	d := minPollInterval
	for range tries - 1 {
		if d += d / 2; d >= maxPollInterval {
			return maxPollInterval
		}
	}
	return d
}
