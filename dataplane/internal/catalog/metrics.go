package catalog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/certfile"
)

var (
	revisionDesc    = prometheus.NewDesc("mgw_catalog_revision", "Revision of the catalog snapshot in use.", nil, nil)
	ageDesc         = prometheus.NewDesc("mgw_catalog_age_seconds", "Seconds since the catalog snapshot in use was applied.", nil, nil)
	maintenanceDesc = prometheus.NewDesc(
		"mgw_maintenance_active",
		"1 while the proxy refuses requests because of maintenance, by scope (system, provider or model) and the id of the provider "+
			"or model; and, with scope route, for each route that gets no calls because its provider or model is in maintenance.",
		[]string{"scope", "id"},
		nil,
	)
	certificateDesc = prometheus.NewDesc(
		"mgw_provider_certificate_expiry_timestamp_seconds",
		"Unix time at which the first of the certificates expires that the calls of an enabled provider need: client, those of a "+
			"credential, or issuer, those of its trusted issuers, which have no credential.",
		[]string{"provider", "credential", "certificate"},
		nil,
	)
)

func (s *Store) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- revisionDesc
	descriptions <- ageDesc
	descriptions <- maintenanceDesc
	descriptions <- certificateDesc
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
	closed := map[string]*catalogkv.Maintenance{}

	for id, p := range current.providers {
		active("provider", id, p.Maintenance)
		if p.Enabled {
			p.certificates(metrics)
		}
	}

	for id, m := range current.models {
		active("model", id, m.Maintenance)
		for _, routes := range m.Routes {
			for _, r := range routes {
				if closed[r.ID] = m.Maintenance; !m.Maintenance.Active(now) {
					closed[r.ID] = r.Provider.Maintenance
				}
			}
		}
	}
	for id, m := range closed {
		active("route", id, m)
	}
}

// certificates exports when the certificates expire that the calls of the provider need.
func (p *Provider) certificates(metrics chan<- prometheus.Metric) {
	expiry := func(credential, certificate string, at time.Time) {
		if !at.IsZero() {
			metrics <- prometheus.MustNewConstMetric(
				certificateDesc, prometheus.GaugeValue, float64(at.Unix()), p.ID, credential, certificate,
			)
		}
	}
	expiry("", "issuer", certfile.FirstExpiry(p.CA))
	for _, c := range p.Credentials {
		if c.secrets != nil {
			expiry(c.ID, "client", c.secrets.certificateExpiry)
		}
	}
}
