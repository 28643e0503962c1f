package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/answercost"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/calls"
	"modelgateway/dataplane/internal/httpapi/readon"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// generate handles the endpoint of one format.
func (s *Server) generate(d format.Dialect) echo.HandlerFunc {
	return func(c echo.Context) error {
		x := exchangeOf(c)
		defer x.turn.End()

		if x.unread {
			x.client.TakeOver(x.conn)
			defer x.client.End()
		}

		received, err := s.receive(x, c.Request(), d)
		if err != nil {
			return err
		}
		defer received.body.Done()
		object := jsonspan.Acquire()
		defer object.Release()
		parsed, err := received.parse(object)
		if err != nil {
			return err
		}
		defer parsed.request.Release()
		priced, err := parsed.price()
		x.turn.End() // what follows waits for others
		if err != nil {
			return err
		}

		reservation, err := priced.admit()
		if err != nil {
			return err
		}
		defer reservation.Release()
		routable, err := priced.routable()
		if err != nil {
			return err
		}

		return (&generationRequest{
			routableRequest: routable,
			reservation:     reservation,
			asked:           routable.key.IncludeCost || answercost.Asked(c.Request().Header),
		}).run()
	}
}

// generationRequest is an admitted request that calls its routes.
type generationRequest struct {
	routableRequest
	reservation *admission.Reservation
	// leave decides what happens when the client of a stream leaves during a call.
	leave readon.Leaving
	// firstToken is within which time the output of the call that is running must begin; zero: no limit.
	firstToken time.Duration
	// spent is what the call that is running, or was the last, has used without serving the request.
	spent calls.Spent
	// asked reports whether the client asks for the cost; stored, whether the outcome is stored.
	asked, stored bool
	// hasOddTier reports whether the answer names a service tier that it cannot be in.
	hasOddTier bool
	// foreignItem is the encrypted item that the account of an earlier call could not verify; zero if there is none.
	foreignItem uint64
}

// run calls the routes. Once the reservation is started, the request gets a usage event in any case.
func (g *generationRequest) run() error {
	if err := g.reservation.Start(); err != nil {
		return err
	}
	// This takes effect after a panic only: any other end has already recorded an outcome.
	defer g.finish(outcome{status: event.Failed, rule: event.RuleNone, answered: http.StatusInternalServerError})
	err := g.callRoutes()
	if err != nil {
		g.finish(outcome{status: event.Failed, rule: event.RuleNone, answered: publicError(err).Status})
	}
	return err
}

// callRoutes calls one route after the other until one answers, and returns the error for the client if none does.
func (g *generationRequest) callRoutes() error {
	failures, err := g.server.tries.Try(g.tryRequest(), g)
	if failures == nil {
		return err
	}
	if failure := failures.ForClient(); failure != nil {
		return failure
	}
	return g.noRoute()
}

// outcome holds the part of a usage event that says how the generation request ended.
type outcome struct {
	status event.Status
	rule   string
	// doubt is why the provider's report of the usage is in doubt, if it is.
	doubt      usagereport.Reason
	usage      price.Usage
	providerID string
	// class is the class of the provider's failure if a stream has broken off.
	class string
	// answered is the HTTP status for the usage event if no answer has begun yet.
	answered int
}

// finish records the outcome and charges it. Only the first call has an effect. It runs before the last byte of the
// answer is sent, so that a complete answer is always recorded.
func (g *generationRequest) finish(o outcome) {
	stored := g.reservation.Finish(func(e *event.Usage) {
		e.Status, e.Rule, e.Usage = o.status, o.rule, o.usage
		e.Estimated = o.rule == event.RuleEstimated
		e.Provider, e.Route, e.Credential, e.ProviderRequestID = g.x.provider, g.x.route, g.x.credential, o.providerID
		if e.HTTPStatus = g.x.status; e.HTTPStatus == 0 {
			e.HTTPStatus = o.answered
		}
		e.Attempts = g.x.attemptsNoted(o.class)
		e.FinishedMS = time.Now().UnixMilli()
		e.FirstByteMS = g.x.firstByte.Milliseconds()
		if o.rule != event.RuleNone && !g.charge(e) {
			o.doubt = usagereport.Unpriced
		}

		e.Doubt = string(o.doubt)
		g.server.Metrics.RecordUsage(e, o.doubt)
		g.x.usage = e
	})
	g.stored = g.stored || stored
}

// toldCharge returns the recorded charge for the client's answer, nil if it does not ask for it or it may still change.
func (g *generationRequest) toldCharge() *answercost.Charge {
	if !g.asked {
		return nil
	}
	return answercost.Of(g.dialect.Format(), g.pricedCatalog.Settings.Currency, g.x.usage, g.stored)
}

// charge sets the cost of the usage. ok is false if it has none: then the reservation is charged.
func (g *generationRequest) charge(e *event.Usage) (ok bool) {
	if second := e.Usage.Secondary; second.Kind != "" && !g.sheet.HasSecondaryPrice(second.Kind) {
		// Requests that ask for a secondary model without a price are refused, so the provider has used it unasked. The
		// account does not pay for that; the rest is charged as reported.
		g.alarmUnpriced(second.Kind)
		e.Usage.Secondary = price.Secondary{}
	}

	if e.Usage.ServerToolRequests > 0 && !g.sheet.HasServerToolPrice() {
		g.alarmUnpriced("server_tool") // the count stays in the usage, for the operator's books
	}

	if g.hasOddTier {
		g.alarmUnpriced("service_tier") // charged at the dearest tier that the request has asked for
	}

	if len(g.sheet.Rates) > 0 {
		for i, count := range e.Usage.Counts() {
			if k := &price.Kinds[i]; k.CostsMore && *count > 0 && !g.sheet.HasRate(k.Line) {
				g.alarmUnpriced(string(k.Line)) // charged at the lower rate of plain input or output
			}
		}
	}

	cost, err := price.Cost(&e.Usage, g.sheet)
	if err != nil {
		// A price sheet has a price for everything that its model can use, so the reported counts must be out of range.
		// The account is charged the reservation.
		g.server.Log.Error(
			"reported usage cannot be priced, charging the reservation",
			"request_id",
			g.x.id,
			"model",
			g.model.ID,
			"error",
			err,
		)
		e.Usage, e.Rule, e.Estimated = g.quote.Usage, event.RuleEstimated, true
		e.Cost = g.quote.Reserve
		return false
	}

	e.Cost = cost
	return true
}

// alarmUnpriced tells the operator that a provider has reported something that was not offered and has no price. Either
// a request can ask for it in a way that the gateway does not know, or the provider uses it unasked.
func (g *generationRequest) alarmUnpriced(kind string) {
	g.server.Metrics.RecordUnpriced(kind)
	g.server.Log.Error("provider reported usage that has no price",
		"request_id", g.x.id, "model", g.model.ID, "provider", g.x.provider, "route", g.x.route, "kind", kind)
}

// errClientGone ends a request whose client has closed the connection. No client reads its message.
var errClientGone = apierr.New(499, apierr.None, "The client closed the request.")

// endOfCall returns the error of a call, or the reason for which the gateway has ended the call itself: the client has
// gone, or its key was revoked. In these cases it records the outcome.
func (g *generationRequest) endOfCall(err error) error {
	if g.reservation.Revoked() && !g.x.wrote {
		g.finish(outcome{status: event.Revoked, rule: event.RuleNone, answered: errRevoked.Status})
		return errRevoked.WithCause(err)
	}
	if err == nil || !g.x.client.Gone() {
		return err
	}
	g.finish(outcome{status: event.ClientGone, rule: event.RuleNone, answered: errClientGone.Status})
	return errClientGone.WithCause(err)
}

// detached returns the context for provider calls that continue without the client. They need no value of the request.
func (*receivedRequest) detached() context.Context { return context.Background() }
