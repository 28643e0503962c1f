package meter

import (
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is the metric of Prometheus that counts of the keys K are added up to.
type metric[K comparable] struct {
	desc *prometheus.Desc
	// labels returns the values of the metric's labels. Counts of keys with the same ones are added up.
	labels func(K) []string
}

func (m *metric[K]) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- m.desc }

// sum adds up the values of keys with the same labels.
func sum[K comparable, V, S any](m *metric[K], all iter.Seq2[K, V], add func(*S, V)) map[string]*S {
	sums := map[string]*S{}
	for key, value := range all {
		joined := strings.Join(m.labels(key), "\x00")
		if sums[joined] == nil {
			sums[joined] = new(S)
		}
		add(sums[joined], value)
	}
	return sums
}

// Counters counts by key. It is a prometheus.Collector.
type Counters[K comparable] struct {
	metric[K]
	kind prometheus.ValueType
	unit float64
	by   *ChildCache[K, *atomic.Int64]
}

// Kind says how Prometheus shows counters.
type Kind struct {
	// Gauge is set for counts that can fall.
	Gauge bool
	// PerUnit is how many counts are one unit of the metric; zero: one.
	PerUnit float64
}

// NewCounters returns Counters that Prometheus shows under a name with labels.
func NewCounters[K comparable](name, help string, names []string, kind Kind, labels func(K) []string) *Counters[K] {
	c := &Counters[K]{
		metric: metric[K]{prometheus.NewDesc(name, help, names, nil), labels},
		kind:   prometheus.CounterValue,
		unit:   max(kind.PerUnit, 1),
		by:     NewChildCache(func(K) *atomic.Int64 { return new(atomic.Int64) }),
	}
	if kind.Gauge {
		c.kind = prometheus.GaugeValue
	}
	return c
}

// Of returns the count of a key.
func (c *Counters[K]) Of(key K) *atomic.Int64 { return c.by.Of(key) }

// All returns the counts so far.
func (c *Counters[K]) All() iter.Seq2[K, *atomic.Int64] { return c.by.All() }

func (c *Counters[K]) Collect(metrics chan<- prometheus.Metric) {
	for labels, n := range sum(&c.metric, c.All(), func(sum *int64, n *atomic.Int64) { *sum += n.Load() }) {
		metrics <- prometheus.MustNewConstMetric(c.desc, c.kind, float64(*n)/c.unit, split(labels)...)
	}
}

// split is the inverse of joining labels.
func split(joined string) []string { return strings.Split(joined, "\x00") }

// Histogram counts durations in buckets.
type Histogram struct {
	bounds  []int64 // in milliseconds
	buckets []atomic.Int64
	sum     atomic.Int64 // in nanoseconds
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(h.bounds) && d > time.Duration(h.bounds[i])*time.Millisecond {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// Read returns the counts of the buckets and the sum of the durations.
func (h *Histogram) Read() (buckets []int64, sum time.Duration) {
	buckets = make([]int64, len(h.buckets))
	for i := range h.buckets {
		buckets[i] = h.buckets[i].Load()
	}
	return buckets, time.Duration(h.sum.Load())
}

// Histograms has a Histogram by key. It is a prometheus.Collector.
type Histograms[K comparable] struct {
	metric[K]
	bounds []int64
	by     *ChildCache[K, *Histogram]
}

// NewHistograms returns Histograms with upper bounds in milliseconds, which Prometheus shows in seconds under a name with
// labels.
func NewHistograms[K comparable](name, help string, names []string, bounds []int64, labels func(K) []string) *Histograms[K] {
	return &Histograms[K]{
		metric: metric[K]{prometheus.NewDesc(name, help, names, nil), labels}, bounds: bounds,
		by: NewChildCache(func(K) *Histogram { return &Histogram{bounds: bounds, buckets: make([]atomic.Int64, len(bounds)+1)} }),
	}
}

// Of returns the histogram of a key.
func (h *Histograms[K]) Of(key K) *Histogram { return h.by.Of(key) }

// All returns the histograms so far.
func (h *Histograms[K]) All() iter.Seq2[K, *Histogram] { return h.by.All() }

func (h *Histograms[K]) Collect(metrics chan<- prometheus.Metric) {
	type total struct {
		buckets []int64
		sum     time.Duration
	}
	for labels, t := range sum(&h.metric, h.All(), func(t *total, one *Histogram) {
		buckets, sum := one.Read()
		for i, n := range t.buckets {
			buckets[i] += n
		}
		t.buckets, t.sum = buckets, t.sum+sum
	}) {
		upTo, n := map[float64]uint64{}, uint64(0)
		for i, bound := range h.bounds {
			n += uint64(t.buckets[i])
			upTo[float64(bound)/1000] = n
		}
		n += uint64(t.buckets[len(h.bounds)])
		metrics <- prometheus.MustNewConstHistogram(h.desc, n, t.sum.Seconds(), upTo, split(labels)...)
	}
}

// Label returns the labels of a key that is one label.
func Label[K ~string](key K) []string { return []string{string(key)} }
