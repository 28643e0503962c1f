package app

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/dataplane/internal/bus"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/upstream/credential"
	"modelgateway/shared/certfile"
	"modelgateway/shared/platform/buildinfo"
	"modelgateway/shared/platform/ops"
	"modelgateway/shared/wire"
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

// state holds the components whose state is exported.
type state struct {
	probes *ops.Probes
	nats   *bus.Bus
	picker *route.Picker
	models *catalog.Store
	// sources renews credentials.
	sources *credential.Sources
}

// registerState registers the metrics that are read from components at a scrape.
func registerState(reg prometheus.Registerer, s state) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_ready", Help: "1 if every check of /readyz succeeds, else 0.",
	}, func() float64 {
		ready, _ := s.probes.Run(context.Background())
		return asNumber(ready)
	})

	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_draining", Help: "1 from the time when the proxy was told to stop, else 0.",
	}, func() float64 { return asNumber(s.probes.Draining()) })

	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_nats_connected", Help: "1 while there is a connection to NATS, else 0.",
	}, func() float64 { return asNumber(s.nats.Connected()) })

	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "mgw_nats_reconnects_total", Help: "Connections to NATS that were made after one was lost.",
	}, func() float64 { return float64(s.nats.Reconnects()) })

	reg.MustRegister(s.picker, s.models, s.sources, refusedCredentials{s.picker, s.sources, s.models})
}

func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// registerCertificates registers the expiry of the certificates in use.
func registerCertificates(reg prometheus.Registerer, cfg *config.Config, nats *bus.Bus) {
	times := map[string]func() (time.Time, error){"nats_server": nats.CertificateExpiry}
	for name, file := range map[string]string{"api": cfg.API.TLS.CertFile, "nats_client": cfg.NATS.CertFile} {
		if file != "" {
			times[name] = func() (time.Time, error) { return certfile.Expiry(file) }
		}
	}
	reg.MustRegister(ops.Expiries{Times: times, Desc: prometheus.NewDesc(
		"mgw_certificate_expiry_timestamp_seconds",
		"Unix time at which a certificate expires: api (of the listener), nats_client (of the proxy at NATS) or nats_server (of the "+
			"connected server).",
		[]string{"certificate"},
		nil,
	)})
}

// refusedCredentials exports the credentials of the catalog that their providers refuse, or that cannot be renewed.
type refusedCredentials struct {
	picker  *route.Picker
	sources *credential.Sources
	models  *catalog.Store
}

// list returns the credentials with the reason, sorted by id.
func (r refusedCredentials) list() []wire.RefusedCredential {
	refused := r.picker.RefusedCredentials(r.models.HasCredential)
	for _, failing := range r.sources.Failing() {
		if !slices.ContainsFunc(refused, func(c wire.RefusedCredential) bool { return c.Credential == failing.Credential }) {
			refused = append(refused, failing)
		}
	}
	slices.SortFunc(refused, func(a, b wire.RefusedCredential) int { return cmp.Compare(a.Credential, b.Credential) })
	return refused
}

var refusedDesc = prometheus.NewDesc(
	"mgw_credential_refused",
	"1 for a credential that its provider refused when the proxy used it last, by reason: key_rejected or quota_exhausted; or that "+
		"cannot be renewed: source_failing while it still has a valid token, else source_failed.",
	[]string{"provider", "credential", "reason"},
	nil,
)

func (r refusedCredentials) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- refusedDesc
}

func (r refusedCredentials) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range r.list() {
		if provider := r.models.CredentialProvider(c.Credential); provider != "" { // the catalog may change meanwhile
			metrics <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, 1, provider, c.Credential, c.Reason)
		}
	}
}
