// Package httpapi owns the public API: its endpoints, the order of the checks on a request (see request.go), the
// attempts on routes, the relay of a provider's answer to the client, and the translation of errors into answers.
//
// A streamed chat request, for example: the key is authenticated before the body is read. The body is split, its model found in
// the catalog, and its price estimated. Package admission reserves the estimate. Package failover calls one route after another
// until a provider answers; the first event of its stream decides, and after that no other route is tried. Events are relayed as they
// come, and their usage is counted. When the stream ends, the exact cost is written to the spool, the rest of the reservation
// is free again, and the access log gets a line.
//
// Besides the requests in flight it keeps only what it can learn again: caches, and the members that providers have refused. The
// log gets identifiers and figures of a request, never its content.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/accesslog"
	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/affinity"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/balance"
	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/addedmember"
	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/dataplane/internal/httpapi/failover"
	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/httpapi/policy"
	"modelgateway/dataplane/internal/httpapi/readon"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/room"
	"modelgateway/dataplane/internal/httpapi/tracing"
	"modelgateway/dataplane/internal/httpapi/upload"
	"modelgateway/dataplane/internal/modellist"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/reporter"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/tail"
	"modelgateway/dataplane/internal/turns"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/certfile"
)

// Providers calls providers. The context ends the call and the reading of its answer; an error is a *provider.Failure.
type Providers interface {
	Do(ctx context.Context, call *provider.Call) (*provider.Answer, error)
}

// Dependencies are the components that the server uses. All of them but Traces, Tails and Refusals are
// required.
type Dependencies struct {
	Keys      *auth.Keys
	Catalog   *catalog.Store
	Admission *admission.Admission
	Picker    *route.Picker
	Providers Providers
	Balances  balance.Source
	Videos    Videos
	// Dialects implement the formats of the generation endpoints.
	Dialects []format.Dialect
	// Pseudonyms replace the identifiers of clients.
	Pseudonyms Pseudonyms
	Metrics    *meter.Metrics
	Log        *slog.Logger
	Access     *accesslog.Log
	// Tails shows finished requests to operators who watch them, Refusals counts refused ones by account. Each may be nil.
	Tails    *tail.Tails
	Refusals *reporter.Refusals
	// Traces makes the traces of requests; nil makes none.
	Traces *tracing.Tracer
	// Budget bounds the memory of bodies, Answers has room for answers.
	Budget  *bytebudget.Budget
	Answers *room.Rooms
	// Turns shares the processors among the large bodies of accounts.
	Turns *turns.Turns
}

// Config holds the settings of the listener.
type Config struct {
	Listen string
	// TLS names the certificate; without one the API is served without TLS.
	TLS certfile.Files
	// BodyTimeout is how long a client may take to send its request body; zero: two minutes.
	BodyTimeout time.Duration
	// MinRate is the least rate in bytes per second at which a client sends a body and takes an answer in one piece; zero:
	// 32 KiB.
	MinRate int64
	// StallTimeout is how long a client may read nothing of its answer; zero: two minutes.
	StallTimeout time.Duration
	// Client returns the client's address, which the networks of a key are compared with; the zero address if it is not known.
	Client func(*http.Request) netip.Addr
	// MaxConns bounds the number of client connections; zero: no bound.
	MaxConns int64
	// MaxDownloads bounds the number of downloads that an account has at the same time; zero: 4.
	MaxDownloads int64
}

// setDefaults replaces the zero values.
func (c *Config) setDefaults() {
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 2*time.Minute)
	c.StallTimeout = cmp.Or(c.StallTimeout, 2*time.Minute)
	c.MinRate = cmp.Or(c.MinRate, 32<<10)
	c.MaxDownloads = cmp.Or(c.MaxDownloads, 4)
}

// Server is the public listener.
type Server struct {
	Dependencies
	cfg      Config
	uploads  upload.Limits
	http     *http.Server
	policies policy.Cache
	models   modellist.Lists
	balances *balance.Reader
	tries    failover.Tries
	// reading counts the large bodies that are being read, downloads those of videos, lookups those of video jobs.
	reading, downloads, lookups bytebudget.PerAccount
	// addedMembers are those that the gateway adds and providers refuse.
	addedMembers addedmember.Memory
	makers       affinity.Makers
	// readOn has the calls that are read on without their clients; hiding, which models have reasoned without
	// showing it.
	readOn readon.Calls
	hiding readon.Hiding
	// draining is set by Drain.
	draining atomic.Bool
}

const (
	// headerTimeout bounds the time to read the headers of a request, idleTimeout the time between two requests on one
	// connection. It is longer than load balancers keep idle connections (Google's: 10 minutes), because a request that one
	// sends while the connection is closed fails.
	headerTimeout  = 10 * time.Second
	idleTimeout    = 11 * time.Minute
	maxHeaderBytes = 64 << 10
)

// New returns a Server that does not listen yet.
func New(cfg Config, p Dependencies) *Server {
	cfg.setDefaults()
	s := &Server{
		Dependencies: p,
		cfg:          cfg,
		uploads:      upload.Limits{Timeout: cfg.BodyTimeout, Rate: cfg.MinRate},
		balances:     balance.NewReader(p.Balances, nil),
		tries:        failover.Tries{Picker: p.Picker, Metrics: p.Metrics, Log: p.Log},
	}

	s.http = &http.Server{
		Handler:                      s.Handler(),
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnContext:                  clientconn.WithConn,
		ConnState:                    clientconn.OnState,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Start listens and serves in the background until Stop. If serving fails later, failed is called.
func (s *Server) Start(failed func(error)) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(context.Background(), "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("httpapi: listen: %w", err)
	}

	plain := listener
	listener, err = certfile.Listen(
		clientconn.Sockets(plain),
		s.cfg.TLS,
		func(err error) { s.Log.Warn("reading the new certificate failed", "error", err) },
	)
	if err != nil {
		_ = plain.Close()
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
	config := clientconn.Config{MaxConns: s.cfg.MaxConns, StallTimeout: s.cfg.StallTimeout, AnswerFunc: s.answerUnserved}
	if err := s.http.Serve(clientconn.Listen(listener, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("httpapi: serve: %w", err)
	}
	return nil
}

// Drain announces the stop to clients that reuse connections: until Stop, requests are served, and each answer that
// begins closes its connection with "Connection: close". Stop closes idle connections without notice, so a request that
// is sent on one at that moment fails.
func (s *Server) Drain() { s.draining.Store(true) }

// Stop accepts no new requests and waits for the running ones until ctx ends; it then closes their connections.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
		return fmt.Errorf("httpapi: stopped before all requests had ended: %w", err)
	}
	return nil
}

// Handler returns the API as an http.Handler.
func (s *Server) Handler() http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.handleError
	endpoint := func(path string, handle echo.HandlerFunc, methods ...string) {
		running := s.Metrics.InFlight(path)
		e.Match(methods, path, func(c echo.Context) error {
			exchangeOf(c).endpoint = path
			running.Add(1)
			defer running.Add(-1)
			return handle(c)
		})
	}

	for _, d := range s.Dialects {
		endpoint(d.Format().Path(), s.generate(d), http.MethodPost)
	}

	endpoint(catalogkv.Videos.Path(), s.createVideo, http.MethodPost)
	endpoint("/v1/models", s.listModels, http.MethodGet, http.MethodHead)
	endpoint("/v1/balance", s.getBalance, http.MethodGet, http.MethodHead)
	endpoint(videoPath, s.getVideo, http.MethodGet, http.MethodHead)
	endpoint(contentPath, s.getVideoContent, http.MethodGet, http.MethodHead)

	for _, r := range e.Routes() {
		e.OPTIONS(r.Path, echo.NotFoundHandler) // otherwise the router answers OPTIONS itself
	}

	return &rootHandler{echo: e, server: s}
}

// rootHandler wraps the router: it creates the exchange, replaces repeated slashes in the path by one, and records
// every request.
type rootHandler struct {
	echo   *echo.Echo
	server *Server
}

func (f *rootHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(f.server, w, r)
	x.trace = f.server.Traces.Begin(r.Header, x.started)
	x.conn.BeginAnswer(x.started)
	if x.unread {
		f.server.uploads.Begin(x.conn, x.started)
	}

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
	h["X-Request-Id"], h["Request-Id"] = x.idHeader[:], x.idHeader[:]
	defer f.server.finishExchange(x)
	f.echo.ServeHTTP(x, r)

	if x.discard {
		_ = http.NewResponseController(w).Flush() // a failed connection has no body to discard either
		if x.key != nil {                         // clients without a valid key take their turns together
			x.turn = f.server.Turns.Of(x.key.AccountID)
		} else {
			x.turn = f.server.Turns.Of("")
		}
		upload.Discard(x.conn, r.Body, &x.turn)
	}
}

// handleError is the echo error handler: it answers a request with the error of its handler.
func (s *Server) handleError(err error, c echo.Context) {
	x := exchangeOf(c)
	if x.wrote {
		x.failure = err // the client got the error as part of the stream
		return
	}

	e := publicError(err)
	x.failure, x.code = err, e.Code
	h := x.Header()
	delete(h, "Allow") // set by the router; an unsupported method is a 404 like an unknown path
	if seconds := e.RetryAfterSeconds(); seconds > 0 {
		h["Retry-After"] = []string{itoa(int64(seconds))}
	}
	if e.Permanent() {
		h["X-Should-Retry"] = []string{"false"}
	}

	refused.SetLimit(h, err)
	x.writeError(e)
}

// publicError returns the error that the client gets.
func publicError(err error) *apierr.Error {
	var public *apierr.Error
	var routing *echo.HTTPError
	var noUnits *admission.RefusedError
	var failure *provider.Failure
	var noFurther *videojob.RefusedError
	var noModel *auth.ModelError
	switch {
	case errors.As(err, &public):
		return public
	case errors.As(err, &failure):
		return failure.Client
	case errors.As(err, &noUnits):
		return refused.NoUnits(noUnits)
	case refused.IsBusy(err):
		return errBusy
	case errors.As(err, &noFurther):
		return cmp.Or(noFurther.Public(), errUnavailable)
	case errors.As(err, &routing): // the router found no such path or method
		return apierr.New(http.StatusNotFound, apierr.NotFound, "This endpoint does not exist.")
	case errors.Is(err, auth.ErrInvalid), errors.Is(err, admission.ErrKey):
		return refused.Key(err)
	case errors.As(err, &noModel):
		return refused.NoModelForKey(noModel.Model)
	case errors.Is(err, auth.ErrUnavailable), errors.Is(err, admission.ErrUnavailable), errors.Is(err, videojob.ErrUnavailable):
		return errUnavailable
	default:
		return apierr.New(
			http.StatusInternalServerError,
			apierr.None,
			"An internal error occurred. Please try again. If it persists, contact support with the request id.",
		)
	}
}

var (
	errRevoked  = refused.Key(admission.ErrKey)
	errStarting = apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, "The service is starting. Please try again.")
	errBusy     = apierr.New(
		http.StatusServiceUnavailable,
		apierr.ServiceUnavailable,
		"The service holds too many large requests and answers now. Please try again.",
	)
	errUnavailable = refused.Unavailable()
)
