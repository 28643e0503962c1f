package traffic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"modelgateway/shared/pulse"
)

// ErrTooManyTails means that as many tails, or streams of the traffic, are open as may be.
var ErrTooManyTails = errors.New("traffic: too many tails or streams are open")

const (
	// maxTails bounds the tails that are open at one control plane, tailsEach those of one reader.
	maxTails, tailsEach = 10, 3
	// maxWatchers bounds the streams of the traffic at one control plane, watchersEach those of one reader.
	maxWatchers, watchersEach = 50, 25
	// MaxWatch is how long one may watch before one has to ask again, with a token that is still valid.
	MaxWatch = 15 * time.Minute
	// maxWaiting bounds the lines that wait for whoever watches.
	maxWaiting = 1000
)

// TailBus asks the proxies for the lines of a tail.
type TailBus interface {
	// Tail subscribes to the lines of a tail. ask sends the request for it to every proxy, again and again; stop ends the
	// subscription.
	Tail(q pulse.Tail, handle func(proxy string, l *pulse.Lines)) (ask func(q pulse.Tail) error, stop func(), err error)
}

// Tails opens tails.
type Tails struct {
	bus TailBus
	log *slog.Logger
	now func() time.Time

	readers *Readers
	// Watchers are the readers of streams of the traffic.
	Watchers *Readers
}

// NewTails returns Tails without an open one. now is the clock; nil means time.Now.
func NewTails(bus TailBus, log *slog.Logger, now func() time.Time) *Tails {
	if now == nil {
		now = time.Now
	}
	return &Tails{
		bus:      bus,
		log:      log,
		now:      now,
		readers:  NewReaders(maxTails, tailsEach),
		Watchers: NewReaders(maxWatchers, watchersEach),
	}
}

// Line is a finished request and the proxy that it was sent to.
type Line struct {
	Proxy string
	pulse.Line
}

// Tail is an open tail.
type Tail struct {
	tails *Tails
	// reader watches, end ends the requests to the proxies.
	reader string
	end    func()
	// ready has an element when lines wait.
	ready chan struct{}

	mu      sync.Mutex
	lines   []Line
	dropped int64
	second  time.Time
	taken   int
}

// Open opens a tail for a reader. The caller closes it.
func (t *Tails) Open(reader string, f pulse.Filter) (_ *Tail, err error) {
	if err := t.readers.Enter(reader); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.readers.Leave(reader)
		}
	}()

	tail := &Tail{tails: t, reader: reader, ready: make(chan struct{}, 1)}
	q := pulse.Tail{V: pulse.Version, ID: rand.Text(), Filter: f}
	ask, stop, err := t.bus.Tail(q, tail.receive)
	if err != nil {
		return nil, fmt.Errorf("open a tail: %w", err)
	}

	if err := ask(q); err != nil {
		stop()
		return nil, fmt.Errorf("open a tail: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var renewal sync.WaitGroup
	renewal.Go(func() { t.renew(ctx, q, ask) })

	tail.end = func() {
		cancel()
		renewal.Wait()
		q.Closed = true
		_ = ask(q) // a proxy that does not hear it ends the tail by itself
		stop()
	}
	return tail, nil
}

// renew asks for the tail until ctx ends, so that proxies that begin to run also send their lines.
func (t *Tails) renew(ctx context.Context, q pulse.Tail, ask func(pulse.Tail) error) {
	ticker := time.NewTicker(pulse.TailRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := ask(q); err != nil {
			t.log.WarnContext(ctx, "renewing a tail of requests failed", slog.Any("error", err))
		}
	}
}

// Close ends the tail.
func (t *Tail) Close() {
	t.end()
	t.tails.readers.Leave(t.reader)
}

// receive takes the lines of one proxy. Those beyond the rate are dropped.
func (t *Tail) receive(proxy string, l *pulse.Lines) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.tails.now(); now.Sub(t.second) >= time.Second {
		t.second, t.taken = now, 0
	}

	t.dropped += l.Dropped
	for i := range l.Lines {
		if !l.Lines[i].Plausible() {
			t.dropped++
			continue
		}
		if t.taken >= pulse.MaxLines || len(t.lines) >= maxWaiting {
			t.dropped += int64(len(l.Lines) - i)
			break
		}
		t.taken++
		t.lines = append(t.lines, Line{proxy, l.Lines[i]})
	}

	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// Ready has an element when Take has something to return.
func (t *Tail) Ready() <-chan struct{} { return t.ready }

// Take returns the lines since the last call, and how many were dropped.
func (t *Tail) Take() (lines []Line, dropped int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines, dropped = t.lines, t.dropped
	t.lines, t.dropped = nil, 0
	return lines, dropped
}
