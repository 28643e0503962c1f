package console_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/console"
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
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/pulse"
	"modelgateway/shared/seal"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

const bootstrapToken = "the bootstrap token of tests"

// proxies confirms every change at once, as two proxies would.
type proxies struct{}

func (proxies) Announce(context.Context, wire.KeyChange) (propagation.Confirmation, error) {
	return propagation.Confirmation{Effective: true, Confirmed: []session.ActiveSession{{Session: 1, Proxy: "proxy-1"}, {Session: 2, Proxy: "proxy-2"}}}, nil
}

// RunningBySession answers as proxies without running requests would.
func (proxies) RunningBySession(context.Context, string) (map[wire.SessionID]map[wire.PoolID]int64, []string, error) {
	return nil, nil, nil
}

// Explain answers as two proxies would: the breaker of the first route is open on one of them, and the balance is spent.
func (proxies) Explain(_ context.Context, q *wire.ExplainRequest) (map[wire.SessionID]wire.ExplainResponse, []string, error) {
	answers := map[wire.SessionID]wire.ExplainResponse{}
	for i, skipped := range []string{"", "breaker_open"} {
		routes := []wire.ExplainRoute{
			{Route: "rte_a", Provider: "backup", UpstreamModel: "u", URL: "https://backup.example/v4/chat", Priority: 1, Weight: 1, Credential: "crd_a"},
			{Route: "rte_b", Provider: "sim", UpstreamModel: "u", Weight: 1, Skipped: skipped},
		}
		answers[wire.SessionID(i)] = wire.ExplainResponse{
			V: 1, Session: wire.SessionID(i), Name: "proxy-" + string(rune('1'+i)), CatalogRevision: 7, PriceVersion: 12, PriceMultiplier: 1_500_000, InputTokens: q.InputTokens,
			Reservation: 1_300_000, Needs: []wire.Need{{Pool: q.Record.BalancePool, Kind: wire.Balance, Amount: 1_300_000}, {Pool: q.Record.SlotsPool, Kind: wire.Slots, Amount: 1}},
			Refusals: []wire.ExplainRefusal{{Step: wire.ExplainAdmission, Status: http.StatusPaymentRequired, Code: "insufficient_quota", Message: "The balance is exhausted.", Reason: wire.BalanceSpent}},
			Routes:   routes,
		}
	}
	return answers, []string{"proxy-3"}, nil
}

// CheckProvider answers as a proxy would: one call works, and one finds nothing at its address. No proxy is live for others.
func (proxies) CheckProvider(_ context.Context, provider string) (proxy string, checked checkwire.Response, answered bool, err error) {
	if provider != "acme" {
		return "", checked, false, nil
	}
	return "proxy-1", checkwire.Response{V: wire.Version, Name: "proxy-1", CatalogRevision: 7, Calls: []checkwire.Call{
		{Format: "chat", Route: "small-main", UpstreamModel: "small-2026", URL: "https://api.example.com/v1/chat/completions", Result: checkwire.Works, Status: 200, MS: 12},
		{
			Format: "messages", Route: "small-main", UpstreamModel: "small-2026", URL: "https://api.example.com/v1/messages", Result: checkwire.NotFound, Status: 404,
			Detail: "<b>no such path</b>", Hint: "Correct the path.", MS: 3,
		},
	}}, true, nil
}

// Tail has one refused request whenever somebody watches.
func (proxies) Tail(_ pulse.Tail, handle func(string, *pulse.Lines)) (ask func(pulse.Tail) error, stop func(), err error) {
	return func(pulse.Tail) error {
		handle("proxy-1", &pulse.Lines{Lines: []pulse.Line{{RequestID: "req_refused", Status: http.StatusPaymentRequired, Code: "insufficient_quota"}}})
		return nil
	}, func() {}, nil
}

// world is a console in front of the real admin API, with a database of its own.
type world struct {
	t    testing.TB
	pool *pgxpool.Pool
	url  string
	api  *adminclient.Client
	// checks runs the checks of the ledger.
	checks *ledgercheck.Service
	live   *traffic.Live
	// later is how much later it is for remembered sessions than now.
	later atomic.Int64
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newAPI returns the admin API, the sessions of the console, the service that checks the ledger, and the live traffic. now is
// the clock of remembered sessions.
func newAPI(t testing.TB, db *postgres.DB, now func() time.Time) (http.Handler, *signin.Service, *ledgercheck.Service, *traffic.Live) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	hasher, err := apikey.NewHasher([]byte("a pepper for the tests"))
	check(t, err)
	keys, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	check(t, err)
	fleetKey, err := seal.NewKey(seal.NewSecret())
	check(t, err)
	books, usages := ledger.NewService(ledger.Config{Store: moneystore.NewLedger(db)}), usage.NewService(usagestore.NewUsage(db))
	checks := ledgercheck.NewService(ledgercheck.Config{
		Store: moneystore.NewLedgerCheck(db), Ledger: books, Receipts: usages, NotifyFunc: func(context.Context, string, *ledger.Report) error { return nil },
	})
	tokens := admin.NewService(accountstore.NewTokens(db), admin.BootstrapTokens{Texts: []string{bootstrapToken}}, nil)
	sessions := signin.NewService(signin.Config{Store: accountstore.NewSessions(db), Tokens: tokens, ByToken: true, Idle: 30 * time.Minute, Length: 10 * time.Hour, Now: now})
	holdings := holding.NewService(leasestore.NewHoldings(db), proxies{})
	catalogs := catalog.NewService(catalog.Config{Store: catalogstore.New(db), Vault: keys, Fleet: fleetKey, Log: log})
	live := traffic.NewLive(nil)
	handler, err := httpapi.New(httpapi.Config{
		Address:  clientaddr.Behind(nil),
		Accounts: account.NewService(account.Config{Store: accountstore.NewAccounts(db), Announcer: proxies{}, Log: log, ConfirmTimeout: time.Second}),
		Keys: key.NewService(key.Config{
			Store: accountstore.NewKeys(db), Announcer: proxies{}, Hasher: hasher, Peppers: []string{hasher.ID()}, Vault: keys, Log: log,
			ConfirmTimeout: time.Second, RevokeTimeout: time.Second,
		}),
		Projects: project.NewService(accountstore.NewProjects(db)),
		Limits: spendlimit.NewService(spendlimit.Config{
			Store: accountstore.NewSpendLimits(db), Announcer: proxies{}, Log: log, ConfirmTimeout: time.Second,
		}),
		Explainer: &explain.Service{Store: leasestore.NewLeases(db), Videos: videostore.New(db), Holdings: holdings, Catalog: catalogs, Proxies: proxies{}},
		Holdings:  holdings, Search: search.NewService(accountstore.NewSearch(db), []*apikey.Hasher{hasher}),
		Ledger: books, LedgerChecks: checks,
		Catalog:    catalogs,
		Usage:      usages,
		Margin:     usagestore.NewUsage(db),
		Archive:    archive.New(archive.Config{Store: usagestore.NewArchive(db)}),
		Statements: statement.NewService(moneystore.NewStatements(db)),
		Quarantine: settle.NewQuarantine(moneystore.NewQuarantine(db), settle.New(moneystore.NewSettlement(db), nil)),
		Videos:     videostore.New(db),
		Bills:      providerbill.NewService(billstore.New(db)),
		Tokens:     tokens,
		Sessions:   sessions,
		Fleet:      leasestore.NewFleet(db),
		Checker:    proxies{},
		Applied:    fleet.NewWaiter(leasestore.NewFleet(db), proxies{}, log),
		Audit:      changestore.NewAudit(db),
		Rotations: rotation.NewService(rotation.Config{
			Store: accountstore.NewRotations(db), Vault: keys, Hasher: hasher, Peppers: []string{hasher.ID()}, MinDuration: time.Nanosecond,
		}),
		Diagnosis: diagnosis.New(diagnosis.Config{
			Database: leasestore.NewDiagnosis(db), Fleet: leasestore.NewFleet(db), Ledger: books, Secrets: &diagnosis.Secrets{KnowsFunc: keys.Knows}, Build: "v1",
		}),
		Webhooks:    webhook.NewService(webhook.Config{Store: webhookstore.New(db), Vault: keys}),
		Traffic:     live,
		Tails:       traffic.NewTails(proxies{}, log, nil),
		Past:        traffic.NewService(usagestore.NewTraffic(db), nil),
		Idempotency: idempotency.New(accountstore.NewIdempotency(db), keys),
		Log:         log, Registerer: prometheus.NewRegistry(), ResponseTimeout: time.Minute,
	})
	check(t, err)
	return handler, sessions, checks, live
}

// behind is the reverse proxy in front of the console under test.
var behind = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// echo answers requests to the gateway's own API with their path, credential and body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the test compares it
	w.Header().Set("X-Request-Id", "req_tried")
	_ = json.NewEncoder(w).Encode(map[string]any{"path": r.URL.Path, "authorized": strings.HasPrefix(r.Header.Get("Authorization"), "Bearer mgw_"), "sent": json.RawMessage(body)})
}

func setup(t testing.TB) *world {
	t.Helper()
	return setupAs(t, "test")
}

// setupAs is setup for an installation with a name.
func setupAs(t testing.TB, environment string) *world {
	t.Helper()
	pool := pgtest.New(t)
	db := postgres.Wrap(pool)
	w := &world{t: t, pool: pool}
	api, sessions, checks, live := newAPI(t, db, func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) })
	gateway := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(gateway.Close)
	pages, err := console.New(console.Config{
		APIURL: gateway.URL, Sessions: sessions, API: api, Address: clientaddr.Behind(behind), Log: slog.New(slog.DiscardHandler),
		Environment: environment, Build: "v1", SessionLength: 10 * time.Hour,
	})
	check(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/console/", pages)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := adminclient.New(server.URL, bootstrapToken)
	check(t, err)
	w.url, w.api, w.checks, w.live = server.URL, client, checks, live
	return w
}

// browser is a browser that does not follow redirects.
type browser struct {
	w      *world
	client *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	check(w.t, err)
	return &browser{w, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// signedIn returns a browser with a session of a token.
func (w *world) signedIn(token string) *browser {
	w.t.Helper()
	b := w.browser()
	if got, text := b.post("/console/sign-in", "token", token); got.StatusCode != http.StatusSeeOther {
		w.t.Fatalf("sign in: got %d %s", got.StatusCode, text)
	}
	return b
}

func (b *browser) get(path string) (*http.Response, string) {
	return b.send(http.MethodGet, path, nil, nil)
}

func (b *browser) post(path string, form ...string) (*http.Response, string) {
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	return b.send(http.MethodPost, path, values, nil)
}

func (b *browser) send(method, path string, form url.Values, header http.Header) (*http.Response, string) {
	b.w.t.Helper()
	sent := http.Header{}
	if form != nil {
		sent.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	maps.Copy(sent, header)
	return b.sendBody(method, path, strings.NewReader(form.Encode()), sent)
}

func (b *browser) sendBody(method, path string, body io.Reader, header http.Header) (*http.Response, string) {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.url+path, body)
	check(b.w.t, err)
	maps.Copy(r.Header, header)
	answer, err := b.client.Do(r)
	check(b.w.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	check(b.w.t, err)
	return answer, string(text)
}

// token returns a new admin token and its id.
func (w *world) token(scopes ...adminclient.Scope) (id, text string) {
	w.t.Helper()
	made, err := w.api.CreateToken(w.t.Context(), nil, adminclient.TokenCreate{Name: "somebody", Scopes: scopes})
	check(w.t, err)
	return made.Value.ID, made.Value.Secret
}
