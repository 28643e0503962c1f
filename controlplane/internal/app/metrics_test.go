package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/shared/platform/buildinfo"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
)

// scrape returns the values of /metrics by name and labels.
func (r *running) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.ops+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, text, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "mgw_") {
			if values[name], err = strconv.ParseFloat(text, 64); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
		}
	}
	return values
}

func TestMetricsFollowTheStateOfTheControlPlane(t *testing.T) {
	broker := natstest.New(t)
	cfg := testConfig(pgtest.URL(t), broker.URL())
	r := start(t, cfg)
	defer r.end(t)
	check := func(when string, values, want map[string]float64) {
		t.Helper()
		for name, value := range want {
			if got, there := values[name]; !there || got != value {
				t.Errorf("%s: %s is %v, %t; want %v", when, name, got, there, value)
			}
		}
	}
	check("at first", r.scrape(t), map[string]float64{
		`mgw_build_info{commit="` + buildinfo.Commit() + `",version="test"}`: 1, "mgw_ready": 1, "mgw_nats_connected": 1, "mgw_nats_reconnects_total": 0,
		`mgw_postgres_pool_max{pool="proxies"}`: float64(cfg.Postgres.MaxConnections), `mgw_postgres_pool_max{pool="admin"}`: float64(cfg.Postgres.AdminMaxConnections),
	})
	broker.Stop()
	await.Until(t, "the end of the connection", func() bool { return r.scrape(t)["mgw_nats_connected"] == 0 })
	check("without NATS", r.scrape(t), map[string]float64{"mgw_ready": 0, "mgw_nats_connected": 0})
	broker.Start()
	await.Until(t, "the connection", func() bool { return r.scrape(t)["mgw_nats_connected"] == 1 })
	check("with NATS again", r.scrape(t), map[string]float64{"mgw_nats_reconnects_total": 1})
}

func TestExpiryOfCertificatesIsMeasured(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := config.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	for name, block := range map[string]*pem.Block{
		files.CertFile: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broker := natstest.New(t, natstest.TLS(&tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}))
	cfg := testConfig(pgtest.URL(t), broker.URL())
	cfg.Admin.TLS, cfg.NATS.CAFile = files, files.CertFile
	r := start(t, cfg)
	defer r.end(t)
	values, want := r.scrape(t), float64(server.Certificate().NotAfter.Unix())
	for _, certificate := range []string{"admin", "nats_server"} {
		if got := values[`mgw_certificate_expiry_timestamp_seconds{certificate="`+certificate+`"}`]; got != want {
			t.Errorf("%s expires at %v; want %v", certificate, got, want)
		}
	}
	if _, there := values[`mgw_certificate_expiry_timestamp_seconds{certificate="nats_client"}`]; there {
		t.Error("a certificate that is not configured has an expiry")
	}
}

func TestPoolsOfConnectionsAreMeasured(t *testing.T) {
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.URL(t), MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	read := func() map[string]float64 {
		t.Helper()
		reg := prometheus.NewRegistry()
		reg.MustRegister(pools{"admin": db})
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
		return values
	}
	connection, err := db.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	busy := read()
	if busy["mgw_postgres_pool_in_use"] != 1 || busy["mgw_postgres_pool_max"] != 1 {
		t.Errorf("with one connection in use: %v", busy)
	}
	before := db.Pool().Stat().EmptyAcquireCount()
	for db.Pool().Stat().EmptyAcquireCount() == before { // until an operation has waited for the connection
		done := make(chan error, 1)
		go func() { done <- db.Ping(t.Context()) }()
		runtime.Gosched()
		connection.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if connection, err = db.Pool().Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	connection.Release()
	if free := read(); free["mgw_postgres_pool_in_use"] != 0 || free["mgw_postgres_pool_wait_seconds_total"] <= busy["mgw_postgres_pool_wait_seconds_total"] {
		t.Errorf("after a wait: %v; before it: %v", free, busy)
	}
}

func TestLastSuccessOfAJobStandsStillWhileItFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJobs(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		var broken atomic.Bool
		j.every("job", time.Minute, func(context.Context) error {
			if broken.Load() {
				return errors.New("broken")
			}
			return nil
		})
		last := func() float64 { return testutil.ToFloat64(j.succeeded.WithLabelValues("job")) }
		j.start(t.Context())
		defer j.stop()
		began := float64(time.Now().Unix())
		if got := last(); got != began {
			t.Errorf("%v before the first run; want the time of the start, %v", got, began)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		good := last()
		if good <= began {
			t.Errorf("%v after runs without an error; it began at %v", good, began)
		}
		broken.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := last(); got != good {
			t.Errorf("%v after runs that failed; want %v still", got, good)
		}
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := last(); got <= good {
			t.Errorf("%v after another success", got)
		}
	})
}
