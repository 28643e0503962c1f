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
	"modelgateway/shared/price"
)

// Metrics are the metrics of the public API. Clients cannot invent values of their labels.
type Metrics struct {
	requests   *childcache.Cache[requestLabels, prometheus.Counter]
	durations  *childcache.Cache[string, prometheus.Observer] // by endpoint
	overhead   prometheus.Histogram
	firstToken prometheus.Histogram
	streamEnds *prometheus.CounterVec
	tokens     [tokenKinds]prometheus.Counter
	images     prometheus.Counter
	attempts   *childcache.Cache[attemptLabels, prometheus.Counter]
	unpriced   *prometheus.CounterVec
}

type requestLabels struct {
	endpoint string
	status   int
	code     apierr.Code
	outcome  string
}

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
	m := &Metrics{
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
		firstToken: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_time_to_first_token_seconds", Help: "Time from the arrival of a request's headers to the first bytes of its stream.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		streamEnds: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_stream_ends_total", Help: "Ended streams by reason: completed, client_gone, revoked, or the class of the provider's failure.",
		}, []string{"reason"}),
		unpriced: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_unpriced_usage_total",
			Help: "Answers whose provider reported usage without a price, by kind: server_tool for calls of tools, or the kind of a secondary model. " +
				"Above zero, the operator pays for something that no client is charged for.",
		}, []string{"kind"}),
		images: f.NewCounter(prometheus.CounterOpts{Name: "mgw_images_total", Help: "Images that generation requests have used."}),
	}
	tokens := f.NewCounterVec(prometheus.CounterOpts{Name: "mgw_tokens_total", Help: "Tokens that generation requests have used, by kind."}, []string{"kind"})
	for i, kind := range [tokenKinds]string{"input", "cached_input", "cache_write", "output"} {
		m.tokens[i] = tokens.WithLabelValues(kind) // looked up once, because every request counts tokens
	}
	return m
}

// tokenKinds is the number of kinds of tokens that the metrics distinguish.
const tokenKinds = 4

// Request is an answered request.
type Request struct {
	// Endpoint is empty for a path that does not exist, Code for an answer that is no error.
	Endpoint string
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
	if r.End != "" {
		m.streamEnds.WithLabelValues(r.End).Inc()
	} else if r.Upstream > 0 && r.Status == http.StatusOK {
		m.overhead.Observe((r.Took - r.Upstream).Seconds())
	}
}

// RecordFirstToken records the time from a request's arrival to the first bytes of its stream.
func (m *Metrics) RecordFirstToken(d time.Duration) { m.firstToken.Observe(d.Seconds()) }

// RecordAttempt records a call to a provider. The outcome is ok or the class of the failure.
func (m *Metrics) RecordAttempt(provider, outcome string) {
	m.attempts.Of(attemptLabels{provider, outcome}).Inc()
}

// RecordUnpriced records usage without a price.
func (m *Metrics) RecordUnpriced(kind string) { m.unpriced.WithLabelValues(kind).Inc() }

// RecordUsage records what a generation request used.
func (m *Metrics) RecordUsage(u *price.Usage) {
	written := u.CacheWrite5m + u.CacheWrite1h + u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther
	for i, n := range [tokenKinds]int64{u.Input, u.CachedInput, written, u.Output} {
		if n > 0 {
			m.tokens[i].Add(float64(n))
		}
	}
	if u.Images > 0 {
		m.images.Add(float64(u.Images))
	}
}
