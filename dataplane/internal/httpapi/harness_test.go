package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"modelgateway/dataplane/internal/accesslog"
	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	"modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/httpapi"
	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/httpapi/room"
	"modelgateway/dataplane/internal/httpapi/tracing"
	"modelgateway/dataplane/internal/reporter"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/dataplane/internal/tail"
	"modelgateway/dataplane/internal/turns"
	"modelgateway/dataplane/internal/upstream"
	"modelgateway/dataplane/internal/upstream/credential"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apikey"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	theAccount = "acc_1"
	sessionID  = 7
)

// gateway is the public API with real components, between a simulated control plane and simulated providers.
type gateway struct {
	picker  *route.Picker
	t       *testing.T
	url     string
	plane   *controlPlane
	spool   *recorder
	keys    *auth.Keys
	hasher  *apikey.Hasher
	models  *catalog.Store
	fleet   *seal.Key
	sims    []*providerSim
	server  *httptest.Server
	stop    func()
	budget  *bytebudget.Budget
	turns   *turns.Turns
	api     *httpapi.Server
	handler http.Handler
	admit   *admission.Admission
	metrics *prometheus.Registry
	// measured has the counters, tails and refusals what operators watch.
	measured *meter.Metrics
	tails    *tail.Tails
	refusals *reporter.Refusals
	// lines has the access log. It is complete after close.
	lines   bytes.Buffer
	access  *accesslog.Log
	client  *http.Client
	session atomic.Pointer[session.Session]
	// later is how far the clock of the video jobs is ahead.
	later atomic.Int64
	// served receives the context of each request when its handler begins.
	served chan context.Context
	// key is one of theAccount.
	key string
}

func (g *gateway) Current() *session.Session { return g.session.Load() }

func (*gateway) Act(do func()) { do() }

// options vary between tests.
type options struct {
	// providers replaces the provider client.
	providers httpapi.Providers
	cfg       httpapi.Config
	// sources renews the credentials of providers, nil if they are fixed secrets.
	sources *credential.Sources
	// noCatalog leaves the catalog unpublished.
	noCatalog bool
	// provider and model change the entries before they are published.
	provider func(i int, p *catalogkv.Provider)
	model    func(m *catalogkv.Model)
	// now is the clock of the circuit breakers, time.Now if nil.
	now func() time.Time
	// routes is the number of routes to providers that are no servers, for tests that replace the provider client.
	routes int
	// listener replaces the listener on a port of the machine. Its connections are served until the end of the test.
	listener *pipeListener
	// budget is the size of the budget for bodies; zero means a large one.
	budget int64
	// disk is the size of the budget for answers in files; zero means a large one.
	disk int64
	// traces makes the traces of requests.
	traces *tracing.Tracer
}

// noBucket is a bucket of key records that has none.
type noBucket struct{}

func (noBucket) KeyMark(context.Context) (wire.KeyMark, uint64, error) { return wire.KeyMark{}, 0, nil }

func (noBucket) KeyEntry(context.Context, apikey.Hash) (wire.KeyEntry, error) {
	return wire.KeyEntry{}, nil
}

// newGateway starts a gateway with a provider for each answer. The models text, image and video have a route to each
// provider, in that order.
func newGateway(t *testing.T, answers ...http.HandlerFunc) *gateway {
	t.Helper()
	return newGatewayWith(t, options{}, answers...)
}

func newGatewayWith(t *testing.T, o options, answers ...http.HandlerFunc) *gateway {
	t.Helper()
	g := &gateway{t: t, plane: newControlPlane(), served: make(chan context.Context, 1000)}
	g.session.Store(session.Begin(sessionID, "boot", time.Hour))
	log := slog.New(slog.DiscardHandler)
	var err error
	if g.hasher, err = apikey.NewHasher([]byte(strings.Repeat("p", 32))); err != nil {
		t.Fatal(err)
	}
	if g.fleet, err = seal.NewKey(seal.NewSecret()); err != nil {
		t.Fatal(err)
	}
	if g.keys, err = auth.New(auth.Config{Hasher: g.hasher, Bucket: noBucket{}, MaxKeys: 1 << 10}, g.plane, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	disk, err := spool.Open(spool.Config{Dir: t.TempDir(), MaxEvents: 1000, MaxBytes: 64 << 20}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.OpenSession(sessionID, "boot"); err != nil {
		t.Fatal(err)
	}
	g.spool = &recorder{Spool: disk, finished: make(chan event.Usage, 100)}
	g.models = catalog.New(g.fleet)
	reg := prometheus.NewRegistry()
	g.metrics = reg
	g.picker = route.New(o.now)
	g.admit = admission.New(g, g.keys, g.spool, g.plane, admission.Units{IdleTimeout: 10 * time.Second}, admission.NewMetrics(reg), log)
	g.admit.OnSession(g.Current())
	calls := upstream.New(upstream.Limits{})
	calls.Credentials = o.sources
	if o.providers == nil {
		o.providers = calls
	}
	for _, answer := range answers {
		g.sims = append(g.sims, newSim(t, answer))
	}
	g.turns, g.tails, g.refusals = turns.New(1), tail.New(), reporter.NewRefusals()
	g.measured = meter.New(reg)
	g.budget = bytebudget.New(cmp.Or(o.budget, 1<<30), 0.25)
	g.access = accesslog.New(&g.lines, slog.LevelInfo)
	jobs := videojob.New(g.plane, o.providers, g.spool, g.models, videos.Dialect{}, log, g.videoClock)
	o.cfg.Client = clientaddr.Behind(nil)
	api := httpapi.New(o.cfg, httpapi.Dependencies{
		Keys: g.keys, Catalog: g.models, Admission: g.admit, Picker: g.picker, Providers: o.providers, Balances: g.plane,
		Videos:     jobs,
		Dialects:   []format.Dialect{chat.Dialect{}, responses.Dialect{}, messages.Dialect{}, images.Dialect{}},
		Pseudonyms: httpapi.Pseudonyms{Secret: []byte("identity")}, Metrics: g.measured, Log: log,
		Access: g.access, Traces: o.traces, Budget: g.budget, Turns: g.turns, Tails: g.tails, Refusals: g.refusals,
		Answers: &room.Rooms{Memory: g.budget, Disk: bytebudget.New(cmp.Or(o.disk, 1<<30), 0.25), Dir: t.TempDir()},
	})
	g.plane.open(theAccount, 1_000_000, 1_000_000, 10)
	g.key = g.issue("key_1", theAccount)
	if !o.noCatalog {
		g.publishCatalog(o)
	}
	g.api, g.handler = api, api.Handler()
	transport := &http.Transport{DisableCompression: true, ExpectContinueTimeout: time.Hour}
	g.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		g.stop()
		jobs.Stop()
		g.checkInvariants()
		calls.Close()
		for _, s := range g.sims {
			s.Close()
		}
		g.keys.Close()
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	if o.listener != nil {
		g.url, transport.DialContext = "http://gateway", o.listener.dial
		served := make(chan error, 1)
		go func() { served <- api.Serve(o.listener) }()
		g.stop = func() {
			if err := errors.Join(api.Stop(context.Background()), <-served); err != nil {
				t.Error(err)
			}
		}
		return g
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.served <- r.Context()
		g.handler.ServeHTTP(w, r)
	}))
	g.server.Listener = clientconn.Listen(g.server.Listener, clientconn.Config{StallTimeout: cmp.Or(o.cfg.StallTimeout, time.Minute)})
	g.server.Config.ConnContext, g.server.Config.ConnState = clientconn.WithConn, clientconn.OnState
	g.server.Start()
	g.url, g.stop = g.server.URL, g.server.Close
	return g
}

func (g *gateway) videoClock() time.Time { return time.Now().Add(time.Duration(g.later.Load())) }

// pass moves the clock of the video jobs.
func (g *gateway) pass(d time.Duration) { g.later.Add(int64(d)) }

// publishCatalog publishes the catalog.
func (g *gateway) publishCatalog(o options) {
	var routes []catalogkv.Route
	var urls []string
	for range o.routes {
		urls = append(urls, "http://provider.invalid")
	}
	for _, s := range g.sims {
		urls = append(urls, s.URL)
	}
	for i, url := range urls {
		n := strconv.Itoa(i)
		p := catalogkv.Provider{
			ID: "prv_" + n, Name: "vendor" + n, BaseURL: url, Enabled: true,
			Credentials: []catalogkv.Credential{g.credential("crd_"+n, "secret-"+n)},
		}
		if o.provider != nil {
			o.provider(i, &p)
		}
		g.set(subject.KindProvider, p.ID, p)
		routes = append(routes, catalogkv.Route{ID: "rte_" + n, Provider: p.ID, UpstreamModel: "up-model", Priority: i, Enabled: true})
	}
	g.set(subject.KindSettings, "", catalogkv.Settings{Currency: "USD"})
	for _, m := range []catalogkv.Model{
		{ID: "text", Type: catalogkv.Text, Prices: []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 1, Rates: price.Rates{price.Input: 1_000_000, price.Output: 2_000_000}}}}},
		{ID: "image", Type: catalogkv.Image, Prices: []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 2, Images: []price.UnitPrice{{Price: 100}}}}}},
		{ID: "video", Type: catalogkv.Video, Prices: []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}}}}}},
	} {
		m.Enabled, m.Public, m.CreatedUnix = true, true, 1_700_000_000
		for _, r := range routes {
			r.ID += "_" + m.ID
			switch m.Type {
			case catalogkv.Image:
				r.Formats = []catalogkv.Format{catalogkv.Images}
			case catalogkv.Video:
				r.Formats = []catalogkv.Format{catalogkv.Videos}
			default:
				r.Formats = []catalogkv.Format{catalogkv.Chat, catalogkv.Responses, catalogkv.Messages}
			}
			m.Routes = append(m.Routes, r)
		}
		if o.model != nil {
			o.model(&m)
		}
		g.set(subject.KindModel, m.ID, m)
	}
	g.apply()
}

func (g *gateway) credential(id, secret string) catalogkv.Credential {
	return catalogkv.Credential{ID: id, Name: "name of " + id, Sealed: g.fleet.Seal([]byte(secret), catalogkv.CredentialContext(id))}
}

func (g *gateway) set(kind, name string, v any) {
	g.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		g.t.Fatal(err)
	}
	g.models.Set(kind, name, data)
}

func (g *gateway) apply() {
	g.t.Helper()
	g.set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: g.models.Rev() + 1})
	if err := g.models.Apply(); err != nil {
		g.t.Fatal(err)
	}
}

// issue creates a key.
func (g *gateway) issue(keyID, account string) string {
	text := g.hasher.Generate()
	g.plane.issue(g.hasher.Hash(text), keyID, account)
	return text
}

// revoke revokes the key, as the pushed key change does.
func (g *gateway) revoke(key string) {
	hash := g.hasher.Hash(key)
	g.deactivate(hash, wire.KeyChange{Kind: wire.KeyRevoked, KeyHash: hash})
}

// suspend suspends the account of a key.
func (g *gateway) suspend(key, account string) {
	g.deactivate(g.hasher.Hash(key), wire.KeyChange{Kind: wire.AccountUpdated, Account: account})
}

func (g *gateway) deactivate(hash apikey.Hash, change wire.KeyChange) {
	change.V, change.Revision = wire.Version, g.plane.deactivate(hash)
	g.keys.Apply(change)
	g.admit.OnChange(change)
}

// checkInvariants checks at the end of every test: every started request has one event, the charges are reserved until
// they are settled, and nothing else is reserved.
func (g *gateway) checkInvariants() {
	g.t.Helper()
	g.admit.Stop(context.Background())
	if n := g.admit.Running(); n != 0 {
		g.t.Errorf("%d requests are still running", n)
	}
	events := g.spool.all()
	if g.spool.started != len(events) {
		g.t.Errorf("%d requests were started, %d have a usage event", g.spool.started, len(events))
	}
	if used := g.spool.UsedCapacity(); used != int64(len(events)) {
		g.t.Errorf("%d units of spool capacity are in use for %d events", used, len(events))
	}
	costs, seen := map[string]int64{}, map[string]bool{}
	for _, e := range events {
		if seen[e.RequestID] && e.VideoJob == "" {
			g.t.Errorf("request %s has two events", e.RequestID)
		}
		seen[e.RequestID] = true
		if e.VideoJob == "" && e.Implausible() == "" { // videos have no reservation, and quarantined events hold nothing
			costs[e.AccountID] += min(int64(e.Cost), max(int64(e.Reservation), 1)) // settlement charges the excess
		}
	}
	for account := range g.plane.accounts {
		for offset, want := range map[wire.PoolID]int64{balanceOffset: costs[account], limitOffset: costs[account], slotsOffset: 0} {
			if got := g.plane.held(account, offset); got != want {
				g.t.Errorf("account %s, pool %d: %d is reserved; want %d", account, offset, got, want)
			}
		}
	}
}

// recorder is the spool with a copy of every event in it.
type recorder struct {
	*spool.Spool
	finished chan event.Usage

	mu      sync.Mutex
	started int
	events  []event.Usage
	full    error
	// onStart, if set, is called when a request is recorded as started.
	onStart func()
	// refuses makes the disk refuse finished events.
	refuses atomic.Bool
}

func (r *recorder) Reserve() (admission.SpoolUnit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full != nil {
		return nil, r.full
	}
	unit, err := r.Spool.Reserve()
	if err != nil {
		return nil, err
	}
	return &recordedUnit{unit, r}, nil
}

func (r *recorder) CountUnknownState(string) {}

func (r *recorder) Charge(e event.Usage, _ usagereport.Reason) error {
	unit, err := r.Reserve()
	if err != nil {
		return err
	}
	e.Session = sessionID
	if err := unit.AppendStarted(&e); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	unit.AppendFinished(&e)
	return nil
}

func (r *recorder) all() []event.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]event.Usage(nil), r.events...)
}

// next waits for an event.
func (r *recorder) next(t *testing.T) event.Usage {
	t.Helper()
	select {
	case e := <-r.finished:
		return e
	case <-t.Context().Done():
		t.Fatal("no event came")
		return event.Usage{}
	}
}

type recordedUnit struct {
	*spool.Unit
	r *recorder
}

func (p *recordedUnit) AppendStarted(e *event.Usage) error {
	err := p.Unit.AppendStarted(e)
	if err != nil {
		return err
	}
	p.r.mu.Lock()
	p.r.started++
	p.r.mu.Unlock()
	if p.r.onStart != nil {
		p.r.onStart()
	}
	return nil
}

func (p *recordedUnit) AppendFinished(e *event.Usage) bool {
	stored := p.Unit.AppendFinished(e) && !p.r.refuses.Load()
	p.r.mu.Lock()
	p.r.events = append(p.r.events, *e)
	p.r.mu.Unlock()
	p.r.finished <- *e
	return stored
}

// answer is a complete answer as the client got it.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request with the key and any further headers, as pairs of name and value. An empty value removes a
// header.
func (g *gateway) send(method, target, body string, headers ...string) answer {
	g.t.Helper()
	response := g.begin(g.t.Context(), method, target, strings.NewReader(body), headers...)
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatalf("%s %s: read answer: %v", method, target, err)
	}
	return answer{response.StatusCode, response.Header, string(data)}
}

func (g *gateway) post(target, body string, headers ...string) answer {
	g.t.Helper()
	return g.send(http.MethodPost, target, body, headers...)
}

// begin sends a request and returns when the answer has begun.
func (g *gateway) begin(ctx context.Context, method, target string, body io.Reader, headers ...string) *http.Response {
	g.t.Helper()
	response, err := g.try(ctx, method, target, body, headers...)
	if err != nil {
		g.t.Fatal(err)
	}
	return response
}

func (g *gateway) try(ctx context.Context, method, target string, body io.Reader, headers ...string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, g.url+target, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+g.key)
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			request.Header.Del(headers[i])
		}
	}
	response, err := g.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	return response, nil
}

// apiError is an error in either envelope.
type apiError struct {
	Status                                int
	Message, Type, Code, Param, RequestID string
	RetryAfter                            string
	Final                                 bool
	Messages                              bool
}

var errNoEnvelope = errors.New("not an error envelope")

// apiError parses an error answer. Members that are missing, unexpected or null fail the test.
func (a answer) apiError(t *testing.T) apiError {
	t.Helper()
	e, err := parseAPIError([]byte(a.body))
	if err != nil {
		t.Fatalf("status %d, body %s: %v", a.status, a.body, err)
	}
	e.Status, e.RetryAfter, e.Final = a.status, a.header.Get("Retry-After"), a.header.Get("X-Should-Retry") == "false"
	if id := a.header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") || id != e.RequestID || id != a.header.Get("Request-Id") {
		t.Errorf("x-request-id %q, request-id %q, request_id of the body %q; want one id", id, a.header.Get("Request-Id"), e.RequestID)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("got content type %q", got)
	}
	return e
}

func parseAPIError(data []byte) (apiError, error) {
	var outer struct {
		Type      string
		RequestID string `json:"request_id"`
		Error     map[string]string
	}
	if err := json.Unmarshal(data, &outer); err != nil {
		return apiError{}, fmt.Errorf("%w: %w", errNoEnvelope, err)
	}
	inner := outer.Error
	for name, value := range inner {
		if value == "" {
			return apiError{}, fmt.Errorf("%w: member %s is empty or null", errNoEnvelope, name)
		}
	}
	e := apiError{Message: inner["message"], Type: inner["type"], Code: inner["code"], Param: inner["param"], RequestID: inner["request_id"]}
	if e.Messages = outer.Type == "error"; e.Messages {
		if e.RequestID != "" {
			return e, fmt.Errorf("%w: request_id is inside the error object", errNoEnvelope)
		}
		e.RequestID = outer.RequestID
	}
	if e.Message == "" || e.Type == "" || e.RequestID == "" {
		return e, fmt.Errorf("%w: a member is missing", errNoEnvelope)
	}
	return e, nil
}
