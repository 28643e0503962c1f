// Package failover attempts the routes of a request, one after the other, and applies the failures of providers to the
// circuit breakers and cooldowns of routes and credentials.
package failover

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
)

// MaxAttempts is the greatest number of choices that are attempted for one request.
const MaxAttempts = 3

// Caller calls routes for one request.
type Caller interface {
	// Context ends when nobody waits for the request any more.
	Context() context.Context
	// Ready returns an error if the request must not, or need not, be attempted any more.
	Ready() error
	// Call makes one attempt. A *provider.Failure says whether another route may serve the request; any other error
	// ends the request. last says that no further attempt can follow.
	Call(choice route.Choice, attempt *route.Attempt, last bool) error
	// Skipped records that a route is not called. The reason is one of package event.
	Skipped(choice route.Choice, reason string)
}

// Request is a request whose routes are tried.
type Request struct {
	ID, Account string
	// Choices are the routes with their credentials, best first.
	Choices []route.Choice
}

// Failures holds the failures of the attempts of a request that no route has served.
type Failures struct {
	// Last is the failure of the last attempt, nil if no route could be called.
	Last *provider.Failure
	// RateLimited is the last failure that was a rate limit, nil if there was none. It is set only if every failure
	// allowed failover.
	RateLimited *provider.Failure
	// Retryable is the last failure that was not about the request, nil if there was none; Refused is the first one that was. They
	// are set only if every failure allowed failover.
	Retryable, Refused *provider.Failure
}

// ForClient returns the failure that the client gets, nil if no route could be called: one that a retry may cure if there was
// one, otherwise the refusal of the best route.
func (f *Failures) ForClient() *provider.Failure {
	return cmp.Or(f.RateLimited, f.Retryable, f.Refused, f.Last)
}

// note notes a failure after which another route may serve the request.
func (f *Failures) note(failure *provider.Failure) {
	f.Last = failure
	switch {
	case isRateLimited(failure):
		f.RateLimited = failure
	case !failure.OfRoute && !failure.OfAccount:
		f.Retryable = failure
	case f.Refused == nil:
		f.Refused = failure
	}
}

// Tries attempts routes. It is safe for concurrent use.
type Tries struct {
	Picker  *route.Picker
	Metrics *meter.Metrics
	Log     *slog.Logger
}

// Try attempts one route after the other until one serves the request. If the attempts fail because of the
// providers, it returns their failures. If the request was served, both results are nil. Any other end of the request
// is the error.
func (t *Tries) Try(q Request, caller Caller) (*Failures, error) {
	var failures Failures
	var failed, class string // the provider and the error class of the failed attempt
	left := leftChoices{choices: q.Choices}
	for tried := 1; tried <= MaxAttempts; tried++ {
		choice, ok := left.next()
		if !ok {
			break
		}

		turn, ok := t.Picker.AwaitTurn(caller.Context(), choice, q.Account, tried == MaxAttempts || left.isLast(&choice))
		if err := caller.Ready(); err != nil {
			return nil, err
		}

		if !ok {
			failures.note(provider.NoTurnFailure(t.Picker.Pause(choice)))
			caller.Skipped(choice, event.SkippedTurn)
			continue
		}

		attempt, ok := t.Picker.Begin(choice.ID)
		if !ok {
			// The circuit breaker has opened since the routes were ordered, or another request is its probe.
			caller.Skipped(choice, event.SkippedBreaker)
			left.drop(choice.ID)
			continue
		}

		if failed != "" {
			t.Metrics.RecordFailover(failed, class)
		}

		failure, confirmed, err := t.tryRoute(&q, choice, &attempt, caller, tried == MaxAttempts || !left.hasOther(choice.ID))
		if failure == nil {
			return nil, err
		}
		if confirmed && isRateLimited(failure) {
			turn.Refused()
		}
		if !failure.Failover {
			return &Failures{Last: failure}, nil
		}

		if !isRateLimited(failure) && failure.CredentialCooldown == 0 && !failure.OfAccount {
			left.drop(choice.ID) // another credential would not help
		}
		failures.note(failure)
		failed, class = choice.Provider.ID, failure.Class
	}

	all := failures // a copy, so that a request without a failure costs no memory
	return &all, nil
}

// leftChoices are the choices that have not been tried.
type leftChoices struct {
	choices []route.Choice
	dropped [MaxAttempts]string // ids of routes
	drops   int
}

// next returns the best choice that is left, and removes it.
func (l *leftChoices) next() (choice route.Choice, ok bool) {
	for i := range l.choices {
		if choice = l.choices[i]; !slices.Contains(l.dropped[:l.drops], choice.ID) {
			l.choices = l.choices[i+1:]
			return choice, true
		}
	}
	return route.Choice{}, false
}

// drop removes the other choices of a route.
func (l *leftChoices) drop(id string) {
	l.dropped[l.drops] = id
	l.drops++
}

// isLast reports whether a choice is the last one, or the last one without a cooldown: a request rather waits for its
// turn than to call a route that has failed lately.
func (l *leftChoices) isLast(choice *route.Choice) bool {
	after := *l
	next, ok := after.next()
	return !ok || !choice.Cooling() && next.Cooling()
}

// hasOther reports whether a choice of another route is left.
func (l *leftChoices) hasOther(id string) bool {
	after := *l
	for next, ok := after.next(); ok; next, ok = after.next() {
		if next.ID != id {
			return true
		}
	}
	return false
}

// isRateLimited reports whether a provider refused the call because of a rate limit.
func isRateLimited(f *provider.Failure) bool { return f.Client.Status == http.StatusTooManyRequests }

// tryRoute makes one attempt and records its result for the route and the credential. It returns a failure of the
// provider as the failure, with whether it concerns more than this account's requests, and any other as the error.
func (t *Tries) tryRoute(
	q *Request,
	choice route.Choice,
	attempt *route.Attempt,
	caller Caller,
	last bool,
) (_ *provider.Failure, confirmed bool, _ error) {
	defer attempt.End()
	err := caller.Call(choice, attempt, last)
	if failure := FailureOf(err); failure != nil {
		return failure, t.recordFailure(q, choice, failure, attempt), nil
	}
	if err == nil {
		attempt.Succeeded()
		t.Picker.RecordSuccess(choice.ID)
		t.Picker.RecordSuccess(choice.Credential.ID)
	}
	return nil, false, err
}

// startCooldown keeps calls away from a route after a failure: those with the credential whose rate is limited, or all.
func (t *Tries) startCooldown(choice route.Choice, f *provider.Failure) {
	if isRateLimited(f) {
		t.Picker.StartPause(choice, f.RouteCooldown)
	} else {
		t.Picker.StartCooldown(choice.ID, f.RouteCooldown)
	}
}

// FailureOf returns the provider's failure in an error. It returns nil if the gateway ended the call because of the
// client or its key, whatever error the call then returned.
func FailureOf(err error) *provider.Failure {
	if err == nil {
		return nil
	}
	var ended *apierr.Error
	var failure *provider.Failure
	if errors.As(err, &ended) || !errors.As(err, &failure) {
		return nil
	}
	return failure
}

// ReasonOf returns why an attempt failed: the error class of the provider's failure, or "ended" if the gateway ended the
// call. It is empty without an error.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	if failure := FailureOf(err); failure != nil {
		return failure.Class
	}
	return "ended"
}

// recordFailure applies a failure to the route's circuit breaker and to the cooldowns, and logs it. It reports whether the
// failure concerns more than the requests of the account: a doubtful one does if another account had one, too.
func (t *Tries) recordFailure(q *Request, choice route.Choice, f *provider.Failure, attempt *route.Attempt) (confirmed bool) {
	t.Metrics.RecordAttempt(choice.Provider.ID, choice.ID, f.Class)
	if f.Limit != "" {
		t.Metrics.RecordTimeout(choice.Provider.ID, f.Limit)
	}
	t.Picker.RecordFailure(choice.ID, f.Class)
	account := q.Account
	confirmed = true
	switch {
	case f.RouteCooldown > 0:
		if confirmed = !f.Doubtful || t.Picker.Confirm(choice.ID, account); confirmed {
			t.startCooldown(choice, f)
		}
		if isRateLimited(f) {
			attempt.Succeeded() // the route works; clients should see the rate limit, not an unavailable provider
		} else {
			attempt.Failed(f.RouteCooldown, account, f.Doubtful)
		}
	case f.CredentialCooldown > 0:
		if confirmed = !f.Doubtful || t.Picker.Confirm(choice.Credential.ID, account); confirmed {
			t.Picker.RecordRefusal(choice.Credential.ID, f.Refusal, f.CredentialCooldown)
		}
	case f.Answered:
		attempt.Succeeded() // the route works, though it refused this request
	}

	level, text := slog.LevelInfo, "provider call failed"
	if f.Alarm && confirmed {
		level, text = slog.LevelError, "provider refuses the gateway's account"
	}

	t.Log.LogAttrs(context.Background(), level, text,
		slog.String("request_id", q.ID), slog.String("provider", choice.Provider.ID), slog.String("route", choice.ID),
		slog.String("credential", choice.Credential.ID), slog.String("class", f.Class), slog.Any("error", f))

	return confirmed
}
