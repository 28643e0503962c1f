package app

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/bus"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/upstream/credential"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/platform/buildinfo"
	"modelgateway/shared/platform/ops"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// gathered returns the values of all counters and gauges; those with labels by name and label values.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			words := []string{family.GetName()}
			for _, l := range m.GetLabel() {
				words = append(words, l.GetValue())
			}
			values[strings.Join(words, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func TestMetricsFollowTheStateOfTheProxy(t *testing.T) {
	t.Parallel()
	server := natstest.New(t)
	lost, back := make(chan bool, 1), make(chan bool, 1)
	connection, err := bus.Connect(bus.Config{URL: server.URL(), Name: "proxy", Options: []nats.Option{
		nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- true }), nats.ReconnectHandler(func(*nats.Conn) { back <- true }),
	}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	models := catalog.New(fleet)
	for key, v := range map[[2]string]any{
		{subject.KindProvider, "p"}: catalogkv.Provider{ID: "p", Credentials: []catalogkv.Credential{{ID: "crd_1", Sealed: fleet.Seal([]byte("secret"), catalogkv.CredentialContext("crd_1"))}}},
		{subject.CatalogHead, ""}:   catalogkv.Head{V: 1, Rev: 3},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		models.Set(key[0], key[1], data)
	}
	if err := models.Apply(); err != nil {
		t.Fatal(err)
	}
	var probes ops.Probes
	picker := route.New(nil)
	sources := credential.New(nil, models.HasCredential, slog.New(slog.DiscardHandler))
	defer sources.Close()
	reg := newRegistry("1.2.3")
	registerState(reg, state{&probes, connection, picker, models, sources})
	check := func(when string, want map[string]float64) {
		t.Helper()
		values := gathered(t, reg)
		for name, value := range want {
			if got, there := values[name]; !there || got != value {
				t.Errorf("%s: %s is %v, %t; want %v", when, name, got, there, value)
			}
		}
	}
	check("at first", map[string]float64{
		"mgw_build_info " + buildinfo.Commit() + " 1.2.3": 1, "mgw_ready": 1, "mgw_draining": 0, "mgw_nats_connected": 1, "mgw_nats_reconnects_total": 0, "mgw_catalog_revision": 3,
	})
	if _, there := gathered(t, reg)["mgw_credential_refused crd_1 p key_rejected"]; there {
		t.Error("a credential counts as refused before it was used")
	}
	picker.RecordRefusal("crd_1", wire.KeyRejected, time.Minute)
	picker.RecordRefusal("crd_other", wire.KeyRejected, time.Minute) // no provider has it any more
	probes.SetDraining()
	server.Stop()
	<-lost
	check("while draining, without NATS", map[string]float64{"mgw_ready": 0, "mgw_draining": 1, "mgw_nats_connected": 0, "mgw_credential_refused crd_1 p key_rejected": 1})
	server.Start()
	<-back
	check("with NATS again", map[string]float64{"mgw_nats_connected": 1, "mgw_nats_reconnects_total": 1})
}

func TestExpiryOfCertificatesIsMeasured(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.NotFoundHandler())
	defer web.Close()
	file := filepath.Join(t.TempDir(), "tls.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	server := natstest.New(t, natstest.TLS(&tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}))
	connection, err := bus.Connect(bus.Config{URL: server.URL(), Name: "proxy", CAFile: file}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	reg := newRegistry("1.2.3")
	registerCertificates(reg, &config.Config{API: config.API{TLS: config.TLS{CertFile: file}}}, connection)
	values, want := gathered(t, reg), float64(web.Certificate().NotAfter.Unix())
	for _, certificate := range []string{"api", "nats_server"} {
		if got := values["mgw_certificate_expiry_timestamp_seconds "+certificate]; got != want {
			t.Errorf("%s expires at %v; want %v", certificate, got, want)
		}
	}
	if _, there := values["mgw_certificate_expiry_timestamp_seconds nats_client"]; there {
		t.Error("a certificate that is not configured has an expiry")
	}
}
