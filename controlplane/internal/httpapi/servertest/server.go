// Package servertest has what tests of the admin API share: a running server with a database of its own, and its client, which
// checks every response against the API document.
package servertest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/explain"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/httpapi"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/billstore"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/search"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/apikey"
	"modelgateway/shared/platform/apidoc/apitest"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/pulse"
	"modelgateway/shared/seal"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// Discard is a log that nobody reads.
var Discard = slog.New(slog.DiscardHandler)

// BootstrapToken is an admin token with all scopes.
const BootstrapToken = "the bootstrap token of tests"

// SessionLength is how long a session of the console lasts.
const SessionLength = 10 * time.Hour

// OldPepper is the id of a previous pepper.
const OldPepper = "0123456789abcdef"

// fakeAnnouncer replaces the proxies: it records announced changes and returns the confirmation
// that the test sets.
type fakeAnnouncer struct {
	mu     sync.Mutex
	Told   []wire.KeyChange
	Answer propagation.Confirmation
	Err    error
}

func (f *fakeAnnouncer) Announce(_ context.Context, c wire.KeyChange) (propagation.Confirmation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Told = append(f.Told, c)
	return f.Answer, f.Err
}

// Server is a running admin API with a database of its own.
type Server struct {
	T         testing.TB
	DB        *postgres.DB
	URL       string
	Handler   http.Handler
	API       *adminclient.Client
	Announcer *fakeAnnouncer
	Hasher    *apikey.Hasher
	Hooks     *webhookstore.Store
	Rotations *rotation.Service
	Logs      *logs
	Checks    *ledgercheck.Service
	Sessions  *signin.Service
	// running is what the proxies report about running requests, and silent are those that do not answer.
	Running map[wire.SessionID]map[wire.PoolID]int64
	Silent  []string
	// explained are the answers of proxies that explain a request; asked is the last question.
	Explained map[wire.SessionID]wire.ExplainResponse
	Asked     *wire.ExplainRequest
	// Checked is the answer of a proxy that checks a provider; nil: no proxy is live.
	Checked *checkwire.Response
	// notified are the kinds of checks that found differences.
	Notified []string
	// Later is how much later it is for sessions of the console than now.
	Later atomic.Int64
	// verifier, if set, verifies tokens of an identity provider.
	verifier admin.Verifier
}

func (b *Server) RunningBySession(context.Context, string) (map[wire.SessionID]map[wire.PoolID]int64, []string, error) {
	return b.Running, b.Silent, nil
}

// CheckProvider implements catalogapi.Checker.
func (b *Server) CheckProvider(context.Context, string) (proxy string, checked checkwire.Response, answered bool, err error) {
	if b.Checked == nil {
		return "", checked, false, nil
	}
	return b.Checked.Name, *b.Checked, true, nil
}

func (b *Server) Explain(_ context.Context, q *wire.ExplainRequest) (map[wire.SessionID]wire.ExplainResponse, []string, error) {
	b.Asked = q
	return b.Explained, b.Silent, nil
}

// logs records the log.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Start starts a server with an empty database.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, nil)
}

// StartWith is setup with a verifier and with changed settings.
func StartWith(t testing.TB, v admin.Verifier, others ...func(*httpapi.Config)) *Server {
	t.Helper()
	b := &Server{
		T:         t,
		DB:        postgres.Wrap(pgtest.New(t)),
		verifier:  v,
		Logs:      &logs{},
		Announcer: &fakeAnnouncer{Answer: propagation.Confirmation{Effective: true}},
	}
	var err error
	b.Hasher, err = apikey.NewHasher([]byte("a pepper for the tests"))
	Check(t, err)
	keys, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	Check(t, err)
	fleetKey, err := seal.NewKey(seal.NewSecret())
	Check(t, err)
	log := slog.New(slog.NewJSONHandler(b.Logs, nil))
	b.Hooks = webhookstore.New(b.DB)
	b.Rotations = rotation.NewService(rotation.Config{
		Store:       accountstore.NewRotations(b.DB),
		Vault:       keys,
		Hasher:      b.Hasher,
		Peppers:     []string{b.Hasher.ID()},
		MinDuration: time.Nanosecond,
	})
	books, usages := ledger.NewService(ledger.Config{Store: moneystore.NewLedger(b.DB)}), usage.NewService(usagestore.NewUsage(b.DB))
	b.Checks = ledgercheck.NewService(ledgercheck.Config{
		Store:    moneystore.NewLedgerCheck(b.DB),
		Ledger:   books,
		Receipts: usages,
		NotifyFunc: func(_ context.Context, scope string, r *ledger.Report) error {
			if !r.OK() {
				b.Notified = append(b.Notified, scope)
			}
			return nil
		},
	})
	live := traffic.NewLive(nil)
	cfg := httpapi.Config{
		Address: clientaddr.Behind(nil),
		Accounts: account.NewService(account.Config{
			Store:          accountstore.NewAccounts(b.DB),
			Announcer:      b.Announcer,
			Log:            log,
			ConfirmTimeout: time.Second,
		}),
		Keys: key.NewService(key.Config{
			Store:          accountstore.NewKeys(b.DB),
			Announcer:      b.Announcer,
			Hasher:         b.Hasher,
			Peppers:        []string{b.Hasher.ID(), OldPepper},
			Vault:          keys,
			Log:            log,
			ConfirmTimeout: time.Second,
			RevokeTimeout:  time.Second,
		}),
		Projects: project.NewService(accountstore.NewProjects(b.DB)),
		Limits: spendlimit.NewService(spendlimit.Config{
			Store:          accountstore.NewSpendLimits(b.DB),
			Announcer:      b.Announcer,
			Log:            log,
			ConfirmTimeout: time.Second,
		}),
		Ledger:       books,
		LedgerChecks: b.Checks,
		Holdings:     holding.NewService(leasestore.NewHoldings(b.DB), b),
		Search:       search.NewService(accountstore.NewSearch(b.DB), []*apikey.Hasher{b.Hasher}),
		Catalog: catalog.NewService(catalog.Config{
			Store: catalogstore.New(b.DB),
			Vault: keys,
			Fleet: fleetKey,
			Log:   log,
		}),
		Usage:      usages,
		Margin:     usagestore.NewUsage(b.DB),
		Archive:    archive.New(archive.Config{Store: usagestore.NewArchive(b.DB)}),
		Statements: statement.NewService(moneystore.NewStatements(b.DB)),
		Quarantine: settle.NewQuarantine(moneystore.NewQuarantine(b.DB), settle.New(moneystore.NewSettlement(b.DB), nil)),
		Videos:     videostore.New(b.DB),
		Bills:      providerbill.NewService(billstore.New(b.DB)),
		Tokens:     admin.NewService(accountstore.NewTokens(b.DB), admin.BootstrapTokens{Texts: []string{BootstrapToken}}, b.verifier),
		Fleet:      leasestore.NewFleet(b.DB),
		Applied:    fleet.NewWaiter(leasestore.NewFleet(b.DB), b.Announcer, log),
		Audit:      changestore.NewAudit(b.DB),
		Rotations:  b.Rotations,
		Diagnosis: diagnosis.New(diagnosis.Config{
			Database: leasestore.NewDiagnosis(b.DB),
			Fleet:    leasestore.NewFleet(b.DB),
			Ledger:   ledger.NewService(ledger.Config{Store: moneystore.NewLedger(b.DB)}),
			Secrets:  &diagnosis.Secrets{KnowsFunc: keys.Knows},
			Build:    "v1",
		}),
		Webhooks:        webhook.NewService(webhook.Config{Store: b.Hooks, Vault: keys}),
		Idempotency:     idempotency.New(accountstore.NewIdempotency(b.DB), keys),
		Traffic:         live,
		Tails:           traffic.NewTails(noTails{}, log, nil),
		Past:            traffic.NewService(usagestore.NewTraffic(b.DB), live, nil),
		Stopping:        stopped(),
		Log:             log,
		Registerer:      prometheus.NewRegistry(),
		ResponseTimeout: time.Minute,
	}
	cfg.Checker = b
	cfg.Explainer = &explain.Service{
		Store:    leasestore.NewLeases(b.DB),
		Videos:   videostore.New(b.DB),
		Holdings: cfg.Holdings,
		Catalog:  cfg.Catalog,
		Proxies:  b,
	}
	b.Sessions = signin.NewService(signin.Config{
		Store:   accountstore.NewSessions(b.DB),
		Tokens:  cfg.Tokens,
		ByToken: true,
		Idle:    30 * time.Minute,
		Length:  SessionLength,
		Now:     func() time.Time { return time.Now().Add(time.Duration(b.Later.Load())) },
	})
	cfg.Sessions = b.Sessions
	for _, set := range others {
		set(&cfg)
	}
	b.Handler, err = httpapi.New(cfg)
	Check(t, err)
	server := httptest.NewServer(b.Handler)
	t.Cleanup(server.Close)
	b.URL = server.URL
	b.API = b.As(BootstrapToken)
	return b
}

// noTails replaces proxies that send no lines.
type noTails struct{}

func (noTails) Tail(pulse.Tail, func(string, *pulse.Lines)) (ask func(pulse.Tail) error, stop func(), err error) {
	return func(pulse.Tail) error { return nil }, func() {}, nil
}

// stopped returns a closed channel: streams end after their first event.
func stopped() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Document loads the API document, which every response is checked against.
var Document = sync.OnceValues(func() (*apitest.Document, error) { return apitest.Load(api.Document) })

// As returns a client with a token.
func (b *Server) As(token string) *adminclient.Client {
	b.T.Helper()
	doc, err := Document()
	Check(b.T, err)
	checked := &http.Client{Transport: &apitest.Transport{Document: doc, Report: func(err error) { b.T.Error(err) }}}
	c, err := adminclient.New(b.URL, token, adminclient.WithHTTPClient(checked))
	Check(b.T, err)
	return c
}

// Answer is a response with any status.
type Answer[T any] struct {
	adminclient.Response[T]
	// Problem is nil if the operation succeeded.
	Problem *adminclient.Problem
}

// Answered turns an error response into an answer; any other error is returned.
func Answered[T any](r *adminclient.Response[T], err error) (*Answer[T], error) {
	if e, ok := errors.AsType[*adminclient.Error](err); ok {
		return &Answer[T]{adminclient.Response[T]{StatusCode: e.StatusCode, Header: e.Header, Body: e.Body}, &e.Problem}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Answer[T]{Response: *r}, nil
}

// Check fails the test if there is an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Problem fails the test unless the response is the expected problem.
func Problem(t testing.TB, got *adminclient.Problem, status int, kind string) {
	t.Helper()
	if got == nil {
		t.Fatalf("got no problem; want %d %s", status, kind)
	}
	if got.Status != status || got.Type != "/problems/"+kind {
		t.Errorf("got problem %d %s: %v; want %d %s", got.Status, got.Type, got, status, kind)
	}
}

// Account creates an account.
func (b *Server) Account(slots int) *adminclient.Account {
	b.T.Helper()
	r, err := Answered(b.API.CreateAccount(b.T.Context(), nil, adminclient.AccountCreate{Name: "Example", MaxConcurrentRequests: &slots}))
	Check(b.T, err)
	if r.StatusCode != http.StatusCreated {
		b.T.Fatalf("create account: %v", r.Problem)
	}
	return r.Value
}

// Key creates a key of an account.
func (b *Server) Key(account, limit string) *adminclient.IssuedKey {
	b.T.Helper()
	wanted := adminclient.KeyCreate{Name: "a key"}
	if limit != "" {
		wanted.SpendLimit = &limit
	}
	r, err := Answered(b.API.CreateKey(b.T.Context(), account, nil, wanted))
	Check(b.T, err)
	if r.StatusCode != http.StatusCreated {
		b.T.Fatalf("create key: %v", r.Problem)
	}
	return r.Value
}

// Credit books a credit.
func (b *Server) Credit(account, amount, reference string) *adminclient.Transaction {
	b.T.Helper()
	r, err := Answered(b.API.CreateCredit(b.T.Context(), account, nil, adminclient.CreditCreate{
		Amount: amount, Kind: adminclient.CreditKindPayment, Reference: reference,
	}))
	Check(b.T, err)
	if r.StatusCode != http.StatusCreated {
		b.T.Fatalf("credit: %v", r.Problem)
	}
	return r.Value
}

// CheckLedger fails the test unless every invariant of the ledger holds.
func (b *Server) CheckLedger() {
	b.T.Helper()
	r, err := Answered(b.API.CheckLedger(b.T.Context(), nil))
	Check(b.T, err)
	if r.StatusCode != http.StatusOK || !r.Value.OK {
		b.T.Errorf("ledger check: %s", r.Body)
	}
}

// Exec changes the database directly.
func (b *Server) Exec(sql string, args ...any) {
	b.T.Helper()
	_, err := b.DB.Pool().Exec(b.T.Context(), sql, args...)
	Check(b.T, err)
}
