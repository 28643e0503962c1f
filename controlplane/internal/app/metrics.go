package app

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/shared/certfile"
	"modelgateway/shared/platform/buildinfo"
	"modelgateway/shared/platform/ops"
)

// newRegistry returns a registry with the metrics of the Go runtime and of the process, and the version.
func newRegistry(version string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "mgw_build_info", Help: "1, labelled with the version and the commit.",
		ConstLabels: prometheus.Labels{"version": version, "commit": buildinfo.Commit()},
	}).Set(1)
	return reg
}

// registerProbes registers the state of the process.
func registerProbes(reg prometheus.Registerer, probes *ops.Probes) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_ready", Help: "1 if every check of /readyz succeeds, else 0.",
	}, func() float64 {
		ready, _ := probes.Run(context.Background())
		return asNumber(ready)
	})
}

// registerNATS registers the state of the connection to NATS.
func registerNATS(reg prometheus.Registerer, b *bus.Bus) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_nats_connected", Help: "1 while there is a connection to NATS, else 0.",
	}, func() float64 { return asNumber(b.Connected()) })
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "mgw_nats_reconnects_total", Help: "Connections to NATS that were made after one was lost.",
	}, func() float64 { return float64(b.Reconnects()) })
}

// registerCertificates registers the expiry of the certificates in use.
func registerCertificates(reg prometheus.Registerer, cfg *config.Config, b *bus.Bus) {
	times := map[string]func() (time.Time, error){"nats_server": b.CertificateExpiry}
	for name, file := range map[string]string{"admin": cfg.Admin.TLS.CertFile, "nats_client": cfg.NATS.CertFile} {
		if file != "" {
			times[name] = func() (time.Time, error) { return certfile.Expiry(file) }
		}
	}
	reg.MustRegister(ops.Expiries{Times: times, Desc: prometheus.NewDesc(
		"mgw_certificate_expiry_timestamp_seconds",
		"Unix time at which a certificate expires: admin (of the listener), nats_client (of the control plane at NATS) or nats_server "+
			"(of the connected server).",
		[]string{"certificate"},
		nil,
	)})
}

func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// pools exports the pools of connections to Postgres by name.
type pools map[string]*postgres.DB

var (
	poolInUseDesc = prometheus.NewDesc(
		"mgw_postgres_pool_in_use",
		"Connections to Postgres that are in use, by pool: proxies (leases, sessions, settlement, video jobs) or admin (admin API, jobs).",
		[]string{"pool"},
		nil,
	)
	poolMaxDesc  = prometheus.NewDesc("mgw_postgres_pool_max", "Maximum number of connections to Postgres, by pool.", []string{"pool"}, nil)
	poolWaitDesc = prometheus.NewDesc("mgw_postgres_pool_wait_seconds_total",
		"Time that operations have waited for a connection to Postgres while all were in use, by pool.", []string{"pool"}, nil)
)

func (p pools) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- poolInUseDesc
	descriptions <- poolMaxDesc
	descriptions <- poolWaitDesc
}

func (p pools) Collect(metrics chan<- prometheus.Metric) {
	for name, db := range p {
		collectPool(metrics, name, db.Pool().Stat())
	}
}

func collectPool(metrics chan<- prometheus.Metric, name string, s *pgxpool.Stat) {
	metrics <- prometheus.MustNewConstMetric(poolInUseDesc, prometheus.GaugeValue, float64(s.AcquiredConns()), name)
	metrics <- prometheus.MustNewConstMetric(poolMaxDesc, prometheus.GaugeValue, float64(s.MaxConns()), name)
	metrics <- prometheus.MustNewConstMetric(poolWaitDesc, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds(), name)
}
