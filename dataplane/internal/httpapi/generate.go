package httpapi

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	contract "modelgateway/shared/catalog"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// job is one generation request on its way through the checks.
type job struct {
	s       *Server
	x       *exchange
	r       *http.Request
	dialect format.Dialect

	body     *shared
	snapshot *catalog.Snapshot
	model    *catalog.Model
	sheet    *price.Sheet
	policy   *format.Policy
	request  *format.Request
	// routes are those that can take the request.
	routes []*catalog.Route
	// input is the estimate of the input tokens, for the reserve and for answers without usage.
	input   int64
	reserve money.Nano
	hold    *admission.Hold
}

// generate handles the endpoint of one format. The order of the checks is part
// of the API: each of them leaves no trace when it refuses.
func (s *Server) generate(d format.Dialect) echo.HandlerFunc {
	endpoint := d.Format().Path()
	return func(c echo.Context) error {
		j := &job{s: s, x: exchangeOf(c), r: c.Request(), dialect: d}
		j.x.endpoint = endpoint
		if err := j.open(); err != nil {
			return err
		}
		defer j.body.release()
		object := jsonspan.Acquire()
		defer object.Release()
		if err := j.read(object); err != nil {
			return err
		}
		defer j.request.Release()
		if err := j.check(); err != nil {
			return err
		}
		return j.run()
	}
}

// open goes through what comes before the body's content: key, maintenance,
// size. The caller releases the body.
func (j *job) open() error {
	if err := j.s.authenticate(j.x, j.r); err != nil {
		return err
	}
	if j.snapshot = j.s.Catalog.Snapshot(); j.snapshot == nil {
		return apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, "The service is starting. Please try again.")
	}
	if err := maintained(j.snapshot.Settings.Maintenance, j.x.started); err != nil {
		return err
	}
	body, err := j.s.readBody(j.x, j.r, bodyLimit(j.dialect.Format()))
	if err != nil {
		return err
	}
	j.body = newShared(body)
	return nil
}

// read parses the body. The caller releases the request.
func (j *job) read(object *jsonspan.Object) error {
	if err := object.Parse(*j.body.buffer); err != nil {
		return badBody(err)
	}
	request, refused := j.dialect.Read(object)
	if refused != nil {
		return refused
	}
	j.request, j.x.stream = request, request.Stream
	return nil
}

// check goes through what the body says: model, then parameters, then price.
func (j *job) check() error {
	err := j.reload()
	if err != nil {
		return err
	}
	if j.model, err = j.s.findModel(j.x, j.snapshot, j.request.Model, j.dialect.Format()); err != nil {
		return err
	}
	if err := maintained(j.model.Maintenance, j.x.started); err != nil {
		return err
	}
	if j.sheet = j.model.PriceAt(j.x.started); j.sheet == nil {
		return errNoRoute // a model without a price cannot be called
	}
	// Reserve and charge are under the multiplier of now, whatever becomes of the account's while the request runs.
	j.sheet = j.sheet.For(j.x.key.Multiplier(j.model.ID))
	j.policy = j.s.policies.ofModel(j)
	if refused := j.checkParameters(); refused != nil {
		return refused
	}
	return j.estimate()
}

// checkParameters refuses what no route of the model can take. A route with a
// parameter policy of its own may take less than the model, or more: it is
// asked by itself, and is left out of the choice if it refuses. What the client
// sent is never dropped because of where the request happens to go.
func (j *job) checkParameters() *apierr.Error {
	rules := format.Rules{ToolPrice: j.sheet.ServerTool > 0, SecondFunc: j.sheet.Sells}
	f := j.dialect.Format()
	all := j.model.Routes[f]
	refused := j.request.Check(j.policy, rules)
	if !slices.ContainsFunc(all, func(r *catalog.Route) bool { return len(r.Params[f]) > 0 }) {
		j.routes = all
		return refused
	}
	own := refused
	for _, r := range all {
		refusal := refused
		if len(r.Params[f]) > 0 {
			refusal = j.request.Check(j.s.policies.ofRoute(j, r), rules)
		}
		switch {
		case refusal == nil:
			j.routes = append(j.routes, r)
		case own == nil:
			own = refusal
		}
	}
	if len(j.routes) == 0 {
		return own
	}
	return nil
}

// outputReserve is reserved for a text model that names no bound at all.
const outputReserve = 4096

// imageInputTokens is the estimate for a picture in a prompt where the
// settings have none.
const imageInputTokens = 1000

// estimate computes the reserve.
func (j *job) estimate() error {
	perImage := j.snapshot.Settings.ImageInputTokens
	if perImage == 0 {
		perImage = imageInputTokens
	}
	j.input = j.request.EstimateInput(perImage)
	usage := j.estimated()
	cost, err := price.Cost(&usage, j.sheet)
	if err != nil {
		return apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "The request is too large to be priced.").Because(err)
	}
	j.reserve = cost
	return nil
}

// estimated is the usage that is reserved for.
func (j *job) estimated() price.Usage {
	u := price.Usage{Size: j.request.Size, Quality: j.request.Quality}
	switch j.dialect.Format().Type() {
	case contract.Video: // nothing is held
	case contract.Image:
		u.Images = j.request.Images
		if len(j.sheet.Rates) > 0 {
			u.Input = j.input
		}
	default:
		u.Input, u.Output = j.input, times(j.outputBound(), j.request.N)
	}
	return u
}

// times is the bound of n answers, at least one. One that no number holds has no
// price, or nobody can pay it.
func times(bound, n int64) int64 {
	if n > math.MaxInt64/bound {
		return math.MaxInt64
	}
	return bound * max(n, 1)
}

// outputBound is the expected output of one answer; it is above zero.
func (j *job) outputBound() int64 {
	bound := int64(0)
	for _, limit := range []int64{j.request.MaxOutput, j.model.MaxOutputTokens, j.model.ReserveOutputTokens} {
		if limit > 0 && (bound == 0 || limit < bound) {
			bound = limit
		}
	}
	if bound == 0 {
		return outputReserve
	}
	return bound
}

// run admits the request and has it served.
func (j *job) run() error {
	hold, err := j.s.Admission.Acquire(j.r.Context(), admission.Request{Key: j.x.key, Reserve: j.reserve, Slot: true, Event: j.event()})
	if err != nil {
		return err
	}
	defer hold.Release()
	j.hold = hold
	if err := j.recheck(); err != nil {
		return err
	}
	choices := j.s.Picker.Order(j.routes, j.x.key.AccountID)
	if len(choices) == 0 {
		return j.noRoute()
	}
	if err := hold.Start(); err != nil {
		return err
	}
	// From here on the request has an event, whatever happens.
	defer j.finish(outcome{status: event.Failed, rule: event.RuleNone, answered: http.StatusInternalServerError})
	err = j.attempts(choices)
	if err != nil {
		j.finish(outcome{status: event.Failed, rule: event.RuleNone, answered: publicError(err).Status})
	}
	return err
}

// reload goes on with the newest catalog: a client may take its time to send
// the body, and what was taken away meanwhile is gone.
func (j *job) reload() error {
	newest := j.s.Catalog.Snapshot()
	if newest == j.snapshot {
		return nil
	}
	j.snapshot = newest
	return maintained(newest.Settings.Maintenance, time.Now())
}

// recheck asks again, after the wait for the hold, what the catalog may have
// taken away during it: whoever did that is told when no proxy serves it any
// more. Price and parameters stay those that the hold was made for.
func (j *job) recheck() error {
	before := j.snapshot
	if err := j.reload(); err != nil || j.snapshot == before {
		return err
	}
	f := j.dialect.Format()
	newest, err := j.s.findModel(j.x, j.snapshot, j.request.Model, f)
	if err != nil {
		return err
	}
	j.routes = slices.DeleteFunc(slices.Clone(j.routes), func(r *catalog.Route) bool {
		return !slices.ContainsFunc(newest.Routes[f], func(left *catalog.Route) bool { return left.ID == r.ID })
	})
	return maintained(newest.Maintenance, time.Now())
}

// event is the record of the request as far as it is known before a provider
// is called.
func (j *job) event() event.Usage {
	return event.Usage{
		V: event.Version, RequestID: j.x.id, AccountID: j.x.key.AccountID, KeyID: j.x.key.KeyID,
		Model: j.model.ID, Format: string(j.dialect.Format()), Stream: j.request.Stream, StartedMS: j.x.started.UnixMilli(),
		PriceVersion: j.sheet.Version, PriceMultiplier: j.sheet.Multiplier, Reserve: j.reserve,
	}
}

// outcome is how a request ended, for its event.
type outcome struct {
	status     event.Status
	rule       string
	usage      price.Usage
	providerID string
	// answered is the HTTP status that the client will get, where it has got none yet.
	answered int
}

// finish records the outcome; only the first one counts. It runs before the
// last byte of the answer leaves, so that what a client has whole is recorded.
func (j *job) finish(o outcome) {
	j.hold.Finish(func(e *event.Usage) {
		e.Status, e.Rule, e.Usage = o.status, o.rule, o.usage
		e.Estimated = o.rule == event.RuleEstimated
		e.Provider, e.Route, e.ProviderRequestID = j.x.provider, j.x.route, o.providerID
		if e.HTTPStatus = j.x.status; e.HTTPStatus == 0 {
			e.HTTPStatus = o.answered
		}
		e.FinishedMS = time.Now().UnixMilli()
		e.FirstByteMS = j.x.firstByte.Milliseconds()
		if o.rule == event.RuleNone {
			return
		}
		if second := e.Usage.Secondary; second.Kind != "" && !j.sheet.Sells(second.Kind) {
			// It was not sold, so the provider has called it in of its own accord. The rest is billed as reported.
			j.s.Log.Error("second model without a price", "request_id", j.x.id, "model", j.model.ID, "kind", second.Kind)
			e.Usage.Secondary = price.Secondary{}
		}
		cost, err := price.Cost(&e.Usage, j.sheet)
		if err != nil {
			// A price sheet prices all that its model can use, so the count itself is absurd. What was reserved is
			// what was agreed to.
			j.s.Log.Error("usage cannot be priced", "request_id", j.x.id, "model", j.model.ID, "error", err)
			e.Usage, e.Rule, e.Estimated = j.estimated(), event.RuleEstimated, true
			cost = j.reserve
		}
		e.Cost = cost
		j.s.Metrics.tokens(&e.Usage)
	})
}

// background is the context of a provider call that goes on without the
// client.
func (j *job) background() context.Context { return context.WithoutCancel(j.r.Context()) }
