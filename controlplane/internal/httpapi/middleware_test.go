package httpapi

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/httpapi/problem"
)

// Metric labels are route templates, so that callers cannot create labels.
func TestMetricLabelsAreRoutes(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	e := echo.New()
	e.HTTPErrorHandler = problem.Writer{Log: slog.New(slog.DiscardHandler)}.Handle
	e.Use(requestLog(slog.New(slog.DiscardHandler), newMetrics(registry)))
	e.GET("/known/:id", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	for _, target := range []string{"/known/7", "/known/8", "/known/7/more", "/unheard/of", "/"} {
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "route" && !slices.Contains(routes, label.GetValue()) {
					routes = append(routes, label.GetValue())
				}
			}
		}
	}
	slices.Sort(routes)
	if diff := cmp.Diff([]string{"/known/:id", "unknown"}, routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

func TestBodySizeIsLimited(t *testing.T) {
	t.Parallel()
	e := echo.New()
	e.HTTPErrorHandler = problem.Writer{Log: slog.New(slog.DiscardHandler)}.Handle
	e.Use(limitBody)
	read := func(c echo.Context) error {
		if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	}
	e.POST("/admin/v1/accounts", read)
	e.PUT("/admin/v1/catalog", read)
	for _, tt := range []struct {
		method, target string
		size           int64
		want           int
	}{
		{http.MethodPost, "/admin/v1/accounts", maxBody, http.StatusNoContent},
		{http.MethodPost, "/admin/v1/accounts", maxBody + 1, http.StatusRequestEntityTooLarge},
		{http.MethodPut, "/admin/v1/catalog", maxCatalog, http.StatusNoContent},
		{http.MethodPut, "/admin/v1/catalog", maxCatalog + 1, http.StatusRequestEntityTooLarge},
	} {
		for _, declared := range []bool{true, false} {
			r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.target, bytes.NewReader(make([]byte, tt.size)))
			if !declared {
				r.ContentLength = -1
			}
			answer := httptest.NewRecorder()
			e.ServeHTTP(answer, r)
			if answer.Code != tt.want {
				t.Errorf("%s of %d bytes, declared %t: got %d; want %d", tt.target, tt.size, declared, answer.Code, tt.want)
			}
		}
	}
}
