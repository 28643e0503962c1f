package credential

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Token is what a source has returned: an access token, or the keys that sign requests.
type Token struct {
	// Text is the access token; empty if requests are signed.
	Text string
	// Keys sign requests to a Service in a Region; nil if there is an access token.
	Keys            *aws.Credentials
	Region, Service string
	// Expires is when the provider stops to accept it; zero if that is unknown.
	Expires time.Time
}

// same reports whether a source has returned the same token again, as one with a cache of its own does.
func (t *Token) same(other *Token) bool {
	if t == nil || other == nil || t.Text != other.Text || (t.Keys == nil) != (other.Keys == nil) {
		return false
	}
	return t.Keys == nil || t.Keys.AccessKeyID == other.Keys.AccessKeyID && t.Keys.SessionToken == other.Keys.SessionToken
}

const (
	// fetchTimeout bounds one request for a token.
	fetchTimeout = 15 * time.Second
	// margin is how long before its end a token is not used any more: a call takes a while to arrive, and clocks differ.
	margin = 5 * time.Second
	// lifeUnknown is when a token whose end is unknown is renewed.
	lifeUnknown = 10 * time.Minute
	// minRetry and maxRetry bound the time from a failed renewal to the next one, which doubles. A source that returns the
	// same token is asked again after maxRetry.
	minRetry, maxRetry = time.Second, 30 * time.Second
	// minRejected is the shortest time between two renewals because a provider has rejected the token.
	minRejected = 30 * time.Second
)

// fetchFunc asks for a new token.
type fetchFunc func(ctx context.Context) (Token, error)

// source has the token of one credential.
type source struct {
	fetchFunc fetchFunc
	// observe is called after each renewal: with its error, and whether a valid token is left.
	observe func(err error, valid bool)
	// run runs a renewal in the background. It returns false if the process stops.
	run func(func(ctx context.Context)) bool

	current atomic.Pointer[held]
	// due is when the token is to be renewed, and after a failure when the next attempt may begin, in nanoseconds of the
	// Unix time.
	due atomic.Int64

	mu sync.Mutex
	// running is the renewal on its way, nil if there is none.
	running *renewal
	// failures counts the renewals that have failed since the last success; err is the last error.
	failures int
	err      error
	// rejectedAt is when a provider last rejected a token before its end.
	rejectedAt time.Time
}

// held is a token with the time until which it can be used; zero: without an end.
type held struct {
	Token
	usable time.Time
}

func (h *held) isValid(now time.Time) bool {
	return h != nil && (h.usable.IsZero() || now.Before(h.usable))
}

// renewal is one request for a token, for which several calls may wait.
type renewal struct {
	done chan struct{}
	err  error
}

// token returns a valid token. It waits for a renewal only if there is none.
func (s *source) token(ctx context.Context) (*Token, error) {
	now := time.Now()
	current := s.current.Load()
	valid := current.isValid(now)
	if valid && now.UnixNano() < s.due.Load() {
		return &current.Token, nil
	}

	running, err := s.renew(now)
	if valid {
		return &current.Token, nil
	}
	if err != nil {
		return nil, err
	}
	if running == nil {
		return s.token(ctx) // another call has got one meanwhile
	}

	select {
	case <-running.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if current = s.current.Load(); current.isValid(time.Now()) {
		return &current.Token, nil
	}
	if running.err != nil {
		return nil, running.err
	}
	return nil, errEnded
}

var (
	errEnded   = errors.New("credential: the source has returned a token that has ended")
	errStopped = errors.New("credential: the process stops")
)

// renew returns the renewal on its way, or begins one if it is due: it is not soon after one that has failed, whose error
// is then returned, nor if another call has got a token meanwhile.
func (s *source) renew(now time.Time) (*renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil || now.UnixNano() < s.due.Load() {
		return s.running, s.waiting()
	}

	r := &renewal{done: make(chan struct{})}
	s.running = r
	if !s.run(func(ctx context.Context) { s.fetch(ctx, r) }) {
		s.running = nil
		return nil, errStopped
	}

	return r, nil
}

// waiting is the error of the last renewal while the next one is neither due nor on its way.
func (s *source) waiting() error {
	if s.running != nil {
		return nil
	}
	return s.err
}

// fetch asks the source once.
func (s *source) fetch(ctx context.Context, r *renewal) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	token, err := s.fetchFunc(ctx)
	now := time.Now()
	next := &held{Token: token}
	if err == nil && !token.Expires.IsZero() {
		next.usable = token.Expires.Add(-margin)
		if !next.isValid(now) {
			err = errEnded
		}
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("credential: no answer within %s: %w", fetchTimeout, err)
	}

	s.mu.Lock()
	before := s.current.Load()
	if err == nil {
		s.failures, s.err = 0, nil
		s.current.Store(next)
		s.due.Store(nextRenewal(before, next, now).UnixNano())
	} else {
		s.failures, s.err = s.failures+1, err
		s.due.Store(now.Add(min(minRetry<<min(s.failures-1, 10), maxRetry)).UnixNano())
	}
	s.running, r.err = nil, err
	s.mu.Unlock()

	s.observe(err, s.current.Load().isValid(now))
	close(r.done)
}

// nextRenewal returns when a token that has just come is to be renewed: when a quarter of its life is left, so that a
// source may fail for that long.
func nextRenewal(before, next *held, now time.Time) time.Time {
	switch {
	case next.Expires.IsZero():
		return now.Add(lifeUnknown)
	case before != nil && next.same(&before.Token):
		return now.Add(min(maxRetry, max(next.usable.Sub(now)*3/4, minRetry)))
	}
	return now.Add(next.usable.Sub(now) * 3 / 4)
}

// rejected says that a provider has rejected a token before its end, such as after a revocation. It reports whether a call
// with another token is worth a try; the token is then not used again.
func (s *source) rejected(token *Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	current, now := s.current.Load(), time.Now()
	if current == nil || !current.same(token) {
		return true // another call has been faster
	}
	if !s.rejectedAt.IsZero() && now.Sub(s.rejectedAt) < minRejected {
		return false
	}
	s.rejectedAt = now
	s.current.Store(nil)
	s.due.Store(0)
	return true
}
