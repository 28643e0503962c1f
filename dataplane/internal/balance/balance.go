// Package balance reads the figures of GET /v1/balance from the control plane.
//
// A query costs the control plane a read of Postgres and a question to every proxy,
// and clients may ask as often as they like. So the figures of a key are used for
// MaxAge, and an account has at most maxQueries queries under way.
package balance

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"modelgateway/shared/wire"
)

const (
	// MaxAge is how old figures may be, counted from when their query began.
	MaxAge = 250 * time.Millisecond
	// maxQueries bounds the queries of one account that are under way.
	maxQueries = 2
	// queryTimeout bounds a query together with the wait for its turn.
	queryTimeout = 5 * time.Second
)

// Source answers queries.
type Source interface {
	Balance(ctx context.Context, q *wire.BalanceRequest) (*wire.BalanceResponse, error)
}

// maxIdle bounds the accounts without a query under way that are kept, and the keys
// of an account.
const maxIdle = 1024

// Reader reads balances. It is safe for concurrent use.
type Reader struct {
	source Source
	now    func() time.Time

	mu       sync.Mutex
	accounts map[string]*account
}

// account has the queries of one account.
type account struct {
	// turns has an element per query under way.
	turns chan struct{}
	// users counts the requests that wait for a query or for a turn, and the queries under way.
	users int
	// queries has the last query of each key, by key id.
	queries map[string]*query
}

// query is one query and its result.
type query struct {
	begun time.Time
	// done is closed when the result is set.
	done     chan struct{}
	response *wire.BalanceResponse
	err      error
}

// NewReader returns a Reader. A nil now is time.Now.
func NewReader(source Source, now func() time.Time) *Reader {
	if now == nil {
		now = time.Now
	}
	return &Reader{source: source, now: now, accounts: map[string]*account{}}
}

// Of returns the figures of an account and one of its keys. They are those of a
// query that began at most MaxAge ago. The response must not be changed.
func (r *Reader) Of(ctx context.Context, accountID, keyID string) (*wire.BalanceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, q := r.enter(accountID, keyID)
	defer r.leave(a)

	if q == nil {
		select {
		case a.turns <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("balance: too many queries of the account: %w", ctx.Err())
		}
		q = r.begin(ctx, a, accountID, keyID)
	}

	select {
	case <-q.done:
		return q.response, q.err
	case <-ctx.Done():
		return nil, fmt.Errorf("balance: wait for a query: %w", ctx.Err())
	}
}

// enter returns an account, and the query of the key if it began recently enough.
func (r *Reader) enter(accountID, keyID string) (*account, *query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, now := r.accounts[accountID], r.now()
	if a == nil {
		if len(r.accounts) >= maxIdle {
			r.dropIdle(now)
		}
		a = &account{turns: make(chan struct{}, maxQueries), queries: map[string]*query{}}
		r.accounts[accountID] = a
	}
	a.users++
	return a, a.recent(keyID, now)
}

func (r *Reader) leave(a *account) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.users--
}

// dropIdle drops the accounts that nobody uses and whose figures are too old.
func (r *Reader) dropIdle(now time.Time) {
	for id, a := range r.accounts {
		if a.users > 0 {
			continue
		}
		if a.dropOld(now); len(a.queries) == 0 {
			delete(r.accounts, id)
		}
	}
}

func (a *account) dropOld(now time.Time) {
	maps.DeleteFunc(a.queries, func(_ string, q *query) bool { return now.Sub(q.begun) >= MaxAge })
}

func (a *account) recent(keyID string, now time.Time) *query {
	if q := a.queries[keyID]; q != nil && now.Sub(q.begun) < MaxAge {
		return q
	}
	return nil
}

// begin starts a query, which ends the caller's turn, unless another request has
// begun one while the caller waited for its turn. The query does not end with the
// request: others may wait for it.
func (r *Reader) begin(ctx context.Context, a *account, accountID, keyID string) *query {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if q := a.recent(keyID, now); q != nil {
		<-a.turns
		return q
	}

	if len(a.queries) >= maxIdle {
		a.dropOld(now)
	}

	q := &query{begun: now, done: make(chan struct{})}
	a.queries[keyID] = q
	a.users++

	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
		defer cancel()
		q.response, q.err = r.source.Balance(ctx, &wire.BalanceRequest{V: wire.Version, AccountID: accountID, KeyID: keyID})
		close(q.done)
		<-a.turns
		r.leave(a)
	}()

	return q
}
