// Package meter owns the metrics of the public API: its requests, calls of providers and usage. It counts once for two
// readers: Prometheus, and the reports to the control plane, which tell more labels apart. A count takes a map lookup and an
// atomic addition.
package meter

import (
	"cmp"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/finished"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/pulse"
)

// Metrics are the metrics of the public API. Clients cannot invent values of their labels: models, providers and routes
// are those of the catalog.
type Metrics struct {
	inFlight   *Counters[string] // by endpoint
	requests   *Counters[requestLabels]
	durations  *Histograms[durationLabels]
	overhead   prometheus.Histogram
	streamEnds *Counters[string] // by reason
	models     *ChildCache[servedLabels, *modelCounters]
	charged    *Counters[servedLabels]
	tokens     *Counters[tokenLabels]
	byModel    *Counters[modelLabels]
	cache      *Counters[cacheLabels]
	images     prometheus.Counter
	reserved   prometheus.Counter
	attempts   *Counters[attemptLabels]
	firstToken *Histograms[routeLabels]
	upstream   *ChildCache[string, prometheus.Observer] // by provider
	failovers  *prometheus.CounterVec
	timeouts   *prometheus.CounterVec
	doubts     *Counters[doubtLabels]
	leftOut    *Counters[memberLabels]
	unpriced   *prometheus.CounterVec
	left       *prometheus.CounterVec
	unknown    *prometheus.CounterVec
}

// modelCounters are the counters of one model at one provider.
type modelCounters struct {
	charged *atomic.Int64
	tokens  [tokenKinds]*atomic.Int64
}

type requestLabels struct {
	endpoint string
	status   int
	code     apierr.Code
	outcome  string
}

type durationLabels struct {
	endpoint string
	routeLabels
}

type routeLabels struct{ provider, route string }

type servedLabels struct{ model, provider string }

type tokenLabels struct {
	servedLabels
	kind string
}

type cacheLabels struct {
	route string
	hit   bool
}

type modelLabels struct{ model, outcome string }

type doubtLabels struct {
	provider string
	reason   usagereport.Reason
}

type memberLabels struct {
	routeLabels
	member format.Added
}

type attemptLabels struct {
	routeLabels
	outcome string
}

// New registers the metrics.
func New(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	upstream := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "mgw_upstream_seconds",
		Help: "Time that an attempt waited for its provider: until the answer began, or for a non-streaming answer until it was " +
			"complete. Failed attempts count, too.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"provider"})

	m := &Metrics{
		inFlight: NewCounters("mgw_requests_in_flight", "Requests that are being handled now, by endpoint.",
			[]string{"endpoint"}, Kind{Gauge: true}, Label[string]),
		requests: NewCounters(
			"mgw_requests_total",
			"Answered requests by endpoint, HTTP status, error code and outcome: completed, failed, client_gone, "+
				"refused, or maintenance for what an operator has closed. "+
				"A stream that breaks off has the status 200 and the outcome failed.",
			[]string{"endpoint", "status", "code", "outcome"},
			Kind{},
			func(l requestLabels) []string {
				return []string{l.endpoint, strconv.Itoa(l.status), string(l.code), l.outcome}
			},
		),
		durations: NewHistograms(
			"mgw_request_duration_seconds",
			"Time from the arrival of a request's headers to the end of its answer.",
			[]string{"endpoint"},
			pulse.Duration.Bounds(),
			func(l durationLabels) []string { return []string{l.endpoint} },
		),
		attempts: NewCounters("mgw_provider_attempts_total", "Calls to providers by outcome: ok, or the error class.",
			[]string{"provider", "outcome"}, Kind{}, func(l attemptLabels) []string { return []string{l.provider, l.outcome} }),
		overhead: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_request_overhead_seconds",
			Help: "Time that the proxy itself adds to a successful non-streaming request: its duration less the time spent waiting " +
				"for providers.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .025, .05, .1, .5, 2},
		}),
		firstToken: NewHistograms("mgw_time_to_first_token_seconds",
			"Time from the arrival of a request's headers to the first bytes of its stream, by the provider that served it.",
			[]string{"provider"}, pulse.FirstToken.Bounds(), func(l routeLabels) []string { return []string{l.provider} }),
		upstream: NewChildCache(func(provider string) prometheus.Observer { return upstream.WithLabelValues(provider) }),
		streamEnds: NewCounters("mgw_stream_ends_total", "Ended streams by reason: completed, client_gone, revoked, "+
			"busy (no room in the budget for bodies), or the class of the provider's "+
			"failure.", []string{"reason"}, Kind{}, Label[string]),
		unpriced: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_unpriced_usage_total",
			Help: "Answers whose provider reported usage without a price, by kind: server_tool for calls of tools, the kind of a " +
				"secondary model, or a " +
				"line (audio_in, audio_out, cache_write_1h, cache_write_12h) that is charged at the rate of plain input or output, " +
				"or service_tier for an answer in a service tier that the request has not asked for or that has no price. " +
				"Above zero, the " +
				"operator pays for something that no client is fully charged for.",
		}, []string{"kind"}),
		images: f.NewCounter(prometheus.CounterOpts{Name: "mgw_images_total", Help: "Images that generation requests have used."}),
		reserved: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_reserved_total",
			Help: "Reservations of finished generation requests, in currency units. Far above the charges, they keep money of " +
				"accounts back needlessly.",
		}),
		failovers: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_failovers_total",
			Help: "Attempts that followed a failed one of the same request, by the provider and the error class of the failed one.",
		}, []string{"from", "class"}),
		unknown: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_video_unknown_states_total",
			Help: "Answers of a provider about a video job with a state that the gateway does not know. The job is polled on, and ends " +
				"uncharged after a day if the state was final.",
		}, []string{"provider"}),
		timeouts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_call_timeouts_total",
			Help: "Calls that a time limit has ended, by provider and limit: first_byte, first_token (the route's, before the next route " +
				"was called), idle (between two bytes) or total.",
		}, []string{"provider", "limit"}),
		left: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_left_streams_total",
			Help: "Streams whose client left after the provider had begun to answer, by how they were charged: reported or estimated. " +
				"The usage totals of an account count them as client_gone.",
		}, []string{"rule"}),
		leftOut: NewCounters(
			"mgw_members_left_out_total",
			"Calls that were sent without a member that the gateway otherwise adds (store, service_tier, stream_options, include), "+
				"because the provider has refused it, by provider, route and member. Without stream_options, a stream may have no usage, "+
				"which is then estimated.",
			[]string{"provider", "route", "member"},
			Kind{},
			func(l memberLabels) []string { return []string{l.provider, l.route, l.member.String()} },
		),
		doubts: NewCounters(
			"mgw_usage_doubts_total",
			"Charged answers whose provider reported no usage, or one that is in doubt, by provider and reason: "+
				"missing, unreadable, no_input, low_input (less than a token for 256 bytes that were sent), low_output (less than half of "+
				"what was delivered), high_input, high_output, high_other (more than the request allows), "+
				"unpriced, interrupted (the answer broke off), or ambiguous. All but ambiguous ones are charged by an estimate.",
			[]string{"provider", "reason"},
			Kind{},
			func(l doubtLabels) []string { return []string{l.provider, string(l.reason)} },
		),
	}
	reg.MustRegister(m.inFlight, m.requests, m.durations, m.attempts, m.firstToken, m.streamEnds, m.doubts, m.leftOut)
	m.countModels(reg)

	return m
}

// countModels registers the counters by model.
func (m *Metrics) countModels(reg prometheus.Registerer) {
	m.byModel = NewCounters(
		"mgw_model_requests_total",
		"Answered requests for a model of the catalog, by model and outcome as in mgw_requests_total.",
		[]string{"model", "outcome"},
		Kind{},
		func(l modelLabels) []string { return []string{l.model, l.outcome} },
	)
	m.tokens = NewCounters("mgw_tokens_total", "Tokens that generation requests have used, by model and kind.",
		[]string{"model", "kind"}, Kind{}, func(l tokenLabels) []string { return []string{l.model, l.kind} })
	m.charged = NewCounters("mgw_charged_total", "Charges by model in currency units, rounded: the ledger has the exact amounts.",
		[]string{"model"}, Kind{PerUnit: float64(money.Unit)}, func(l servedLabels) []string { return []string{l.model} })
	m.models = NewChildCache(func(l servedLabels) *modelCounters {
		c := &modelCounters{charged: m.charged.Of(l)}
		for i, kind := range [tokenKinds]string{"input", "cached_input", "cache_write", "output"} {
			c.tokens[i] = m.tokens.Of(tokenLabels{l, kind})
		}
		return c
	})
	m.cache = NewCounters(
		"mgw_route_input_tokens_total",
		"Input tokens that providers have reported, by route and cache: hit for those read from the provider's prompt cache, miss "+
			"for all others. A share of hits that falls means that conversations do not stay where their cache is.",
		[]string{"route", "cache"},
		Kind{},
		func(l cacheLabels) []string {
			if l.hit {
				return []string{l.route, "hit"}
			}
			return []string{l.route, "miss"}
		},
	)
	reg.MustRegister(m.byModel, m.tokens, m.charged, m.cache)
}

// tokenKinds is the number of kinds of tokens that the metrics distinguish.
const tokenKinds = 4

// RecordRequest records an answered request. Its endpoint is empty for a path that does not exist.
func (m *Metrics) RecordRequest(r *finished.Request) {
	endpoint := cmp.Or(r.Endpoint, "none")
	m.requests.Of(requestLabels{endpoint, r.Status, r.Code, r.Outcome}).Add(1)
	m.durations.Of(durationLabels{endpoint, routeLabels{r.Provider, r.Route}}).Observe(r.Took)
	if r.Model != "" {
		m.byModel.Of(modelLabels{r.Model, r.Outcome}).Add(1)
	}
	if r.End != "" {
		m.streamEnds.Of(r.End).Add(1)
	} else if r.Upstream > 0 && r.Status == http.StatusOK {
		m.overhead.Observe((r.Took - r.Upstream).Seconds())
	}
}

// InFlight returns the number of requests of an endpoint that are being handled. The caller counts.
func (m *Metrics) InFlight(endpoint string) *atomic.Int64 { return m.inFlight.Of(endpoint) }

// RecordFirstToken records the time from a request's arrival to the first bytes of its stream from a route of a provider.
func (m *Metrics) RecordFirstToken(provider, route string, d time.Duration) {
	m.firstToken.Of(routeLabels{provider, route}).Observe(d)
}

// RecordUpstream records how long an attempt waited for its provider.
func (m *Metrics) RecordUpstream(provider string, d time.Duration) {
	m.upstream.Of(provider).Observe(d.Seconds())
}

// RecordFailover records that an attempt follows one that failed at a provider with an error class.
func (m *Metrics) RecordFailover(from, class string) { m.failovers.WithLabelValues(from, class).Inc() }

// RecordTimeout records a call to a provider that a time limit has ended.
func (m *Metrics) RecordTimeout(provider, limit string) {
	m.timeouts.WithLabelValues(provider, limit).Inc()
}

// RecordAttempt records a call to a route of a provider. The outcome is ok or the class of the failure.
func (m *Metrics) RecordAttempt(provider, route, outcome string) {
	m.attempts.Of(attemptLabels{routeLabels{provider, route}, outcome}).Add(1)
}

// RecordLeftOut records a call to a route of a provider without members that the gateway otherwise adds.
func (m *Metrics) RecordLeftOut(provider, route string, without format.Added) {
	for member := range without.Each {
		m.leftOut.Of(memberLabels{routeLabels{provider, route}, member}).Add(1)
	}
}

// RecordUnpriced records usage without a price.
func (m *Metrics) RecordUnpriced(kind string) { m.unpriced.WithLabelValues(kind).Inc() }

// RecordUnknownState records a state of a video job that has no known meaning.
func (m *Metrics) RecordUnknownState(provider string) { m.unknown.WithLabelValues(provider).Inc() }

// RecordLeft records a stream whose client has left, with the rule of its charge.
func (m *Metrics) RecordLeft(rule string) { m.left.WithLabelValues(rule).Inc() }

// RecordUsage records what a finished generation request has reserved, used and was charged, and why its usage is in doubt. A
// charged one has a rule.
func (m *Metrics) RecordUsage(e *event.Usage, doubt usagereport.Reason) {
	m.reserved.Add(float64(max(e.Reservation, 0)) / float64(money.Unit)) // a counter must not fall
	if e.Rule == event.RuleNone {
		return
	}

	m.recordDoubt(e.Provider, doubt)
	u, model := &e.Usage, m.models.Of(servedLabels{e.Model, e.Provider})
	model.charged.Add(int64(max(e.Cost, 0)))
	for i, n := range [tokenKinds]int64{u.Input, u.CachedInput, u.CacheWrite(), u.Output} {
		if n > 0 {
			model.tokens[i].Add(n)
		}
	}

	if e.Rule == event.RuleReported {
		m.cache.Of(cacheLabels{e.Route, true}).Add(u.CachedInput)
		m.cache.Of(cacheLabels{e.Route, false}).Add(u.TotalInput() - u.CachedInput)
	}

	if u.Images > 0 {
		m.images.Add(float64(u.Images))
	}
}

// RecordVideoCharge records the charge of a finished video job, and why its length is in doubt.
func (m *Metrics) RecordVideoCharge(e *event.Usage, doubt usagereport.Reason) {
	m.recordDoubt(e.Provider, doubt)
	m.charged.Of(servedLabels{e.Model, e.Provider}).Add(int64(max(e.Cost, 0)))
}

func (m *Metrics) recordDoubt(provider string, doubt usagereport.Reason) {
	if doubt != usagereport.None {
		m.doubts.Of(doubtLabels{provider, doubt}).Add(1)
	}
}
