// Package meter owns the metrics of the public API: its requests, calls of providers and usage.
package meter

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/dataplane/internal/httpapi/childcache"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
)

// Metrics are the metrics of the public API. Clients cannot invent values of their labels: models, providers and routes
// are those of the catalog.
type Metrics struct {
	inFlight   *prometheus.GaugeVec
	requests   *childcache.Cache[requestLabels, prometheus.Counter]
	durations  *childcache.Cache[string, prometheus.Observer] // by endpoint
	overhead   prometheus.Histogram
	streamEnds *prometheus.CounterVec
	models     *childcache.Cache[string, *modelCounters]
	byModel    *childcache.Cache[modelLabels, prometheus.Counter]
	images     prometheus.Counter
	reserved   prometheus.Counter
	attempts   *childcache.Cache[attemptLabels, prometheus.Counter]
	// firstToken and upstream are by provider.
	firstToken, upstream *childcache.Cache[string, prometheus.Observer]
	failovers            *prometheus.CounterVec
	estimated            *prometheus.CounterVec
	unpriced             *prometheus.CounterVec
}

// modelCounters are the counters of one model.
type modelCounters struct {
	charged prometheus.Counter
	tokens  [tokenKinds]prometheus.Counter
}

type requestLabels struct {
	endpoint string
	status   int
	code     apierr.Code
	outcome  string
}

type modelLabels struct{ model, outcome string }

type attemptLabels struct{ provider, outcome string }

// New registers the metrics.
func New(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_requests_total", Help: "Answered requests by endpoint, HTTP status, error code and outcome: completed, failed, client_gone or refused. " +
			"A stream that breaks off has the status 200 and the outcome failed.",
	}, []string{"endpoint", "status", "code", "outcome"})
	durations := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "mgw_request_duration_seconds", Help: "Time from the arrival of a request's headers to the end of its answer.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"endpoint"})
	attempts := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_provider_attempts_total", Help: "Calls to providers by outcome: ok, or the error class.",
	}, []string{"provider", "outcome"})
	firstToken := f.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "mgw_time_to_first_token_seconds",
		Help:    "Time from the arrival of a request's headers to the first bytes of its stream, by the provider that served it.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	}, []string{"provider"})
	upstream := f.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "mgw_upstream_seconds",
		Help:    "Time that an attempt waited for its provider: until the answer began, or for a non-streaming answer until it was complete. Failed attempts count, too.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"provider"})
	m := &Metrics{
		inFlight: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mgw_requests_in_flight", Help: "Requests that are being handled now, by endpoint.",
		}, []string{"endpoint"}),
		requests: childcache.New(func(l requestLabels) prometheus.Counter {
			return requests.WithLabelValues(l.endpoint, strconv.Itoa(l.status), string(l.code), l.outcome)
		}),
		durations: childcache.New(func(endpoint string) prometheus.Observer { return durations.WithLabelValues(endpoint) }),
		attempts:  childcache.New(func(l attemptLabels) prometheus.Counter { return attempts.WithLabelValues(l.provider, l.outcome) }),
		overhead: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "mgw_request_overhead_seconds",
			Help:    "Time that the proxy itself adds to a successful non-streaming request: its duration less the time spent waiting for providers.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .025, .05, .1, .5, 2},
		}),
		firstToken: childcache.New(func(provider string) prometheus.Observer { return firstToken.WithLabelValues(provider) }),
		upstream:   childcache.New(func(provider string) prometheus.Observer { return upstream.WithLabelValues(provider) }),
		streamEnds: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_stream_ends_total", Help: "Ended streams by reason: completed, client_gone, revoked, " +
				"busy (no room in the budget for bodies), or the class of the provider's failure.",
		}, []string{"reason"}),
		unpriced: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_unpriced_usage_total",
			Help: "Answers whose provider reported usage without a price, by kind: server_tool for calls of tools, or the kind of a secondary model. " +
				"Above zero, the operator pays for something that no client is charged for.",
		}, []string{"kind"}),
		images: f.NewCounter(prometheus.CounterOpts{Name: "mgw_images_total", Help: "Images that generation requests have used."}),
		reserved: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_reserved_total",
			Help: "Reservations of finished generation requests, in currency units. Far above the charges, they keep money of accounts back needlessly.",
		}),
		failovers: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_failovers_total", Help: "Attempts that followed a failed one of the same request, by the provider and the error class of the failed one.",
		}, []string{"from", "class"}),
		estimated: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_usage_estimated_total", Help: "Charged answers whose provider reported no usage, or one without a price, by provider. Their usage is an estimate.",
		}, []string{"provider"}),
	}
	m.countModels(f)
	return m
}

// countModels registers the counters by model.
func (m *Metrics) countModels(f promauto.Factory) {
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_model_requests_total", Help: "Answered requests for a model of the catalog, by model and outcome as in mgw_requests_total.",
	}, []string{"model", "outcome"})
	m.byModel = childcache.New(func(l modelLabels) prometheus.Counter { return requests.WithLabelValues(l.model, l.outcome) })
	tokens := f.NewCounterVec(prometheus.CounterOpts{Name: "mgw_tokens_total", Help: "Tokens that generation requests have used, by model and kind."}, []string{"model", "kind"})
	charged := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_charged_total", Help: "Charges by model in currency units, rounded: the ledger has the exact amounts.",
	}, []string{"model"})
	m.models = childcache.New(func(model string) *modelCounters {
		c := &modelCounters{charged: charged.WithLabelValues(model)}
		for i, kind := range [tokenKinds]string{"input", "cached_input", "cache_write", "output"} {
			c.tokens[i] = tokens.WithLabelValues(model, kind)
		}
		return c
	})
}

// tokenKinds is the number of kinds of tokens that the metrics distinguish.
const tokenKinds = 4

// Request is an answered request.
type Request struct {
	// Endpoint is empty for a path that does not exist, Model if the request names none of the catalog, Code for an answer
	// that is no error.
	Endpoint string
	Model    string
	Status   int
	Code     apierr.Code
	// Outcome tells how the request ended, End why its stream did; End is empty for an answer in one piece.
	Outcome, End string
	// Took is its whole duration, Upstream the time spent waiting for providers.
	Took, Upstream time.Duration
}

// RecordRequest records an answered request.
func (m *Metrics) RecordRequest(r *Request) {
	endpoint := cmp.Or(r.Endpoint, "none")
	m.requests.Of(requestLabels{endpoint, r.Status, r.Code, r.Outcome}).Inc()
	m.durations.Of(endpoint).Observe(r.Took.Seconds())
	if r.Model != "" {
		m.byModel.Of(modelLabels{r.Model, r.Outcome}).Inc()
	}
	if r.End != "" {
		m.streamEnds.WithLabelValues(r.End).Inc()
	} else if r.Upstream > 0 && r.Status == http.StatusOK {
		m.overhead.Observe((r.Took - r.Upstream).Seconds())
	}
}

// InFlight returns the number of requests of an endpoint that are being handled. The caller counts.
func (m *Metrics) InFlight(endpoint string) prometheus.Gauge {
	return m.inFlight.WithLabelValues(endpoint)
}

// RecordFirstToken records the time from a request's arrival to the first bytes of its stream from a provider.
func (m *Metrics) RecordFirstToken(provider string, d time.Duration) {
	m.firstToken.Of(provider).Observe(d.Seconds())
}

// RecordUpstream records how long an attempt waited for its provider.
func (m *Metrics) RecordUpstream(provider string, d time.Duration) {
	m.upstream.Of(provider).Observe(d.Seconds())
}

// RecordFailover records that an attempt follows one that failed at a provider with an error class.
func (m *Metrics) RecordFailover(from, class string) { m.failovers.WithLabelValues(from, class).Inc() }

// RecordAttempt records a call to a provider. The outcome is ok or the class of the failure.
func (m *Metrics) RecordAttempt(provider, outcome string) {
	m.attempts.Of(attemptLabels{provider, outcome}).Inc()
}

// RecordUnpriced records usage without a price.
func (m *Metrics) RecordUnpriced(kind string) { m.unpriced.WithLabelValues(kind).Inc() }

// RecordUsage records what a finished generation request has reserved, used and was charged. A charged one has a rule.
func (m *Metrics) RecordUsage(e *event.Usage) {
	m.reserved.Add(inUnits(e.Reservation))
	if e.Rule == event.RuleNone {
		return
	}
	if e.Estimated {
		m.estimated.WithLabelValues(e.Provider).Inc()
	}
	u, model := &e.Usage, m.models.Of(e.Model)
	model.charged.Add(inUnits(e.Cost))
	written := u.CacheWrite5m + u.CacheWrite1h + u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther
	for i, n := range [tokenKinds]int64{u.Input, u.CachedInput, written, u.Output} {
		if n > 0 {
			model.tokens[i].Add(float64(n))
		}
	}
	if u.Images > 0 {
		m.images.Add(float64(u.Images))
	}
}

// RecordVideoCharge records the charge of a finished video job.
func (m *Metrics) RecordVideoCharge(model string, cost money.Nano) {
	m.models.Of(model).charged.Add(inUnits(cost))
}

// inUnits returns an amount in currency units. A counter must not fall, so a negative amount counts as zero.
func inUnits(n money.Nano) float64 { return float64(max(n, 0)) / float64(money.Unit) }
