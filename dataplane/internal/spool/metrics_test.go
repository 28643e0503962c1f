package spool

import (
	"log/slog"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsOfTheSpoolFollowItsState(t *testing.T) {
	s, _, cfg := setup(t)
	reg := prometheus.NewRegistry()
	NewPublisher(s, nil, slog.New(slog.DiscardHandler), reg)
	read := func() map[string]float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			values[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
		}
		return values
	}
	before := read()
	finish(start(t, s, 1, "req"), 1, "req", 1)
	after := read()
	if after["mgw_spool_capacity"] != float64(cfg.MaxEvents) || after["mgw_spool_max_bytes"] != float64(cfg.MaxBytes) {
		t.Errorf("limits: %v", after)
	}
	if after["mgw_spool_used_capacity"] != before["mgw_spool_used_capacity"]+1 || after["mgw_spool_bytes"] <= before["mgw_spool_bytes"] {
		t.Errorf("before a request %v, afterwards %v", before, after)
	}
	if free := after["mgw_spool_disk_free_bytes"]; !(free > 0) {
		t.Errorf("%v bytes are free on the disk", free)
	}
	s.cfg.Dir += "-missing"
	if free := read()["mgw_spool_disk_free_bytes"]; !math.IsNaN(free) {
		t.Errorf("%v bytes are free on a disk that is not there; want NaN", free)
	}
}
