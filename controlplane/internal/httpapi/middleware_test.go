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

// Metric labels are route templates and known methods, so that callers cannot create labels.
func TestMetricLabelsAreRoutesAndMethods(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	e := echo.New()
	e.HTTPErrorHandler = problem.Writer{Log: slog.New(slog.DiscardHandler)}.Handle
	e.Use(requestLog(slog.New(slog.DiscardHandler), newMetrics(registry)))
	e.GET("/known/:id", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	for _, target := range []string{"/known/7", "/known/8", "/known/7/more", "/unheard/of", "/"} {
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	}
	for _, method := range []string{"INVENTED", "AGAIN", http.MethodPut} {
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/", nil))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if name, value := label.GetName(), label.GetValue(); name != "status" && !slices.Contains(got[name], value) {
					got[name] = append(got[name], value)
				}
			}
		}
	}
	for _, values := range got {
		slices.Sort(values)
	}
	want := map[string][]string{"route": {"/known/:id", "unknown"}, "method": {"GET", "PUT", "other"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
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
