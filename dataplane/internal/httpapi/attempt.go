package httpapi

import (
	"context"
	"errors"
	"slices"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/affinity"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/addedmember"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/httpapi/calls"
	"modelgateway/dataplane/internal/httpapi/failover"
	"modelgateway/dataplane/internal/httpapi/pace"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/event"
)

// tryRequest describes the request to the attempts on its routes.
func (a *routableRequest) tryRequest() failover.Request {
	return failover.Request{ID: a.x.id, Account: a.key.AccountID, Choices: a.choices}
}

func (g *generationRequest) Context() context.Context { return &g.x.client }

func (g *generationRequest) Ready() error {
	if err := g.x.client.Err(); err != nil {
		return g.endOfCall(err)
	}
	err := g.server.Admission.Check(&g.x.client, g.key)
	if errors.Is(err, admission.ErrKey) {
		g.finish(outcome{status: event.Revoked, rule: event.RuleNone, answered: errRevoked.Status})
	}
	return err
}

func (g *generationRequest) Call(choice route.Choice, attempt *route.Attempt, last bool) error {
	g.firstToken = time.Duration(choice.FirstTokenTimeoutMS) * time.Millisecond
	if last || !g.request.Stream {
		g.firstToken = 0 // a late answer is better than none
	}
	before := g.x.upstream
	g.spent = calls.Spent{}
	g.x.beginAttempt(choice.ID, choice.Credential.ID)
	span := g.x.trace.Attempt(g.dialect.Format(), choice.Provider.ID, choice.ID, choice.UpstreamModel)
	err := g.call(choice, attempt)
	span.End(failover.ReasonOf(err), g.x.usage)
	g.server.Metrics.RecordUpstream(choice.Provider.ID, g.x.upstream-before)
	g.x.calling = ""
	if failure := failover.FailureOf(err); failure != nil {
		g.x.noted.Note(event.Attempt{
			Route:             choice.ID,
			Provider:          choice.Provider.ID,
			Credential:        choice.Credential.ID,
			CredentialName:    choice.Credential.Name,
			Class:             failure.Class,
			MS:                (g.x.upstream - before).Milliseconds(),
			Usage:             g.spent.Usage,
			Estimated:         g.spent.Estimated,
			ProviderRequestID: g.spent.ProviderID,
		})
		if failure.OfAccount && !g.body.Gone() {
			g.foreignItem, _ = affinity.Item(g.key.AccountID, g.body.Bytes())
		}
	} else if err == nil && g.foreignItem != 0 {
		g.server.makers.Note(g.foreignItem, affinity.Maker{Route: choice.ID, Credential: choice.Credential.ID})
	}

	return err
}

func (g *generationRequest) Skipped(choice route.Choice, reason string) {
	g.x.noted.Note(event.Attempt{Route: choice.ID, Skipped: reason})
}

// call calls one provider. Members that the gateway has added and the provider refuses are left out in a further call, and from
// then on with this route: the client has not asked for them.
func (g *generationRequest) call(choice route.Choice, attempt *route.Attempt) error {
	memory := &g.server.addedMembers
	place := addedmember.PlaceOf(choice.Route, g.dialect.Format(), g.request.Stream)
	known := memory.Of(place, g.key.AccountID, time.Now())
	without := known
	for {
		g.server.Metrics.RecordLeftOut(choice.Provider.ID, choice.ID, without)
		err := g.callOnce(choice, attempt, without)
		if err == nil && without != known { // not after an error, which may have been about the client's own words
			if news := memory.Note(place, g.key.AccountID, without&^known, time.Now()); news != 0 {
				g.server.Log.Warn("provider refuses members that the gateway adds, calls of the route are sent without them",
					"request_id", g.x.id, "provider", choice.Provider.ID, "route", choice.ID, "members", news.String())
			}
		}
		failure := failover.FailureOf(err)
		if failure == nil || g.body.Gone() {
			return err
		}

		refused, more := addedmember.Refused(failure, g.request.Added(), g.policyOf(g.routableCatalog, choice.Route))
		if refused {
			failure.BlameGateway()
		}
		if more == 0 || g.Ready() != nil {
			return err
		}
		g.server.Metrics.RecordAttempt(choice.Provider.ID, choice.ID, failure.Class)
		without |= more
	}
}

// callOnce calls one provider and relays its answer to the client.
func (g *generationRequest) callOnce(choice route.Choice, attempt *route.Attempt, without format.Added) error {
	g.x.provider, g.x.route, g.x.credential = choice.Provider.ID, choice.ID, choice.Credential.Name
	body := g.upstreamBody(choice, without)
	target := choice.Target(g.dialect.Format(), g.request.Stream)
	call := provider.Call{
		Choice:      choice,
		Format:      g.dialect.Format(),
		Path:        target.Path,
		Query:       target.Query,
		Body:        body,
		ContentType: g.request.ContentType(),
		Beta:        g.request.Beta(g.policyOf(g.routableCatalog, choice.Route)),
	}
	if g.request.Stream {
		call.Accept = "text/event-stream"
	}

	ctx, first, end := pace.Within(g.callContext(), g.firstToken)
	defer end()
	defer g.leave.End()
	sent := time.Now()
	answer, err := g.server.Providers.Do(ctx, &call)
	body.Release() // early, because streams last for minutes; a connection that still sends the body holds a reference
	g.x.upstream += time.Since(sent)
	g.x.firstByte = time.Since(g.x.started)
	if err != nil {
		return g.endOfCall(err)
	}
	if answer.Status < 200 || answer.Status > 299 {
		return provider.StatusFailure(&call, answer, g.cleaner(call.Choice))
	}
	defer func() { _ = answer.Body.Close() }()

	r := &relay{
		generationRequest: g,
		call:              &call,
		answer:            answer,
		attempt:           attempt,
		first:             first,
	}
	r.reader = g.dialect.NewAnswer(format.AnswerConfig{Request: g.request, IncludeUsage: g.asked})
	defer r.reader.Release()

	if err := r.run(); err != nil {
		if g.x.usage == nil { // otherwise the request has ended with this answer
			g.spent = calls.SpentOf(r.reader, r.usage)
		}
		if failure := failover.FailureOf(err); failure != nil && g.body.Gone() {
			failure.Failover = false // the client has a part of this answer, or the room was needed for it
		}
		return g.endOfCall(err)
	}

	g.server.Metrics.RecordAttempt(choice.Provider.ID, choice.ID, "ok")
	return nil
}

// upstreamBody assembles the body for a route, without some members that the gateway adds. The caller releases it.
func (a *routableRequest) upstreamBody(choice route.Choice, without format.Added) *provider.Body {
	identity := a.server.Pseudonyms.Of(a.key.AccountID)
	target := format.Target{
		Model:          choice.UpstreamModel,
		Policy:         a.policyOf(a.routableCatalog, choice.Route),
		Rules:          a.rules,
		MaxOutput:      a.model.MaxOutputTokens,
		DefaultSeconds: a.model.DefaultSeconds,
		Kind:           choice.Provider.Kind,
		Betas:          choice.Provider.Betas(),
		Without:        without,
		IdentityFunc:   identity.Hash,
		PseudonymFunc:  identity.Pseudonym,
		WantsUser:      choice.Provider.WantsUser,
	}

	outgoing := buffer.Get()
	a.body.Retain() // the outgoing body may have parts of the received one
	free := func() { buffer.Put(outgoing); a.body.Release() }
	received := a.body.Bytes()
	if len(received) >= minSpliced {
		edits, parts := a.request.SpliceUpstream((*outgoing)[:0], target)
		*outgoing = edits
		return provider.NewBodyOf(parts, free)
	}

	*outgoing = slices.Grow(*outgoing, outgoingSize(len(received)))
	out := a.request.AppendUpstream((*outgoing)[:0], target)
	if &out[0] != &received[0] {
		*outgoing = out // AppendUpstream may have reallocated it
	}

	return provider.NewBody(out, free)
}

// minSpliced is the length in bytes from which on a received body is not copied.
const minSpliced = 32 << 10

// outgoingSize is the size of the buffer for a body that is sent on, which is seldom much longer than the received one.
// A very large buffer is allocated when it is needed.
func outgoingSize(received int) int {
	const extra, most = 1 << 10, 4 << 20
	if received > most {
		return 0
	}
	return received + extra
}

// callContext is the context of a call. A non-streaming answer is always read to its end. A stream is cancelled when its key
// is revoked; what happens when its client leaves, g.leave decides, whose end ends the context.
func (g *generationRequest) callContext() context.Context {
	ctx := g.detached()
	if !g.request.Stream {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	g.reservation.OnRevoke(cancel)
	g.leave.Begin(&g.x.client, g, cancel)
	return ctx
}

func (r *parsedRequest) cleaner(choice route.Choice) classify.Cleaner {
	return cleanerOf(choice, r.request.Model)
}

// cleanerOf returns a Cleaner that removes from a provider's error texts the name and address of the provider and the
// credential of the gateway.
func cleanerOf(choice route.Choice, model string) classify.Cleaner {
	return classify.Cleaner{
		UpstreamModels: []string{choice.UpstreamModel}, ClientModel: model,
		Hidden: append(choice.Credential.Hidden(), choice.Provider.Name, choice.Provider.BaseURL),
	}
}
