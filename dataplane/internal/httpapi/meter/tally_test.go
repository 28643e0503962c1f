package meter

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

type key struct{ name, detail string }

func byName(k key) []string { return []string{k.name} }

func TestMetricAddsUpWhatTheReportTellsApart(t *testing.T) {
	t.Parallel()
	c := NewCounters("c_total", "Help.", []string{"name"}, Kind{PerUnit: 10}, byName)
	c.Of(key{"a", "x"}).Add(1)
	c.Of(key{"a", "y"}).Add(2)
	c.Of(key{"b", "x"}).Add(5)
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP c_total Help.
# TYPE c_total counter
c_total{name="a"} 0.3
c_total{name="b"} 0.5
`)); err != nil {
		t.Error(err)
	}
	found := map[key]int64{}
	for k, n := range c.All() {
		found[k] = n.Load()
	}
	if diff := cmp.Diff(map[key]int64{{"a", "x"}: 1, {"a", "y"}: 2, {"b", "x"}: 5}, found, cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestHistogramCountsADurationBelowTheFirstBoundThatIsNotLess(t *testing.T) {
	t.Parallel()
	h := NewHistograms("h_seconds", "Help.", []string{"name"}, []int64{10, 500}, byName)
	for _, d := range []time.Duration{0, 10 * time.Millisecond, 11 * time.Millisecond, time.Second} {
		h.Of(key{"a", "x"}).Observe(d)
	}
	h.Of(key{"a", "y"}).Observe(500 * time.Millisecond)
	if err := testutil.CollectAndCompare(h, strings.NewReader(`
# HELP h_seconds Help.
# TYPE h_seconds histogram
h_seconds_bucket{name="a",le="0.01"} 2
h_seconds_bucket{name="a",le="0.5"} 4
h_seconds_bucket{name="a",le="+Inf"} 5
h_seconds_sum{name="a"} 1.521
h_seconds_count{name="a"} 5
`)); err != nil {
		t.Error(err)
	}
	buckets, sum := h.Of(key{"a", "x"}).Read()
	if diff := cmp.Diff([]int64{2, 1, 1}, buckets); diff != "" || sum != 1021*time.Millisecond {
		t.Errorf("sum %s, buckets (-want +got):\n%s", sum, diff)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	c := NewCounters("c_total", "Help.", []string{"name"}, Kind{}, byName)
	h := NewHistograms("h_seconds", "Help.", []string{"name"}, []int64{10, 500}, byName)
	if n := testing.AllocsPerRun(100, func() { c.Of(key{"a", "x"}).Add(1); h.Of(key{"a", "x"}).Observe(time.Second) }); n != 0 {
		t.Errorf("%v allocations; want none", n)
	}
}
