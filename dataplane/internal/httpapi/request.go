package httpapi

import (
	"net/http"
	"slices"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/affinity"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/policy"
	"modelgateway/dataplane/internal/httpapi/quote"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/upload"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// A request that calls a model passes through these steps. The type of each step contains the type before it and adds
// the results of the step:
//
//	receive  -> receivedRequest    the key is authenticated, the body is read
//	parse    -> parsedRequest      the body is understood
//	price    -> pricedRequest      model, parameters and price are checked, the reservation is computed
//	admit    -> Reservation        (package admission) balance, key limit and slots allow it
//	routable -> routableRequest    the catalog still offers it, and some route can be called
//	            generationRequest  (generate.go) calls routes until one answers, then records an outcome
//	            videoCreation      (videocreate.go) records the video job and calls routes until one accepts it
//
// The order of the checks is part of the API. A check that refuses a request leaves no trace.

// receivedRequest is a request with a valid key and a complete body.
type receivedRequest struct {
	server   *Server
	x        *exchange
	incoming *http.Request
	key      *auth.Key
	dialect  format.Dialect
	// initialCatalog is the catalog snapshot of the time when the headers arrived.
	initialCatalog *catalog.Snapshot
	body           *upload.Body
}

// receive checks everything that comes before the content of the body: key, maintenance, size. The caller calls Done
// of the body.
func (s *Server) receive(x *exchange, r *http.Request, d format.Dialect) (receivedRequest, error) {
	key, err := s.authenticate(x, r)
	if err != nil {
		return receivedRequest{}, err
	}

	snapshot := s.Catalog.Snapshot()
	if snapshot == nil {
		return receivedRequest{}, errStarting
	}
	if err := refused.Maintenance(snapshot.Settings.Maintenance, x.started); err != nil {
		return receivedRequest{}, err
	}

	body, err := s.readBody(x, r, bodyLimit(d.Format()))
	if err != nil {
		return receivedRequest{}, err
	}

	return receivedRequest{
		server:         s,
		x:              x,
		incoming:       r,
		key:            key,
		dialect:        d,
		initialCatalog: snapshot,
		body:           body,
	}, nil
}

// parsedRequest is a request whose body is understood. Its parameters are not checked yet.
type parsedRequest struct {
	receivedRequest
	request *format.Request
}

// parse reads a JSON body into object. The parsed request refers to object, so the caller releases the request first
// and then the object.
func (r *receivedRequest) parse(object *jsonspan.Object) (parsedRequest, error) {
	if err := object.Parse(r.body.Bytes()); err != nil {
		return parsedRequest{}, upload.NotJSON(err)
	}
	if err := r.body.Hold(object.Held()); err != nil {
		return parsedRequest{}, err
	}
	request, refused := r.dialect.Read(object)
	if refused != nil {
		return parsedRequest{}, refused
	}
	r.x.stream = request.Stream
	return parsedRequest{*r, request}, nil
}

// pricedRequest is a request that the model can serve, at a known price.
type pricedRequest struct {
	parsedRequest
	// pricedCatalog is the catalog snapshot that model, sheet and policy come from. It was read after the whole body
	// had arrived.
	pricedCatalog *catalog.Snapshot
	model         *catalog.Model
	// sheet includes the account's multiplier. Reservation and charge use it even if the multiplier changes meanwhile.
	sheet  *price.Sheet
	policy *format.Policy
	// rules says which optional services the model has a price for.
	rules format.Rules
	// candidates are the routes that accept the parameters.
	candidates []*catalog.Route
	quote      quote.Quote
	// maxInput and maxOutput are those of the usage event.
	maxInput, maxOutput int64
}

// price checks the model, then the parameters, then the price.
func (r *parsedRequest) price() (pricedRequest, error) {
	p := pricedRequest{parsedRequest: *r}
	if err := p.find(); err != nil {
		return p, err
	}
	if err := refused.Maintenance(p.model.Maintenance, r.x.started); err != nil {
		return p, err
	}
	return p, p.quoted()
}

// find finds the model in the newest catalog.
func (p *pricedRequest) find() error {
	var err error
	// A client may take long to send the body. Entries that were removed from the catalog meanwhile must not be used.
	if p.pricedCatalog, err = p.server.refreshCatalog(p.initialCatalog); err != nil {
		return err
	}
	p.model, err = p.server.findModel(p.x, p.key, p.pricedCatalog, p.request.Model, p.dialect.Format())
	return err
}

// quoted checks parameters and price, and sets the routes that accept the parameters.
func (p *pricedRequest) quoted() error {
	sheet := p.model.PriceAt(p.x.started)
	if sheet == nil {
		return refused.NoRoute(0) // a model without a price cannot be called
	}

	p.sheet = sheet.WithMultiplier(p.key.Multiplier(p.model.ID))
	p.policy = p.server.policies.OfModel(p.pricedCatalog, p.model, p.dialect)
	p.rules = format.Rules{Sheet: p.sheet}
	candidates, refused := p.checkParameters()
	if refused != nil {
		return refused
	}

	var tiers format.ServiceTiers
	p.candidates, tiers = p.inTier(candidates)
	var err error
	perImage := p.pricedCatalog.Settings.ImageInputTokens
	if p.quote, err = quote.Of(p.dialect.Format(), p.request, p.model, p.sheet, perImage, tiers); err != nil {
		return apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "The request is too large to be priced.").WithCause(err)
	}

	return nil
}

// refreshCatalog returns the newest catalog. It fails if maintenance has begun since the known snapshot.
func (s *Server) refreshCatalog(known *catalog.Snapshot) (*catalog.Snapshot, error) {
	newest := s.Catalog.Snapshot()
	if newest == known {
		return known, nil
	}
	return newest, refused.Maintenance(newest.Settings.Maintenance, time.Now())
}

// checkParameters returns the routes that accept the parameters, or the refusal if none does. A route with a parameter
// policy of its own may accept more or less than the model: it is checked separately and left out if it refuses. Routes
// that offer all tools of the request are preferred to those that offer some. A parameter is never dropped because of
// the route that happens to be chosen.
func (p *pricedRequest) checkParameters() ([]*catalog.Route, *apierr.Error) {
	f := p.dialect.Format()
	all := p.model.Routes[f]
	refused := p.request.Check(p.policy, p.rules)
	leavesOut := p.request.LeavesOut()
	if !slices.ContainsFunc(all, func(r *catalog.Route) bool { return policy.IsOwn(r, f) }) {
		return all, refused
	}

	var accepting, whole []*catalog.Route
	first := refused
	for _, r := range all {
		refusal, partial := refused, leavesOut
		if policy.IsOwn(r, f) {
			refusal = p.request.Check(p.policyOf(p.pricedCatalog, r), p.rules)
			partial = p.request.LeavesOut()
		}
		switch {
		case refusal == nil:
			accepting = append(accepting, r)
			if !partial {
				whole = append(whole, r)
			}
		case first == nil:
			first = refusal
		}
	}

	if len(whole) > 0 {
		return whole, nil
	}
	if len(accepting) == 0 {
		return nil, first
	}

	return accepting, nil
}

// inTier returns those of the routes that send the service tier that the request asks for, all of them if none does, and the service
// tiers in which they may answer it. A route that leaves the member out would give an answer that was not asked for, at its price.
func (p *pricedRequest) inTier(routes []*catalog.Route) ([]*catalog.Route, format.ServiceTiers) {
	f := p.dialect.Format()
	ofModel := p.request.ServiceTiers(p.policy, p.rules)
	if len(p.sheet.ServiceTiers) == 0 || !slices.ContainsFunc(routes, func(r *catalog.Route) bool { return policy.IsOwn(r, f) }) {
		return routes, ofModel
	}

	var tiers, ofAsked format.ServiceTiers
	var asked []*catalog.Route
	for _, r := range routes {
		of := ofModel
		if policy.IsOwn(r, f) {
			of = p.request.ServiceTiers(p.policyOf(p.pricedCatalog, r), p.rules)
		}
		tiers = tiers.With(of)
		if of.Asked != "" {
			asked, ofAsked = append(asked, r), ofAsked.With(of)
		}
	}
	if len(asked) > 0 {
		return asked, ofAsked
	}
	return routes, tiers
}

// policyOf returns the parameter policy of the model on a route.
func (p *pricedRequest) policyOf(snapshot *catalog.Snapshot, r *catalog.Route) *format.Policy {
	return p.server.policies.OfRoute(snapshot, p.model, r, p.dialect.Format(), p.policy)
}

// admit waits for the reservation and a slot. The caller releases the reservation.
func (p *pricedRequest) admit() (*admission.Reservation, error) {
	q := p.admission()
	q.Event = p.usageEvent()
	p.maxInput, p.maxOutput = q.Event.MaxInput, q.Event.MaxOutput
	return p.acquire(q)
}

// admission returns what the request asks of the admission, without its event. A request for a video reserves nothing and
// has no slot.
func (p *pricedRequest) admission() admission.Request {
	video := p.dialect.Format() == catalogkv.Videos
	return admission.Request{
		Key:          p.key,
		Use:          p.x,
		ExpectedCost: p.quote.Reserve,
		Slot:         !video,
	}
}

// acquire asks for an admission, within a span.
func (p *pricedRequest) acquire(q admission.Request) (*admission.Reservation, error) {
	span := p.x.trace.Admission()
	reservation, err := p.server.Admission.Acquire(&p.x.client, q)
	if err != nil {
		span.End(err.Error(), nil)
		return nil, err
	}
	span.End("", nil)
	return reservation, nil
}

// usageEvent returns the usage event with the members that are known before a provider is called.
func (p *pricedRequest) usageEvent() event.Usage {
	return event.Usage{
		V:               event.Version,
		RequestID:       p.x.id,
		AccountID:       p.key.AccountID,
		KeyID:           p.key.KeyID,
		Model:           p.model.ID,
		Format:          string(p.dialect.Format()),
		Stream:          p.request.Stream,
		StartedMS:       p.x.started.UnixMilli(),
		PriceVersion:    p.sheet.Version,
		PriceMultiplier: p.sheet.Multiplier,
		Reservation:     p.quote.Reserve,
		MaxInput:        p.model.InputLimit(len(p.body.Bytes())),
		MaxOutput:       p.model.OutputLimit(p.request.MaxOutput, p.request.N),
		Trace:           p.x.trace.Context(),
	}
}

// routableRequest is an admitted request with at least one route to call.
type routableRequest struct {
	pricedRequest
	// routableCatalog is the catalog after the admission.
	routableCatalog *catalog.Snapshot
	// routes are the candidates that routableCatalog still has; choices are those of them that can be called now, best
	// first.
	routes  []*catalog.Route
	choices []route.Choice
}

// routable repeats the checks of model, routes and maintenance if the catalog has changed while the request waited for
// its admission: once a change is reported as effective, no proxy may act on the earlier catalog. Price and parameters
// stay those of the reservation.
func (p *pricedRequest) routable() (routableRequest, error) {
	a := routableRequest{pricedRequest: *p, routes: p.candidates}
	var err error
	if a.routableCatalog, err = p.server.refreshCatalog(p.pricedCatalog); err != nil {
		return a, err
	}

	if a.routableCatalog != p.pricedCatalog {
		f := p.dialect.Format()
		newest, err := p.server.findModel(p.x, p.key, a.routableCatalog, p.request.Model, f)
		if err != nil {
			return a, err
		}
		a.routes = slices.DeleteFunc(slices.Clone(p.candidates), func(r *catalog.Route) bool {
			return !slices.ContainsFunc(newest.Routes[f], func(left *catalog.Route) bool { return left.ID == r.ID })
		})
		if err := refused.Maintenance(newest.Maintenance, time.Now()); err != nil {
			return a, err
		}
	}

	if a.choices = p.server.Picker.Order(a.routes, p.conversation()); len(a.choices) == 0 {
		return a, a.noRoute()
	}

	if len(a.choices) > 1 {
		if maker, known := p.server.makers.Of(p.key.AccountID, p.body.Bytes()); known {
			route.Prefer(a.choices, maker.Route, maker.Credential)
		}
	}

	p.x.noted = p.server.Picker.Skipped(a.routes, a.choices)
	return a, nil
}

// conversation returns the key of the conversation that the request belongs to.
func (r *parsedRequest) conversation() uint64 {
	session := ""
	if sent := r.incoming.Header["X-Session-Id"]; len(sent) > 0 {
		session = sent[0]
	}
	return affinity.Key(r.key.AccountID, session, r.request)
}

// noRoute returns the error for a request when none of its routes can be called now. Its Retry-After says when one may
// be.
func (a *routableRequest) noRoute() error {
	e := refused.NoRoute(a.server.Picker.RetryAfter(a.routes))
	open := func(r *catalog.Route) bool { return !r.Provider.Maintenance.Active(a.x.started) }
	if len(a.routes) > 0 && !slices.ContainsFunc(a.routes, open) {
		e.Cause = refused.ErrMaintenance
	}
	return e
}
