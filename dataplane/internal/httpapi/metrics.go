package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// Metrics are the figures of the public API. No label is anything that a
// client can invent.
type Metrics struct {
	requests   *series[requestLabels, prometheus.Counter]
	seconds    *series[string, prometheus.Observer] // by endpoint
	overhead   prometheus.Histogram
	firstBytes prometheus.Histogram
	ends       *prometheus.CounterVec
	usage      [usageKinds]prometheus.Counter
	attempts   *series[attemptLabels, prometheus.Counter]
}

type requestLabels struct {
	endpoint string
	status   int
	code     apierr.Code
}

type attemptLabels struct{ provider, outcome string }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_requests_total", Help: "Requests by endpoint, status and error code.",
	}, []string{"endpoint", "status", "code"})
	seconds := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "mgw_request_seconds", Help: "Time from a request's headers to the end of its answer.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"endpoint"})
	attempts := f.NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_upstream_attempts_total", Help: "Calls to providers by outcome.",
	}, []string{"provider", "outcome"})
	m := &Metrics{
		requests: newSeries(func(l requestLabels) prometheus.Counter {
			return requests.WithLabelValues(l.endpoint, strconv.Itoa(l.status), string(l.code))
		}),
		seconds:  newSeries(func(endpoint string) prometheus.Observer { return seconds.WithLabelValues(endpoint) }),
		attempts: newSeries(func(l attemptLabels) prometheus.Counter { return attempts.WithLabelValues(l.provider, l.outcome) }),
		overhead: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_overhead_seconds", Help: "Own time of requests that a provider answered in one piece: all but waiting for it.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .025, .05, .1, .5, 2},
		}),
		firstBytes: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_time_to_first_token_seconds", Help: "Time from a request's headers to the first bytes of its stream.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		ends: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_stream_ends_total", Help: "Streams by how they ended.",
		}, []string{"reason"}),
	}
	usage := f.NewCounterVec(prometheus.CounterOpts{Name: "mgw_tokens_total", Help: "What requests used, by kind."}, []string{"kind"})
	for i, kind := range [usageKinds]string{"input", "cached_input", "cache_write", "output", "images", "seconds"} {
		m.usage[i] = usage.WithLabelValues(kind) // found once: it is counted for every request
	}
	return m
}

// usageKinds is how many kinds of usage are told apart.
const usageKinds = 6

func (m *Metrics) request(x *exchange, took time.Duration) {
	endpoint := x.endpoint
	if endpoint == "" {
		endpoint = "none"
	}
	m.requests.of(requestLabels{endpoint, x.status, x.code}).Inc()
	m.seconds.of(endpoint).Observe(took.Seconds())
	if x.end != "" {
		m.ends.WithLabelValues(x.end).Inc()
	} else if x.upstream > 0 && x.status == http.StatusOK {
		m.overhead.Observe((took - x.upstream).Seconds())
	}
}

func (m *Metrics) firstToken(d time.Duration) { m.firstBytes.Observe(d.Seconds()) }

func (m *Metrics) attempt(provider, outcome string) {
	m.attempts.of(attemptLabels{provider, outcome}).Inc()
}

func (m *Metrics) tokens(u *price.Usage) {
	written := u.CacheWrite5m + u.CacheWrite1h + u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther
	for i, n := range [usageKinds]int64{u.Input, u.CachedInput, written, u.Output, u.Images, u.Seconds} {
		if n > 0 {
			m.usage[i].Add(float64(n))
		}
	}
}
