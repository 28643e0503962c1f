package devstack

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells a person what the stack is doing.
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

// remindEvery is how often a long step says that it is still under way;
// worthTelling is the time from which it is told how long a step took.
const (
	remindEvery  = 10 * time.Second
	worthTelling = time.Second
)

// step runs f, which may take more than a second, with a message before it,
// now and then while it takes long, and when it is done.
func (p *progress) step(what string, f func() error) error {
	p.sayf("%s ...", what)
	began := time.Now()
	finished := make(chan struct{})
	var reminders sync.WaitGroup
	reminders.Go(func() {
		tick := time.NewTicker(remindEvery)
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
	if took := time.Since(began); took >= worthTelling {
		p.sayf("  done in %v", took.Round(time.Second/10))
	}
	return nil
}
