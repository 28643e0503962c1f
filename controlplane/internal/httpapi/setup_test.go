package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/search"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/apidoc/apitest"
	"modelgateway/shared/apikey"
	"modelgateway/shared/pulse"
	"modelgateway/shared/seal"
	"modelgateway/shared/wire"
)

var discard = slog.New(slog.DiscardHandler)

const bootstrapToken = "the bootstrap token of tests"

// oldPepper is the id of a previous pepper.
const oldPepper = "0123456789abcdef"

// fakeAnnouncer replaces the proxies: it records announced changes and returns the confirmation
// that the test sets.
type fakeAnnouncer struct {
	mu     sync.Mutex
	told   []wire.KeyChange
	answer propagation.Confirmation
	err    error
}

func (f *fakeAnnouncer) Announce(_ context.Context, c wire.KeyChange) (propagation.Confirmation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, c)
	return f.answer, f.err
}

// bundle is a running admin API with a database of its own.
type bundle struct {
	t         *testing.T
	db        *postgres.DB
	url       string
	api       *adminclient.Client
	announcer *fakeAnnouncer
	hasher    *apikey.Hasher
	hooks     *webhookstore.Store
	rotations *rotation.Service
	logs      *logs
	checks    *ledgercheck.Service
	sessions  *signin.Service
	// running is what the proxies report about running requests, and silent are those that do not answer.
	running map[wire.SessionID]map[wire.PoolID]int64
	silent  []string
	// explained are the answers of proxies that explain a request; asked is the last question.
	explained map[wire.SessionID]wire.ExplainResponse
	asked     *wire.ExplainRequest
	// notified are the kinds of checks that found differences.
	notified []string
	// verifier, if set, verifies tokens of an identity provider.
	verifier admin.Verifier
}

func (b *bundle) RunningBySession(context.Context, string) (map[wire.SessionID]map[wire.PoolID]int64, []string, error) {
	return b.running, b.silent, nil
}

func (b *bundle) Explain(_ context.Context, q *wire.ExplainRequest) (map[wire.SessionID]wire.ExplainResponse, []string, error) {
	b.asked = q
	return b.explained, b.silent, nil
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

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupWith(t, nil)
}

// setupWith is setup with a verifier and with changed settings.
func setupWith(t *testing.T, v admin.Verifier, others ...func(*httpapi.Config)) *bundle {
	t.Helper()
	b := &bundle{
		t: t, db: postgres.Wrap(pgtest.New(t)), verifier: v, logs: &logs{},
		announcer: &fakeAnnouncer{answer: propagation.Confirmation{Effective: true}},
	}
	var err error
	b.hasher, err = apikey.NewHasher([]byte("a pepper for the tests"))
	check(t, err)
	keys, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	check(t, err)
	fleetKey, err := seal.NewKey(seal.NewSecret())
	check(t, err)
	log := slog.New(slog.NewJSONHandler(b.logs, nil))
	b.hooks = webhookstore.New(b.db)
	b.rotations = rotation.NewService(rotation.Config{
		Store: accountstore.NewRotations(b.db), Vault: keys, Hasher: b.hasher, Peppers: []string{b.hasher.ID()}, MinDuration: time.Nanosecond,
	})
	books, usages := ledger.NewService(ledger.Config{Store: moneystore.NewLedger(b.db)}), usage.NewService(usagestore.NewUsage(b.db))
	b.checks = ledgercheck.NewService(ledgercheck.Config{
		Store: moneystore.NewLedgerCheck(b.db), Ledger: books, Receipts: usages,
		NotifyFunc: func(_ context.Context, scope string, r *ledger.Report) error {
			if !r.OK() {
				b.notified = append(b.notified, scope)
			}
			return nil
		},
	})
	cfg := httpapi.Config{
		Accounts: account.NewService(account.Config{
			Store: accountstore.NewAccounts(b.db), Announcer: b.announcer, Log: log, ConfirmTimeout: time.Second,
		}),
		Keys: key.NewService(key.Config{
			Store: accountstore.NewKeys(b.db), Announcer: b.announcer, Hasher: b.hasher, Peppers: []string{b.hasher.ID(), oldPepper}, Vault: keys, Log: log,
			ConfirmTimeout: time.Second, RevokeTimeout: time.Second,
		}),
		Ledger: books, LedgerChecks: b.checks,
		Holdings: holding.NewService(leasestore.NewHoldings(b.db), b), Search: search.NewService(accountstore.NewSearch(b.db), []*apikey.Hasher{b.hasher}),
		Catalog:    catalog.NewService(catalog.Config{Store: catalogstore.New(b.db), Vault: keys, Fleet: fleetKey, Log: log}),
		Usage:      usages,
		Archive:    archive.New(archive.Config{Store: moneystore.NewArchive(b.db)}),
		Statements: statement.NewService(moneystore.NewStatements(b.db)),
		Quarantine: settle.NewQuarantine(moneystore.NewQuarantine(b.db), settle.New(moneystore.NewSettlement(b.db), nil)),
		Videos:     videostore.New(b.db),
		Tokens:     admin.NewService(accountstore.NewTokens(b.db), admin.BootstrapTokens{Texts: []string{bootstrapToken}}, b.verifier),
		Fleet:      leasestore.NewFleet(b.db),
		Applied:    fleet.NewWaiter(leasestore.NewFleet(b.db), b.announcer, log),
		Audit:      changestore.NewAudit(b.db),
		Rotations:  b.rotations,
		Diagnosis: diagnosis.New(diagnosis.Config{
			Database: leasestore.NewDiagnosis(b.db), Fleet: leasestore.NewFleet(b.db),
			Ledger:  ledger.NewService(ledger.Config{Store: moneystore.NewLedger(b.db)}),
			Secrets: &diagnosis.Secrets{KnowsFunc: keys.Knows}, Build: "v1",
		}),
		Webhooks:    webhook.NewService(webhook.Config{Store: b.hooks, Vault: keys}),
		Idempotency: idempotency.New(accountstore.NewIdempotency(b.db), keys),
		Traffic:     traffic.NewLive(nil),
		Tails:       traffic.NewTails(&proxies{asked: make(chan pulse.Tail, 100), opened: make(chan func(string, *pulse.Lines), 100)}, log, nil),
		Past:        traffic.NewService(usagestore.NewTraffic(b.db), nil),
		Stopping:    stopped(),
		Log:         log, Registerer: prometheus.NewRegistry(), ResponseTimeout: time.Minute,
	}
	cfg.Explainer = &explain.Service{Store: leasestore.NewLeases(b.db), Holdings: cfg.Holdings, Catalog: cfg.Catalog, Proxies: b}
	b.sessions = signin.NewService(signin.Config{Store: accountstore.NewSessions(b.db), Tokens: cfg.Tokens, ByToken: true, Idle: time.Hour, Length: time.Hour})
	cfg.Sessions = b.sessions
	for _, set := range others {
		set(&cfg)
	}
	handler, err := httpapi.New(cfg)
	check(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b.url = server.URL
	b.api = b.as(bootstrapToken)
	return b
}

// stopped returns a closed channel: streams end after their first event.
func stopped() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// loadDocument loads the API document, which every response is checked against.
var loadDocument = sync.OnceValues(func() (*apitest.Document, error) { return apitest.Load(api.Document) })

// as returns a client with a token.
func (b *bundle) as(token string) *adminclient.Client {
	b.t.Helper()
	doc, err := loadDocument()
	check(b.t, err)
	checked := &http.Client{Transport: &apitest.Transport{Document: doc, Report: func(err error) { b.t.Error(err) }}}
	c, err := adminclient.New(b.url, token, adminclient.WithHTTPClient(checked))
	check(b.t, err)
	return c
}

// answer is a response with any status.
type answer[T any] struct {
	adminclient.Response[T]
	// Problem is nil if the operation succeeded.
	Problem *adminclient.Problem
}

// answered turns an error response into an answer; any other error is returned.
func answered[T any](r *adminclient.Response[T], err error) (*answer[T], error) {
	if e, ok := errors.AsType[*adminclient.Error](err); ok {
		return &answer[T]{adminclient.Response[T]{StatusCode: e.StatusCode, Header: e.Header, Body: e.Body}, &e.Problem}, nil
	}
	if err != nil {
		return nil, err
	}
	return &answer[T]{Response: *r}, nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// problem fails the test unless the response is the expected problem.
func problem(t *testing.T, got *adminclient.Problem, status int, kind string) {
	t.Helper()
	if got == nil {
		t.Fatalf("got no problem; want %d %s", status, kind)
	}
	if got.Status != status || got.Type != "/problems/"+kind {
		t.Errorf("got problem %d %s: %v; want %d %s", got.Status, got.Type, got, status, kind)
	}
}

func (b *bundle) account(slots int) *adminclient.Account {
	b.t.Helper()
	r, err := answered(b.api.CreateAccount(b.t.Context(), nil, adminclient.AccountCreate{Name: "Example", MaxConcurrentRequests: &slots}))
	check(b.t, err)
	if r.StatusCode != http.StatusCreated {
		b.t.Fatalf("create account: %v", r.Problem)
	}
	return r.Value
}

func (b *bundle) key(account, limit string) *adminclient.IssuedKey {
	b.t.Helper()
	wanted := adminclient.KeyCreate{Name: "a key"}
	if limit != "" {
		wanted.SpendLimit = &limit
	}
	r, err := answered(b.api.CreateKey(b.t.Context(), account, nil, wanted))
	check(b.t, err)
	if r.StatusCode != http.StatusCreated {
		b.t.Fatalf("create key: %v", r.Problem)
	}
	return r.Value
}

func (b *bundle) credit(account, amount, reference string) *adminclient.Transaction {
	b.t.Helper()
	r, err := answered(b.api.CreateCredit(b.t.Context(), account, nil, adminclient.CreditCreate{
		Amount: amount, Kind: adminclient.CreditKindTopUp, Reference: reference,
	}))
	check(b.t, err)
	if r.StatusCode != http.StatusCreated {
		b.t.Fatalf("credit: %v", r.Problem)
	}
	return r.Value
}

// checkLedger fails the test unless every invariant of the ledger holds.
func (b *bundle) checkLedger() {
	b.t.Helper()
	r, err := answered(b.api.CheckLedger(b.t.Context(), nil))
	check(b.t, err)
	if r.StatusCode != http.StatusOK || !r.Value.OK {
		b.t.Errorf("ledger check: %s", r.Body)
	}
}

// exec changes the database directly.
func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Pool().Exec(b.t.Context(), sql, args...)
	check(b.t, err)
}
