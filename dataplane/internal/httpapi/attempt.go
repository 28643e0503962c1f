package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
)

// maxRequestDuration is the longest time from a request to the end of its answer. The control plane keeps the lease of
// an admitted request for this long.
const maxRequestDuration = 10 * time.Minute

// maxAttempts is the greatest number of routes that are attempted for one request.
const maxAttempts = 3

// routeCaller calls routes for one request.
type routeCaller interface {
	// context ends when nobody waits for the request any more.
	context() context.Context
	// ready returns an error if the request must not, or need not, be attempted any more.
	ready() error
	// call makes one attempt. A *provider.Failure says whether another route may serve the request; any other error
	// ends the request.
	call(choice route.Choice, attempt *route.Attempt) error
}

// routeFailures holds the failures of the attempts of a request that no route has served.
type routeFailures struct {
	// last is the failure of the last attempt, nil if no route could be called.
	last *provider.Failure
	// rateLimited is the last failure that was a rate limit, nil if there was none. It is set only if every failure
	// allowed failover.
	rateLimited *provider.Failure
}

// tryRoutes attempts one route after the other until one serves the request. If the attempts fail because of the
// providers, it returns their failures. If the request was served, both results are nil. Any other end of the request
// is the error.
func (s *Server) tryRoutes(x *exchange, choices []route.Choice, caller routeCaller) (*routeFailures, error) {
	var last, rateLimited *provider.Failure
	choices = choices[:min(len(choices), maxAttempts)]
	for i, choice := range choices {
		turn, ok := s.Picker.AwaitTurn(caller.context(), choice, x.key.AccountID, i == len(choices)-1)
		if err := caller.ready(); err != nil {
			return nil, err
		}
		if !ok {
			last = provider.NoTurnFailure(s.Picker.Cooldown(choice.ID))
			rateLimited = last
			continue
		}
		attempt, ok := s.Picker.Begin(choice.ID)
		if !ok {
			continue // the circuit breaker has opened since the routes were ordered, or another request is its probe
		}
		failure, confirmed, err := s.tryRoute(x, choice, &attempt, caller)
		if failure == nil {
			return nil, err
		}
		if confirmed && isRateLimited(failure) {
			turn.Refused()
		}
		if !failure.Failover {
			return &routeFailures{last: failure}, nil
		}
		last = failure
		if isRateLimited(failure) {
			rateLimited = failure
		}
	}
	return &routeFailures{last, rateLimited}, nil
}

// isRateLimited reports whether a provider refused the call because of a rate limit.
func isRateLimited(f *provider.Failure) bool { return f.Client.Status == http.StatusTooManyRequests }

// tryRoute makes one attempt and records its result for the route and the credential. It returns a failure of the
// provider as the failure, with whether it concerns more than this account's requests, and any other as the error.
func (s *Server) tryRoute(x *exchange, choice route.Choice, attempt *route.Attempt, caller routeCaller) (_ *provider.Failure, confirmed bool, _ error) {
	defer attempt.End()
	x.provider, x.route = choice.Provider.ID, choice.ID
	err := caller.call(choice, attempt)
	if failure := failureOf(err); failure != nil {
		return failure, s.recordFailure(x, choice, failure, attempt), nil
	}
	if err == nil {
		attempt.Succeeded()
		s.Picker.RecordSuccess(choice.ID)
		s.Picker.RecordSuccess(choice.Credential.ID)
	}
	return nil, false, err
}

// failureOf returns the provider's failure in an error. It returns nil if the gateway ended the call because of the
// client or its key, whatever error the call then returned.
func failureOf(err error) *provider.Failure {
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

// recordFailure applies a failure to the route's circuit breaker and to the cooldowns, and logs it. It reports whether the
// failure concerns more than the requests of the account: a doubtful one does if another account had one, too.
func (s *Server) recordFailure(x *exchange, choice route.Choice, f *provider.Failure, attempt *route.Attempt) (confirmed bool) {
	s.Metrics.RecordAttempt(choice.Provider.ID, f.Class)
	account := x.key.AccountID
	confirmed = true
	switch {
	case f.RouteCooldown > 0:
		if confirmed = !f.Doubtful || s.Picker.Confirm(choice.ID, account); confirmed {
			s.Picker.StartCooldown(choice.ID, f.RouteCooldown)
		}
		if isRateLimited(f) {
			attempt.Succeeded() // the route works; clients should see the rate limit, not an unavailable provider
		} else {
			attempt.Failed(f.RouteCooldown, account, f.Doubtful)
		}
	case f.CredentialCooldown > 0:
		if confirmed = !f.Doubtful || s.Picker.Confirm(choice.Credential.ID, account); confirmed {
			s.Picker.RecordRefusal(choice.Credential.ID, f.Refusal, f.CredentialCooldown)
		}
	case f.Answered:
		attempt.Succeeded() // the route works, though it refused this request
	}
	level, text := slog.LevelInfo, "provider call failed"
	if f.Alarm && confirmed {
		level, text = slog.LevelError, "provider refuses the gateway's account"
	}
	s.Log.LogAttrs(context.Background(), level, text,
		slog.String("request_id", x.id), slog.String("provider", choice.Provider.ID), slog.String("route", choice.ID),
		slog.String("credential", choice.Credential.ID), slog.String("class", f.Class), slog.Any("error", f))
	return confirmed
}

// context implements routeCaller.
func (g *generationRequest) context() context.Context { return g.incoming.Context() }

// ready implements routeCaller.
func (g *generationRequest) ready() error {
	if err := g.incoming.Context().Err(); err != nil {
		return g.endOfCall(err)
	}
	err := g.server.Admission.Check(g.incoming.Context(), g.key)
	if errors.Is(err, admission.ErrKey) {
		g.finish(outcome{status: event.Revoked, rule: event.RuleNone, answered: errInvalidKey.Status})
	}
	return err
}

// call implements routeCaller: it calls one provider and relays its answer to the client.
func (g *generationRequest) call(choice route.Choice, attempt *route.Attempt) error {
	body := g.upstreamBody(choice)
	call := provider.Call{
		Choice: choice, Format: g.dialect.Format(), Path: g.dialect.Format().Path(), Body: body, ContentType: g.request.ContentType(),
		Beta:     g.request.Beta(g.policyOf(g.routableCatalog, choice.Route)),
		Deadline: g.x.started.Add(maxRequestDuration), // for all attempts together, because the lease covers no more
	}
	if g.request.Stream {
		call.Accept = "text/event-stream"
	}
	ctx, cancel := g.callContext(choice)
	defer cancel()
	sent := time.Now()
	answer, err := g.server.Providers.Do(ctx, call)
	body.Release() // early, because streams last for minutes; a connection that still sends the body holds a reference
	g.x.upstream += time.Since(sent)
	g.x.firstByte = time.Since(g.x.started)
	if err != nil {
		return g.endOfCall(err)
	}
	if answer.Status < 200 || answer.Status > 299 {
		return provider.StatusFailure(&call, answer, g.cleaner(choice))
	}
	defer func() { _ = answer.Body.Close() }()
	r := &relay{generationRequest: g, call: &call, answer: answer, attempt: attempt}
	r.reader = g.dialect.NewAnswer(format.AnswerConfig{Request: g.request})
	defer r.reader.Release()
	if err := r.run(cancel); err != nil {
		if failure := failureOf(err); failure != nil && g.x.wrote {
			failure.Failover = false // the client has a part of this answer
		}
		return g.endOfCall(err)
	}
	g.server.Metrics.RecordAttempt(choice.Provider.ID, "ok")
	return nil
}

// upstreamBody assembles the body for a route. The caller releases it.
func (a *routableRequest) upstreamBody(choice route.Choice) *provider.Body {
	outgoing := buffer.GetSized(outgoingSize(len(a.body.Bytes())))
	identity := a.server.Identity.Of(a.key.AccountID)
	out := a.request.AppendUpstream((*outgoing)[:0], format.Target{
		Model: choice.UpstreamModel, Policy: a.policyOf(a.routableCatalog, choice.Route), Rules: a.rules(), MaxOutput: a.model.MaxOutputTokens, IdentityFunc: identity.Hash,
		PseudonymFunc: identity.Pseudonym, WantsUser: choice.Provider.WantsUser,
	})
	if &out[0] != &a.body.Bytes()[0] {
		*outgoing = out // AppendUpstream may have reallocated it
	}
	a.body.Retain() // out may be the received body itself
	return provider.NewBody(out, func() { buffer.Put(outgoing); a.body.Release() })
}

// outgoingSize is the size of the buffer for a body that is sent on, which is seldom much longer than the received one.
// A very large buffer is allocated when it is needed.
func outgoingSize(received int) int {
	const extra, most = 1 << 10, 4 << 20
	if received > most {
		return 0
	}
	return received + extra
}

// callContext is the context of a call. A stream is canceled when its client has gone, unless the provider charges for
// the whole of it anyway, and when its key is revoked. A non-streaming answer is always read to its end.
func (g *generationRequest) callContext(choice route.Choice) (context.Context, context.CancelFunc) {
	ctx := g.incoming.Context()
	if !g.request.Stream || choice.Provider.KeepsBilling {
		ctx = g.detached()
	}
	if !g.request.Stream {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	g.reservation.OnRevoke(cancel)
	return ctx, cancel
}

func (r *parsedRequest) cleaner(choice route.Choice) classify.Cleaner {
	return cleanerOf(choice, r.request.Model)
}

// cleanerOf returns a Cleaner that removes from a provider's error texts the name and address of the provider and the
// credential of the gateway.
func cleanerOf(choice route.Choice, model string) classify.Cleaner {
	return classify.Cleaner{
		UpstreamModels: []string{choice.UpstreamModel}, ClientModel: model,
		Hidden: []string{choice.Provider.Name, choice.Provider.BaseURL, choice.Credential.Reveal()},
	}
}
