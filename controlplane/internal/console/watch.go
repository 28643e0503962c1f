package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

const (
	// needsFor is how long the list of what needs somebody is shown before it is read again.
	needsFor = 15 * time.Second
	// readNeedsWithin bounds the reading. A page waits for it, at most needsWait if it has an older list to show.
	readNeedsWithin, needsWait = 10 * time.Second, time.Second
)

// watch holds what every page shows about the state of the system. The first page after needsFor reads it again.
type watch struct {
	api *adminclient.Client
	now func() time.Time
	// outage is that of the console.
	outage *outage

	mu     sync.Mutex
	last   *kit.Health
	readAt time.Time
	// reading is closed when the list has been read; nil while nobody reads it.
	reading chan struct{}
}

// health returns the state of the system as the person may see it. While the database does not answer, it is the last that
// was read.
func (c *Console) health(r *kit.Request) *kit.Health {
	if !r.Session.Remembered {
		return c.watch.health(r)
	}

	now := time.Now()
	h := &kit.Health{At: now}
	if last := c.watch.kept(); last != nil && r.May(kit.Observe) {
		*h = *last
	}
	outage := c.outage.banner(now)
	h.Outage = &outage
	return h
}

// kept returns the last list; nil if there is none.
func (w *watch) kept() *kit.Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// health returns the state of the system for a person who may observe it, otherwise nil.
func (w *watch) health(r *kit.Request) *kit.Health {
	if !r.May(kit.Observe) {
		return nil
	}

	w.mu.Lock()
	last, reading := w.last, w.reading
	if last != nil && w.now().Sub(w.readAt) < needsFor {
		w.mu.Unlock()
		return last
	}

	if reading == nil {
		reading = make(chan struct{})
		w.reading = reading
		go w.renew(context.WithoutCancel(r.Context()), reading) // others see the result, too
	}
	w.mu.Unlock()

	patience := readNeedsWithin
	if last != nil {
		patience = needsWait
	}

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-reading:
	case <-timer.C:
	case <-r.Context().Done():
	}

	return w.kept()
}

// renew reads the list and closes done.
func (w *watch) renew(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, readNeedsWithin)
	defer cancel()
	at := w.now()
	list, checks, away := readNeeds(ctx, w.api)

	w.mu.Lock()
	defer w.mu.Unlock()
	next := &kit.Health{At: at, Needs: list, Checks: checks}
	if away {
		if w.last != nil {
			*next = *w.last // what was known before, rather than the few sources that need no database
		}
		next.Needs = slices.Concat([]kit.Need{{
			Kind:   "bad",
			Text:   "The database does not answer: not everything can be read.",
			Detail: "What has changed since is not known.",
			Since:  w.outage.began(at),
			Link:   kit.Link{Text: "Diagnosis", URL: "/console/diagnosis"},
			Away:   true,
		}}, slices.DeleteFunc(slices.Clone(next.Needs), func(n kit.Need) bool { return n.Away }))
	}

	w.last, w.readAt, w.reading = next, w.now(), nil
	close(done)
}
