package catalog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/catalogkv"
)

var (
	revisionDesc    = prometheus.NewDesc("mgw_catalog_revision", "Revision of the catalog snapshot in use.", nil, nil)
	ageDesc         = prometheus.NewDesc("mgw_catalog_age_seconds", "Seconds since the catalog snapshot in use was applied.", nil, nil)
	maintenanceDesc = prometheus.NewDesc(
		"mgw_maintenance_active",
		"1 while the proxy refuses requests because of maintenance, by scope (system, provider or model) and the id of the provider "+
			"or model.",
		[]string{"scope", "id"},
		nil,
	)
)

func (s *Store) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- revisionDesc
	descriptions <- ageDesc
	descriptions <- maintenanceDesc
}

func (s *Store) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(revisionDesc, prometheus.GaugeValue, float64(s.Rev()))
	metrics <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, time.Since(s.AppliedAt()).Seconds())
	current, now := s.Snapshot(), time.Now()
	if current == nil {
		return
	}

	active := func(scope, id string, m *catalogkv.Maintenance) {
		if m.Active(now) {
			metrics <- prometheus.MustNewConstMetric(maintenanceDesc, prometheus.GaugeValue, 1, scope, id)
		}
	}
	active("system", "", current.Settings.Maintenance)

	for id, p := range current.providers {
		active("provider", id, p.Maintenance)
	}

	for id, m := range current.models {
		active("model", id, m.Maintenance)
	}
}
