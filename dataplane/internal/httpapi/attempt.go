package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
)

// maxRequest is the longest time from a request to the end of its answer: for
// so long after its admission the control plane keeps its lease.
const maxRequest = 10 * time.Minute

// maxAttempts bounds the routes that are tried for one request.
const maxAttempts = 3

// attempts tries one route after the other until one has begun to answer.
func (j *job) attempts(choices []route.Choice) error {
	var last, limited *provider.Failure
	for i, choice := range choices {
		if i == maxAttempts {
			break
		}
		if err := j.r.Context().Err(); err != nil {
			return j.clientGone(err)
		}
		try, ok := j.s.Picker.Begin(choice.ID)
		if !ok {
			continue // its breaker has opened since, or somebody else tries it
		}
		failure, err := j.tried(choice, &try)
		if failure == nil {
			return err
		}
		last = failure
		if limits(failure) {
			limited = failure
		}
		if !failure.Failover || j.x.wrote {
			return failure
		}
	}
	switch {
	case limited != nil:
		return limited // waiting cures it, and the client should know
	case last == nil:
		return j.noRoute()
	}
	return last
}

// limits tells that a provider has refused because of how much is asked of it.
func limits(f *provider.Failure) bool { return f.Client.Status == http.StatusTooManyRequests }

// tried is attempt with its consequences for the routes to come. The failure
// is that of the provider; the error is for all else.
func (j *job) tried(choice route.Choice, try *route.Attempt) (*provider.Failure, error) {
	defer try.End()
	err := j.attempt(choice, try)
	if failure := failureOf(err); failure != nil {
		j.judge(choice, failure, try)
		return failure, nil
	}
	if err == nil {
		try.Succeeded()
		j.s.Picker.Restore(choice.ID)
		j.s.Picker.Restore(choice.Secret.ID)
	}
	return nil, err
}

// failureOf is the provider's failure in an error, nil if it is about anything
// else: the client's or the key's own end, whatever it has done to the call.
func failureOf(err error) *provider.Failure {
	if err == nil {
		return nil
	}
	var over *apierr.Error
	var failure *provider.Failure
	if errors.As(err, &over) || !errors.As(err, &failure) {
		return nil
	}
	return failure
}

// noRoute tells that no route can be taken now, and when one may be.
func (j *job) noRoute() error {
	e := *errNoRoute // a copy
	e.RetryAfter = j.s.Picker.Wait(j.routes)
	return &e
}

// judge draws the consequences of a failure for the routes to come.
func (j *job) judge(choice route.Choice, f *provider.Failure, try *route.Attempt) {
	j.s.Metrics.attempt(choice.Provider.ID, f.Class)
	switch {
	case f.RouteAside > 0:
		j.s.Picker.SetAside(choice.ID, f.RouteAside)
		if limits(f) {
			try.Succeeded() // it serves; clients are to hear of the limit, not of a broken provider
		} else {
			try.Failed(f.RouteAside)
		}
	case f.SecretAside > 0:
		j.s.Picker.Refuse(choice.Secret.ID, f.Refusal, f.SecretAside)
	case f.Answered:
		try.Succeeded() // it serves, though not this request
	}
	level, text := slog.LevelInfo, "provider failed"
	if f.Alarm {
		level, text = slog.LevelError, "provider refuses our account"
	}
	j.s.Log.LogAttrs(context.Background(), level, text,
		slog.String("request_id", j.x.id), slog.String("provider", choice.Provider.ID), slog.String("route", choice.ID),
		slog.String("credential", choice.Secret.ID), slog.String("class", f.Class), slog.Any("error", f))
}

// attempt calls one provider and relays its answer.
func (j *job) attempt(choice route.Choice, try *route.Attempt) error {
	j.x.provider, j.x.route = choice.Provider.ID, choice.ID
	body := j.outgoing(choice)
	call := provider.Call{
		Choice: choice, Format: j.dialect.Format(), Path: j.dialect.Format().Path(), Body: body, ContentType: j.request.ContentType(),
		Until: j.x.started.Add(maxRequest), // all attempts together keep within the time that the hold is covered for
	}
	if j.request.Stream {
		call.Accept = "text/event-stream"
	}
	ctx, cancel := j.callContext(choice)
	defer cancel()
	sent := time.Now()
	answer, err := j.s.Providers.Do(ctx, call)
	body.Release() // a stream lasts for minutes; a connection that still sends the body holds it
	j.x.upstream += time.Since(sent)
	j.x.firstByte = time.Since(j.x.started)
	if err != nil {
		return j.clientGone(err)
	}
	a := &attempted{job: j, call: &call, answer: answer, try: try}
	if answer.Status < 200 || answer.Status > 299 {
		return provider.Refused(&call, answer, j.cleaner(choice))
	}
	defer func() { _ = answer.Body.Close() }()
	a.format = j.dialect.NewAnswer(format.AnswerConfig{Request: j.request})
	defer a.format.Release()
	if err := a.relay(cancel); err != nil {
		return j.clientGone(err)
	}
	j.s.Metrics.attempt(choice.Provider.ID, "ok")
	return nil
}

// outgoing assembles the body for a route.
func (j *job) outgoing(choice route.Choice) *provider.Body {
	buffer := getBuffer()
	identity := j.s.Identity.Of(j.x.key.AccountID)
	out := j.request.AppendUpstream((*buffer)[:0], format.Target{
		Model: choice.UpstreamModel, Policy: j.s.policies.ofRoute(j, choice.Route), IdentityFunc: identity.Hash,
		PseudonymFunc: identity.Pseudonym, WantsUser: choice.Provider.WantsUser,
	})
	if &out[0] != &(*j.body.buffer)[0] {
		*buffer = out // grown, perhaps
	}
	j.body.retain() // what goes out may be what came in
	return provider.NewBody(out, func() { putBuffer(buffer); j.body.release() })
}

// callContext is how long a call may go on: a stream as long as its client is
// there, unless the provider bills it to its end anyway; an answer in one
// piece to its end.
func (j *job) callContext(choice route.Choice) (context.Context, context.CancelFunc) {
	ctx := j.r.Context()
	if !j.request.Stream || choice.Provider.KeepsBilling {
		ctx = j.background()
	}
	if !j.request.Stream {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	j.hold.OnRevoke(cancel)
	return ctx, cancel
}

// errClientGone ends a request whose client has left: nobody is left to be
// told.
var errClientGone = apierr.New(499, apierr.None, "The client closed the request.")

// clientGone turns the failure of a call into the client's leaving, if that is
// what ended it.
func (j *job) clientGone(err error) error {
	if j.hold.Revoked() && !j.x.wrote {
		j.finish(outcome{status: event.Revoked, rule: event.RuleNone, answered: errInvalidKey.Status})
		return errInvalidKey.Because(err)
	}
	if j.r.Context().Err() == nil || err == nil {
		return err
	}
	j.finish(outcome{status: event.ClientGone, rule: event.RuleNone, answered: errClientGone.Status})
	return errClientGone.Because(err)
}

func (j *job) cleaner(choice route.Choice) classify.Cleaner {
	return j.s.cleanerOf(choice, j.request.Model)
}

// cleanerOf takes out of a provider's words what tells which provider it is,
// and whose account we use there.
func (s *Server) cleanerOf(choice route.Choice, model string) classify.Cleaner {
	return classify.Cleaner{
		UpstreamModels: []string{choice.UpstreamModel}, ClientModel: model,
		Hidden: []string{choice.Provider.Name, choice.Provider.BaseURL, choice.Secret.Reveal()},
	}
}
