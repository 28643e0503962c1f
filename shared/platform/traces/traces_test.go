package traces_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"modelgateway/shared/platform/traces"
)

func open(t *testing.T, endpoint string, log *bytes.Buffer) *traces.Exporter {
	t.Helper()
	e, err := traces.Open(t.Context(), traces.Config{Endpoint: endpoint, Service: "test", Version: "1", Instance: "one", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestCloseExportsTheRemainingSpans(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{"": "/v1/traces", "/": "/v1/traces", "/otlp/traces": "/otlp/traces"} {
		var path atomic.Value
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { path.Store(r.URL.Path) }))
		e := open(t, receiver.URL+endpoint, new(bytes.Buffer))
		_, span := e.Tracer("test").Start(t.Context(), "work")
		span.End()
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		receiver.Close()
		if got := path.Load(); got != want {
			t.Errorf("%q: exported to %v; want %s", endpoint, got, want)
		}
	}
}

func TestFailedExportIsLoggedOnce(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer receiver.Close()
	log := new(bytes.Buffer)
	e := open(t, receiver.URL, log)
	for range 2000 { // several batches
		_, span := e.Tracer("test").Start(context.Background(), "work")
		span.End()
	}
	_ = e.Close(t.Context()) // whether it reports the lost spans is not the subject
	if n := strings.Count(log.String(), "export of traces failed"); n != 1 {
		t.Errorf("%d lines about the failure; want one: %s", n, log.String())
	}
}

func TestCloseDoesNotWaitForASilentCollector(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer receiver.Close()
	defer close(release)
	e := open(t, receiver.URL, new(bytes.Buffer))
	_, span := e.Tracer("test").Start(t.Context(), "work")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("lost spans are not reported")
	}
}
