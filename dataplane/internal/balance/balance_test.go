package balance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/wire"
)

// controlPlane has a balance and answers each query after a time.
type controlPlane struct {
	mu                     sync.Mutex
	balance                int64
	takes                  time.Duration
	queries, running, most int
	err                    error
}

func (p *controlPlane) Balance(ctx context.Context, _ *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	p.mu.Lock()
	response := &wire.BalanceResponse{Status: wire.Done, Balance: p.balance}
	p.queries++
	p.running++
	p.most = max(p.most, p.running)
	err := p.err
	p.mu.Unlock()
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	p.running--
	p.mu.Unlock()
	return response, err
}

func (p *controlPlane) set(balance int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.balance = balance
}

func want(t *testing.T, r *Reader, key string, balance int64) {
	t.Helper()
	got, err := r.Of(t.Context(), "acc_1", key)
	if err != nil || got.Balance != balance {
		t.Errorf("%s: got %+v, %v; want %d", key, got, err, balance)
	}
}

func TestFiguresAreSharedForTheirMaximumAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &controlPlane{balance: 1, takes: 10 * time.Millisecond}
		r := NewReader(p, nil)
		begun := time.Now()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { want(t, r, "key_1", 1) })
		}
		wg.Wait()
		p.set(2) // a payment
		time.Sleep(MaxAge - time.Since(begun) - 1)
		want(t, r, "key_1", 1)
		if p.queries != 1 {
			t.Errorf("%d queries; want 1", p.queries)
		}
		time.Sleep(time.Nanosecond)
		want(t, r, "key_1", 2)
	})
}

// A query that takes longer than the maximum age is not joined after it: its figures would be too old.
func TestSlowQueryIsNotJoinedAfterTheMaximumAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &controlPlane{balance: 1, takes: 2 * MaxAge}
		r := NewReader(p, nil)
		var wg sync.WaitGroup
		wg.Go(func() { want(t, r, "key_1", 1) })
		time.Sleep(MaxAge)
		p.set(2)
		want(t, r, "key_1", 2)
		wg.Wait()
	})
}

func TestQueriesOfOneAccountAreBoundedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &controlPlane{balance: 1, takes: 900 * time.Millisecond}
		r := NewReader(p, nil)
		var wg sync.WaitGroup
		failed := 0
		var mu sync.Mutex
		for i := range 100 {
			wg.Go(func() {
				if _, err := r.Of(t.Context(), "acc_1", fmt.Sprint("key_", i)); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed++
				}
			})
		}
		synctest.Wait()
		if p.running != maxQueries {
			t.Errorf("%d queries run; want %d", p.running, maxQueries)
		}
		begun := time.Now()
		if _, err := r.Of(t.Context(), "acc_2", "key"); err != nil || time.Since(begun) != p.takes {
			t.Errorf("another account: got %v after %s; want an answer after %s", err, time.Since(begun), p.takes)
		}
		wg.Wait()
		if served := int(queryTimeout/p.takes) * maxQueries; failed != 100-served {
			t.Errorf("%d requests failed; want those beyond the %d that are served in %s", failed, served, queryTimeout)
		}
		time.Sleep(p.takes) // until the last queries have ended
		synctest.Wait()
		if p.most != maxQueries+1 {
			t.Errorf("%d queries ran at once; want %d", p.most, maxQueries+1)
		}
	})
}

func TestQueryGoesOnWithoutTheRequestThatBeganIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &controlPlane{balance: 1, takes: time.Millisecond}
		r := NewReader(p, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.Of(ctx, "acc_1", "key_1"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v; want %v", err, context.Canceled)
			}
		})
		synctest.Wait()
		cancel()
		want(t, r, "key_1", 1)
		wg.Wait()
		if p.queries != 1 {
			t.Errorf("%d queries; want 1", p.queries)
		}
	})
}

func TestFailureIsNotKeptLongerThanFigures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &controlPlane{balance: 1, err: errors.New("no reply")}
		r := NewReader(p, nil)
		if _, err := r.Of(t.Context(), "acc_1", "key_1"); !errors.Is(err, p.err) {
			t.Errorf("got %v; want %v", err, p.err)
		}
		p.err = nil
		time.Sleep(MaxAge)
		want(t, r, "key_1", 1)
	})
}

func TestIdleAccountsAndKeysAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(&controlPlane{}, nil)
		for i := range 3 * maxIdle {
			if _, err := r.Of(t.Context(), fmt.Sprint("acc_", i), "key"); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Of(t.Context(), "acc_same", fmt.Sprint("key_", i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := len(r.accounts); n > maxIdle+1 {
			t.Errorf("%d accounts are kept; want at most %d", n, maxIdle)
		}
		if n := len(r.accounts["acc_same"].queries); n > maxIdle {
			t.Errorf("%d keys of an account are kept; want at most %d", n, maxIdle)
		}
	})
}
