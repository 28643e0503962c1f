package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/price"
)

// Metrics are the figures of the public API. No label is anything that a
// client can invent.
type Metrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	overhead   prometheus.Histogram
	firstBytes prometheus.Histogram
	ends       *prometheus.CounterVec
	usage      *prometheus.CounterVec
	attempts   *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_requests_total", Help: "Requests by endpoint, status and error code.",
		}, []string{"endpoint", "status", "code"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mgw_request_seconds", Help: "Time from a request's headers to the end of its answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"endpoint"}),
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
		usage: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_tokens_total", Help: "What requests used, by kind.",
		}, []string{"kind"}),
		attempts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_upstream_attempts_total", Help: "Calls to providers by outcome.",
		}, []string{"provider", "outcome"}),
	}
}

func (m *Metrics) request(x *exchange, took time.Duration) {
	endpoint := x.endpoint
	if endpoint == "" {
		endpoint = "none"
	}
	m.requests.WithLabelValues(endpoint, strconv.Itoa(x.status), string(x.code)).Inc()
	m.seconds.WithLabelValues(endpoint).Observe(took.Seconds())
	if x.end != "" {
		m.ends.WithLabelValues(x.end).Inc()
	} else if x.upstream > 0 && x.status == http.StatusOK {
		m.overhead.Observe((took - x.upstream).Seconds())
	}
}

func (m *Metrics) firstToken(d time.Duration) { m.firstBytes.Observe(d.Seconds()) }

func (m *Metrics) attempt(provider, outcome string) {
	m.attempts.WithLabelValues(provider, outcome).Inc()
}

func (m *Metrics) tokens(u *price.Usage) {
	for _, part := range [...]struct {
		kind string
		n    int64
	}{
		{"input", u.Input},
		{"cached_input", u.CachedInput},
		{"cache_write", u.CacheWrite5m + u.CacheWrite1h + u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther},
		{"output", u.Output},
		{"images", u.Images},
		{"seconds", u.Seconds},
	} {
		if part.n > 0 {
			m.usage.WithLabelValues(part.kind).Add(float64(part.n))
		}
	}
}
