// Package httpapi owns the public API: the nine endpoints, the order of checks
// on a request, the one place where an error becomes an answer, and the relay
// of a provider's answer to the client.
//
// It joins the domain packages and holds no state of its own but the requests
// in flight. Nothing of a request but its identifiers and figures is logged.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/accesslog"
	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/video"
	"modelgateway/shared/apierr"
	contract "modelgateway/shared/catalog"
	"modelgateway/shared/lease"
)

// Balances reads the figures of GET /v1/balance.
type Balances interface {
	Balance(ctx context.Context, q *lease.BalanceQuery) (*lease.BalanceReply, error)
}

// Providers performs calls.
type Providers interface {
	Do(ctx context.Context, call provider.Call) (*provider.Answer, error)
}

// Parts is what the server joins.
type Parts struct {
	Keys      *auth.Keys
	Catalog   *catalog.Store
	Admission *admission.Admission
	Picker    *route.Picker
	Providers Providers
	Balances  Balances
	Videos    Videos
	// Dialects are the formats that are served.
	Dialects []format.Dialect
	// Identity hashes a client's identifier for an account.
	Identity Identity
	Metrics  *Metrics
	Log      *slog.Logger
	Access   *accesslog.Log
}

// Config holds the settings of the listener.
type Config struct {
	Listen string
	// BodyTimeout is how long a client may take to send its request.
	BodyTimeout time.Duration
	// StallTimeout is how long the client of a stream may take nothing off its connection; zero: defaultStall.
	StallTimeout time.Duration
}

const defaultStall = 2 * time.Minute

// Server is the public listener.
type Server struct {
	Parts
	cfg      Config
	http     *http.Server
	policies policies
}

const (
	// headerTimeout bounds the headers of a request, idleTimeout the time between two on one connection.
	headerTimeout = 10 * time.Second
	idleTimeout   = 3 * time.Minute
	maxHeader     = 64 << 10
)

// New returns a Server that does not listen yet.
func New(cfg Config, p Parts) *Server {
	if cfg.StallTimeout == 0 {
		cfg.StallTimeout = defaultStall
	}
	s := &Server{Parts: p, cfg: cfg}
	s.http = &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: withConn, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Start listens, and serves in the background until Stop. A listener that
// fails later is passed to failed.
func (s *Server) Start(failed func(error)) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(context.Background(), "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("httpapi: listen: %w", err)
	}
	go func() {
		if err := s.Serve(listener); err != nil {
			failed(err)
		}
	}()
	return nil
}

// Serve serves on a listener until Stop.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.http.Serve(gathering{listener}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("httpapi: serve: %w", err)
	}
	return nil
}

// Stop accepts nothing new and waits for running requests until ctx ends; what
// runs then is cut.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // cuts what is left
		return fmt.Errorf("httpapi: requests were cut: %w", err)
	}
	return nil
}

// Handler is the API as an http.Handler.
func (s *Server) Handler() http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerError
	for _, d := range s.Dialects {
		e.POST(d.Format().Path(), s.generate(d))
	}
	e.POST(contract.Videos.Path(), s.createVideo)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		e.Add(method, "/v1/models", s.models)
		e.Add(method, "/v1/balance", s.balance)
		e.Add(method, videoPath, s.video)
		e.Add(method, contentPath, s.content)
	}
	for _, r := range e.Routes() {
		e.OPTIONS(r.Path, echo.NotFoundHandler) // or the router answers it by itself
	}
	return &front{echo: e, server: s}
}

// front comes before the router: it makes the exchange, folds doubled slashes
// and ends every request with its log line.
type front struct {
	echo   *echo.Echo
	server *Server
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(w, r)
	if strings.Contains(r.URL.Path, "//") {
		u := *r.URL
		for strings.Contains(u.Path, "//") {
			u.Path = strings.ReplaceAll(u.Path, "//", "/")
		}
		u.RawPath = ""
		r = r.Clone(r.Context())
		r.URL = &u
	}
	x.messages = strings.HasPrefix(r.URL.Path, "/v1/messages")
	h := w.Header()
	h["X-Request-Id"], h["Request-Id"] = x.ids[:], x.ids[:]
	defer f.server.done(x)
	f.echo.ServeHTTP(x, r)
}

// answerError is the one place where an error becomes an answer.
func (s *Server) answerError(err error, c echo.Context) {
	x := exchangeOf(c)
	if x.wrote {
		x.failure = err // the stream has said it in its own way
		return
	}
	e := publicError(err)
	x.failure, x.code = err, e.Code
	h := x.Header()
	delete(h, "Allow") // the router's: a method that is not served is a 404 like any other
	if seconds := e.RetryAfterSeconds(); seconds > 0 {
		h["Retry-After"] = []string{itoa(int64(seconds))}
	}
	if e.Final() {
		h["X-Should-Retry"] = []string{"false"}
	}
	if e.Status == http.StatusRequestEntityTooLarge {
		h["Connection"] = []string{"close"} // or the server would first read on for the rest of the body
	}
	x.writeError(e)
}

// publicError finds what the client is told.
func publicError(err error) *apierr.Error {
	var public *apierr.Error
	var routing *echo.HTTPError
	var refused *admission.RefusedError
	var failure *provider.Failure
	switch {
	case errors.As(err, &public):
		return public
	case errors.As(err, &failure):
		return failure.Client
	case errors.As(err, &refused):
		return refusal(refused)
	case errors.As(err, &routing): // echo's word for a path or method that does not exist
		return apierr.New(http.StatusNotFound, apierr.NotFound, "There is no such endpoint.")
	case errors.Is(err, auth.ErrInvalid), errors.Is(err, admission.ErrKey):
		return errInvalidKey
	case errors.Is(err, auth.ErrUnavailable), errors.Is(err, admission.ErrUnavailable), errors.Is(err, video.ErrUnavailable):
		return errUnavailable
	default:
		return apierr.New(http.StatusInternalServerError, apierr.None, "Internal error. Please try again; if it persists, contact support with the request id.")
	}
}

var (
	errInvalidKey  = apierr.New(http.StatusUnauthorized, apierr.InvalidAPIKey, "The API key is missing, unknown or revoked.")
	errUnavailable = apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, "The service is temporarily unavailable. Please try again.")
)
