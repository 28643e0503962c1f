package videojob

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lineTimeout bounds how long a creation waits for others of its account.
const lineTimeout = 10 * time.Second

// lines makes the records of new jobs of an account wait for each other. They would do so on the account's row in Postgres: an
// account that creates a hundred jobs at once would occupy all workers and connections of the control plane for video jobs, and
// those of all others would wait behind them and fail.
type lines struct {
	mu       sync.Mutex
	accounts map[string]*line
}

// line is the creations of one account that are recorded or wait; turn has an element while one of them is recorded.
type line struct {
	turn chan struct{}
	in   int
}

// enter waits for the turn of a creation, which leave ends.
func (l *lines) enter(ctx context.Context, account string) (leave func(), err error) {
	l.mu.Lock()
	of := l.accounts[account]
	if of == nil {
		of = &line{turn: make(chan struct{}, 1)}
		l.accounts[account] = of
	}
	of.in++
	l.mu.Unlock()

	timeout := time.NewTimer(lineTimeout)
	defer timeout.Stop()
	select {
	case of.turn <- struct{}{}:
		return func() {
			<-of.turn
			l.drop(account, of)
		}, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = fmt.Errorf("other creations of the account took %s", lineTimeout)
	}
	l.drop(account, of)
	return nil, err
}

func (l *lines) drop(account string, of *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.in--; of.in == 0 {
		delete(l.accounts, account)
	}
}
