// Package httpapi serves the admin API over HTTP: authentication, idempotency,
// waiting for the proxies, and the routes. Its subpackages hold the handlers by
// subject (accountapi, billapi, billingapi, catalogapi, operationsapi, webhookapi), the
// conversion of types (convert), and the table that turns errors into problem
// documents (problem).
//
// It holds no domain rules: a handler decodes its input, calls a domain package
// and encodes the result.
package httpapi

import (
	"log/slog"
	"net/http"
	"net/netip"
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
	"modelgateway/controlplane/internal/explain"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/httpapi/accountapi"
	"modelgateway/controlplane/internal/httpapi/billapi"
	"modelgateway/controlplane/internal/httpapi/billingapi"
	"modelgateway/controlplane/internal/httpapi/catalogapi"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/operationsapi"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/httpapi/trafficapi"
	"modelgateway/controlplane/internal/httpapi/webhookapi"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/margin"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/search"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/platform/apidoc/apipage"
)

// Config holds the dependencies and settings of the API. All members are required.
type Config struct {
	Accounts    *account.Service
	Keys        *key.Service
	Ledger      *ledger.Service
	Catalog     *catalog.Service
	Usage       *usage.Service
	Margin      margin.Store
	Statements  *statement.Service
	Archive     *archive.Service
	Quarantine  *settle.Quarantine
	Videos      videojob.Jobs
	Bills       *providerbill.Service
	Tokens      *admin.Service
	Fleet       fleet.Store
	Applied     *fleet.Waiter
	Audit       audit.Store
	Diagnosis   *diagnosis.Service
	Webhooks    *webhook.Service
	Rotations   *rotation.Service
	Idempotency *idempotency.Service
	Traffic     *traffic.Live
	Tails       *traffic.Tails
	Past        *traffic.Service
	Explainer   *explain.Service
	// Checker asks a proxy to call a provider.
	Checker catalogapi.Checker
	// Stopping is closed when the server stops: streams end at once.
	Stopping   <-chan struct{}
	Log        *slog.Logger
	Registerer prometheus.Registerer

	Projects     *project.Service
	Limits       *spendlimit.Service
	LedgerChecks *ledgercheck.Service
	Holdings     *holding.Service
	Search       *search.Service
	Sessions     *signin.Service

	// Address returns the client's address, the zero address if it is not known.
	Address func(*http.Request) netip.Addr
	// ResponseTimeout bounds every operation that is not an export or a check; waiting for wait=applied comes on top. An
	// operation that takes longer waits for a database that does not respond.
	ResponseTimeout time.Duration
}

// The handlers by subject; the aliases name the fields of server.
type (
	accountHandlers    = accountapi.Handlers
	billHandlers       = billapi.Handlers
	billingHandlers    = billingapi.Handlers
	catalogHandlers    = catalogapi.Handlers
	operationsHandlers = operationsapi.Handlers
	trafficHandlers    = trafficapi.Handlers
	webhookHandlers    = webhookapi.Handlers
)

// server has the methods of all handlers.
type server struct {
	accountHandlers
	billHandlers
	billingHandlers
	catalogHandlers
	operationsHandlers
	trafficHandlers
	webhookHandlers
}

var _ gen.StrictServerInterface = (*server)(nil)

func newServer(cfg *Config) *server {
	return &server{
		accountHandlers{
			Accounts: cfg.Accounts,
			Keys:     cfg.Keys,
			Ledger:   cfg.Ledger,
			Catalog:  cfg.Catalog,
			Holdings: cfg.Holdings,
			Projects: cfg.Projects,
			Limits:   cfg.Limits,
		},
		billHandlers{Bills: cfg.Bills},
		billingHandlers{
			Accounts:     cfg.Accounts,
			Ledger:       cfg.Ledger,
			LedgerChecks: cfg.LedgerChecks,
			Catalog:      cfg.Catalog,
			Usage:        cfg.Usage,
			Margin:       cfg.Margin,
			Statements:   cfg.Statements,
			Archive:      cfg.Archive,
			Quarantine:   cfg.Quarantine,
			Videos:       cfg.Videos,
		},
		catalogHandlers{
			Accounts: cfg.Accounts,
			Catalog:  cfg.Catalog,
			Usage:    cfg.Usage,
			Checker:  cfg.Checker,
		},
		operationsHandlers{
			Sessions:  cfg.Sessions,
			Finder:    cfg.Search,
			Catalog:   cfg.Catalog,
			Fleet:     cfg.Fleet,
			Audit:     cfg.Audit,
			Tokens:    cfg.Tokens,
			Diagnosis: cfg.Diagnosis,
			Rotations: cfg.Rotations,
		},
		trafficHandlers{
			Live:      cfg.Traffic,
			Tails:     cfg.Tails,
			Past:      cfg.Past,
			Catalog:   cfg.Catalog,
			Fleet:     cfg.Fleet,
			Explainer: cfg.Explainer,
			Stopping:  cfg.Stopping,
		},
		webhookHandlers{Webhooks: cfg.Webhooks},
	}
}

// document holds the parts of the API document that the server uses. The document
// is embedded in the program, so it is parsed once.
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
	e.HTTPErrorHandler = problem.Writer{Log: cfg.Log}.Handle
	e.Use(requestLog(cfg.Log, newMetrics(cfg.Registerer)), limitBody)

	e.GET("/openapi.yaml", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/yaml", api.Document)
	})

	servePages(e, doc.site)
	p := &pipeline{
		operations:  doc.operations,
		tokens:      cfg.Tokens,
		address:     cfg.Address,
		audit:       cfg.Audit,
		applied:     cfg.Applied,
		idempotency: cfg.Idempotency,
		log:         cfg.Log,
		timeLimit:   cfg.ResponseTimeout,
	}
	gen.RegisterHandlers(e, newServer(&cfg), p.run)

	return e, nil
}
