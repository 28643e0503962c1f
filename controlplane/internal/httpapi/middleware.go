package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/shared/ident"
)

const (
	// maxBody bounds every request but that of a catalog.
	maxBody    = 1 << 20
	maxCatalog = 16 << 20
)

// requestKind is the prefix of the ids of admin requests.
const requestKind ident.Kind = "adm"

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		requests: with.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_admin_requests_total", Help: "Admin requests by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mgw_admin_request_seconds", Help: "Time to answer admin requests.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}, []string{"method", "route"}),
	}
}

// requestLog gives every request an id and writes one line when it is
// answered. No body, header or query is ever logged.
func requestLog(log *slog.Logger, m *metrics) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			began := time.Now()
			id := requestKind.New()
			c.Response().Header().Set(echo.HeaderXRequestID, id)
			ctx := withAnswer(c.Request().Context(), c.Response().Header())
			c.SetRequest(c.Request().WithContext(audit.WithActor(ctx, audit.Actor{RequestID: id})))
			err := next(c)
			if err != nil {
				c.Error(err) // written here, so that the line knows the status
			}
			took, route, status := time.Since(began), c.Path(), c.Response().Status
			if route == "" {
				route = "unknown" // never the path of the request: a caller could invent labels
			}
			m.requests.WithLabelValues(c.Request().Method, route, strconv.Itoa(status)).Inc()
			m.seconds.WithLabelValues(c.Request().Method, route).Observe(took.Seconds())
			level := slog.LevelInfo
			if status >= http.StatusInternalServerError {
				level = slog.LevelError
			}
			ctx = c.Request().Context()
			log.LogAttrs(ctx, level, "admin request",
				slog.String("request_id", id), slog.String("method", c.Request().Method), slog.String("route", route),
				slog.Int("status", status), slog.Int64("duration_ms", took.Milliseconds()), slog.String("actor", audit.By(ctx).Name))
			if errors.Is(err, errCut) {
				panic(http.ErrAbortHandler) // the server's way to end an answer so that it does not look whole
			}
			return nil
		}
	}
}

// limitBody refuses bodies that no operation has a use for.
func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		limit := int64(maxBody)
		if strings.HasSuffix(c.Path(), "/catalog") {
			limit = maxCatalog
		}
		r := c.Request()
		if r.ContentLength > limit {
			return errTooLarge
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, limit)
		return next(c)
	}
}

// tooLarge tells whether reading a body failed for its size.
func tooLarge(err error) bool {
	var limit *http.MaxBytesError
	return errors.As(err, &limit)
}

// ended tells whether the client has gone.
func ended(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
