package httpapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsNameRoutes: a caller cannot invent labels.
func TestMetricsNameRoutes(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	e := echo.New()
	e.HTTPErrorHandler = problems{slog.New(slog.DiscardHandler)}.handle
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
