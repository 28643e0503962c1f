// Package httpapi owns the admin API over HTTP: who may call what, the decoding
// and encoding of every operation, and the one place where an error becomes a
// problem document.
//
// It holds no rules: an operation decodes its input, calls one function of a
// domain package and encodes the result.
package httpapi

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/video"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/apidoc/apipage"
)

// Config is what the API works with. Every member is needed.
type Config struct {
	Accounts    *account.Service
	Keys        *key.Service
	Ledger      *ledger.Service
	Catalog     *catalog.Service
	Usage       *usage.Service
	Statements  *statement.Service
	Archive     *archive.Service
	Quarantine  *settle.Quarantine
	Videos      video.Jobs
	Tokens      *admin.Service
	Fleet       fleet.Store
	Applied     *fleet.Waiter
	Audit       audit.Store
	Diagnosis   *diagnosis.Service
	Webhooks    *webhook.Service
	Rotations   *rotation.Service
	Idempotency *idempotency.Keeper
	Log         *slog.Logger
	Registerer  prometheus.Registerer
	// AnswerWithin bounds an operation that is no export and no check, with what it waits for proxies if wait=applied is not
	// asked for. What takes longer is a database that does not answer.
	AnswerWithin time.Duration
}

// server implements the generated interface, one file per resource.
type server struct{ cfg Config }

var _ gen.StrictServerInterface = (*server)(nil)

// document is what the server takes from the API document, which is a part of
// the program: it is read once.
var document = sync.OnceValues(func() (d struct {
	operations map[string]operation
	site       *apipage.Site
}, err error,
) {
	if d.operations, err = readOperations(api.Document); err == nil {
		d.site, err = apipage.New(api.Document)
	}
	return d, err
})

// New returns the handler of the admin API.
func New(cfg Config) (http.Handler, error) {
	doc, err := document()
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Binder = binder{}
	e.HTTPErrorHandler = problems{cfg.Log}.handle
	e.Use(requestLog(cfg.Log, newMetrics(cfg.Registerer)), limitBody)
	e.GET("/openapi.yaml", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/yaml", api.Document)
	})
	servePages(e, doc.site)
	once, wait := idempotent(cfg.Idempotency, cfg.Log), waitApplied(cfg.Applied, cfg.Log)
	before := map[string][]echo.MiddlewareFunc{}
	for id, op := range doc.operations {
		bound := bounded(op.bound(id, cfg.AnswerWithin))
		before[id] = []echo.MiddlewareFunc{bound, authenticate(cfg.Tokens, op.scope), declared(op)}
		if op.waits() {
			before[id] = append(before[id], wait) // outside of once: an answer that is given again waits, too
		}
		before[id] = append(before[id], once)
	}
	gen.RegisterHandlers(e, &server{cfg}, before)
	return e, nil
}
