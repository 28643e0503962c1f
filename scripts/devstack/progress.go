package devstack

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints messages about the steps of the stack.
type progress struct {
	mu  sync.Mutex
	out io.Writer
}

// sayf prints one message.
func (p *progress) sayf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

const (
	// reminderInterval is the interval of messages about a step that is still running.
	reminderInterval = 10 * time.Second
	// minDuration is the shortest duration of a step that is printed.
	minDuration = time.Second
)

// step runs f and prints a message before it, at intervals while it runs, and with its
// duration after it.
func (p *progress) step(what string, f func() error) error {
	p.sayf("%s ...", what)
	began := time.Now()
	finished := make(chan struct{})
	var reminders sync.WaitGroup
	reminders.Go(func() {
		tick := time.NewTicker(reminderInterval)
		defer tick.Stop()
		for {
			select {
			case <-finished:
				return
			case <-tick.C:
				p.sayf("  still %s (%v)", what, time.Since(began).Round(time.Second))
			}
		}
	})

	err := f()
	close(finished)
	reminders.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if took := time.Since(began); took >= minDuration {
		p.sayf("  done in %v", took.Round(time.Second/10))
	}

	return nil
}
