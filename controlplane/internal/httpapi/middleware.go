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
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
)

const (
	// maxBody bounds the body of every request in bytes, but for those of applyCatalog, proposePriceList and importBill.
	maxBody      = 1 << 20
	maxCatalog   = 16 << 20
	maxPriceList = 8 << 20

	// uploadTime bounds how long the body of importBill is read.
	uploadTime = 10 * time.Minute
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
			Name: "mgw_admin_requests_total", Help: "Admin requests by method, route and status.",
		}, []string{"method", "route", "status"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mgw_admin_request_seconds", Help: "Duration of admin requests in seconds.",
			Buckets: []float64{.01, .05, .2, 1, 5, 30}, // few, because there are some 90 routes
		}, []string{"method", "route"}),
	}
}

// requestLog gives every request an id and logs one line for its response. It
// never logs a body, header or query.
func requestLog(log *slog.Logger, m *metrics) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			began := time.Now()
			id := requestKind.New()
			c.Response().Header().Set(echo.HeaderXRequestID, id)
			ctx := audit.WithActor(c.Request().Context(), audit.Actor{RequestID: id})
			c.SetRequest(c.Request().WithContext(ctx))
			err := next(c)
			if err != nil {
				c.Error(err) // writes the problem document, so that the log line has its status
			}

			took, route, status := time.Since(began), c.Path(), c.Response().Status
			if route == "" {
				route = "unknown" // never the path of the request, since a caller could create any number of labels
			}

			method := methodLabel(c.Request().Method)
			m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
			m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
			level := slog.LevelInfo
			if status >= http.StatusInternalServerError {
				level = slog.LevelError
			}

			ctx = c.Request().Context()
			log.LogAttrs(ctx, level, "admin request",
				slog.String("request_id", id), slog.String("method", method), slog.String("route", route),
				slog.Int("status", status), slog.Int64("duration_ms", took.Milliseconds()), slog.String("actor", audit.By(ctx).Name))

			if errors.Is(err, problem.ErrTruncated) {
				panic(http.ErrAbortHandler) // makes the server abort the connection
			}

			return nil
		}
	}
}

// methodLabel returns the method, or "other" for one that no operation has: a caller could create
// any number of labels.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// limitBody rejects bodies that are larger than any operation needs.
func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		limit := int64(maxBody)
		switch {
		case strings.HasSuffix(c.Path(), "/catalog"):
			limit = maxCatalog
		case strings.HasSuffix(c.Path(), "/catalog/price-list"):
			limit = maxPriceList
		case strings.HasSuffix(c.Path(), "/bills"):
			limit = providerbill.MaxFile
			// Its lines are stored while it is read, which may take longer than the body of any other operation.
			_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(uploadTime)) // within the console there is none
		}
		r := c.Request()
		if r.ContentLength > limit {
			return problem.ErrBodyTooLarge
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, limit)
		return next(c)
	}
}

// clientGone reports whether the client has closed the connection.
func clientGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
