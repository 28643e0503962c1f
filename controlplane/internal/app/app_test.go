package app

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/settings"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
)

// TestMain fails the package if anything that Run started outlives it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.Exit(code) }),
		// The cluster that pgtest runs for the whole process, and idle connections of the tests' own client.
		goleak.IgnoreAnyFunction("modelgateway/shared/platform/testkit/pgcluster.(*Cluster).run.func1"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		// A NATS server that is shut down while a replica declares a stream never stops what belongs to the new stream.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}

// signals is a log that reports when and where the control plane has started.
type signals struct {
	mu    sync.Mutex
	lines bytes.Buffer
	runs  chan [2]string
	// takes has a value for each write that the log takes after that; nil if it takes all.
	takes chan struct{}
}

func (s *signals) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines.Write(lines)
	for line := range bytes.Lines(lines) {
		var entry struct{ Msg, Admin, Ops string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "control plane started" {
			s.runs <- [2]string{"http://" + entry.Admin, "http://" + entry.Ops}
			if s.takes != nil {
				<-s.takes
			}
		}
	}
	return len(lines), nil
}

func (s *signals) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.String()
}

const token = "a bootstrap token for tests"

func testConfig(postgresURL, natsURL string) config.Config {
	key := settings.Secret(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	cfg := config.Default()
	cfg.Admin.Listen, cfg.Ops.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Admin.BootstrapToken = token
	cfg.Postgres.URL = settings.Secret(postgresURL)
	cfg.NATS.URL, cfg.NATS.Replicas = natsURL, 1
	cfg.Secrets.Pepper, cfg.Secrets.FleetKey, cfg.Secrets.MasterKey = "0123456789abcdef", key, key
	return cfg
}

// running is a control plane under test.
type running struct {
	admin, ops string
	log        *signals
	stop       context.CancelFunc
	ended      chan error
}

func start(t *testing.T, cfg config.Config) *running {
	t.Helper()
	return startWith(t, cfg, &signals{runs: make(chan [2]string, 1)})
}

func startWith(t *testing.T, cfg config.Config, log *signals) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{log: log, stop: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- Run(ctx, cfg, r.log, "test") }()
	select {
	case addresses := <-r.log.runs:
		r.admin, r.ops = addresses[0], addresses[1]
	case err := <-r.ended:
		t.Fatalf("it did not start: %v", err)
	}
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Errorf("it ended with %v; want a clean stop\n%s", err, r.log.text())
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func TestRunServesUntilStopped(t *testing.T) {
	broker := natstest.New(t)
	cfg := testConfig(pgtest.URL(t), broker.URL())
	r := start(t, cfg)
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if got := status(t, r.ops+path); got != http.StatusOK {
			t.Errorf("%s: %d; want 200", path, got)
		}
	}
	api, err := adminclient.New(r.admin, token)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := api.ApplyCatalog(t.Context(), nil, adminclient.CatalogDocument{}, adminclient.WithBody("application/yaml",
		[]byte("currency: EUR\nmodels:\n- {id: m, type: text, price: {input: 1, output: 2}}\n")))
	if err != nil {
		t.Fatalf("apply catalog: %s, %v", applied.Body, err)
	}
	if rev := publishedRev(t, broker.URL(), applied.Value.Revision); rev != applied.Value.Revision {
		t.Errorf("the bucket is at revision %d; want %d", rev, applied.Value.Revision)
	}

	// A second replica works on the same database, and stops without affecting the first.
	second := start(t, cfg)
	second.end(t)

	account, err := api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Example"})
	if err != nil {
		t.Fatalf("create account: %v", err)
	}
	key, err := api.CreateKey(t.Context(), account.Value.ID, nil, adminclient.KeyCreate{Name: "k"})
	if err != nil {
		t.Fatalf("create key: %v", err)
	}
	revoked, err := api.RevokeKey(t.Context(), key.Value.ID, nil)
	if err != nil {
		t.Fatalf("revoke with no proxy: %s, %v", revoked, err)
	}
	r.end(t)
	if strings.Contains(r.log.text(), key.Value.Secret) || strings.Contains(r.log.text(), token) {
		t.Error("the log shows a secret")
	}
}

// A pipe that nobody reads, such as that of a stopped log collector, stops no request.
func TestStalledLogStopsNothing(t *testing.T) {
	broker := natstest.New(t)
	takes := make(chan struct{})
	r := startWith(t, testConfig(pgtest.URL(t), broker.URL()), &signals{runs: make(chan [2]string, 1), takes: takes})
	for _, level := range []string{"debug", "info", "debug", "info"} { // each logs a line
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.ops+"/loglevel", strings.NewReader(level))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	close(takes)
	r.end(t)
	if n := strings.Count(r.log.text(), "log level changed"); n != 4 {
		t.Errorf("%d lines were written after the log went on; want 4", n)
	}
}

// publishedRev waits until the bucket's head has a revision.
func publishedRev(t *testing.T, url string, want int64) int64 {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := natstest.JetStream(t, nc)
	bucket, err := js.KeyValue(t.Context(), subject.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := bucket.Watch(t.Context(), subject.CatalogHead)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Stop() }()
	for entry := range watch.Updates() {
		var head catalogkv.Head
		if entry != nil && json.Unmarshal(entry.Value(), &head) == nil && head.Rev >= want {
			return head.Rev
		}
	}
	return 0
}

func TestReadinessFollowsNATS(t *testing.T) {
	broker := natstest.New(t)
	r := start(t, testConfig(pgtest.URL(t), broker.URL()))
	defer r.end(t)
	broker.Stop()
	// The NATS client notices the broken connection after a while: the first probes may still report ready.
	await.Until(t, "the end of readiness", func() bool { return status(t, r.ops+"/readyz") == http.StatusServiceUnavailable })
	if got := status(t, r.ops+"/livez"); got != http.StatusOK {
		t.Errorf("/livez without the bus: %d; want 200", got)
	}
	broker.Start()
	await.Until(t, "readiness", func() bool { return status(t, r.ops+"/readyz") == http.StatusOK })
}

// An open job whose message to the pollers is lost is queued again, for example one that was restored.
func TestOpenVideoJobIsQueuedAgain(t *testing.T) {
	broker, url := natstest.New(t), pgtest.URL(t)
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	account, key, job := ident.New(), ident.New(), ident.New()
	for _, statement := range []string{
		`insert into accounts (id, name, max_concurrent_requests, revision) values ('%[1]x', 'customer', 5, 1)`,
		`insert into api_keys (id, account_id, name, lookup_hash, revision) values ('%[2]x', '%[1]x', 'key', sha256('key'), 1)`,
		`insert into video_jobs (id, account_id, key_id, request_id, status, expected_cost, record, updated_at)
			values ('%[3]x', '%[1]x', '%[2]x', '%[3]x', 'queued', 0, '{}', now() - interval '1 hour')`,
	} {
		if _, err := db.Exec(t.Context(), fmt.Sprintf(statement, account, key, job)); err != nil {
			t.Fatal(err)
		}
	}
	listener := broker.Connect()
	polls, err := listener.SubscribeSync(subject.VideoPollAll)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, listener)
	r := start(t, testConfig(url, broker.URL()))
	defer r.end(t)
	m, err := polls.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := event.VideoPoll{V: event.Version, ID: ident.Video.Format(job), AccountID: ident.Account.Format(account)}
	var got event.VideoPoll
	if err := json.Unmarshal(m.Data, &got); err != nil || got != want {
		t.Errorf("got %s, %v; want %+v", m.Data, err, want)
	}
}

func TestRunReportsStartErrors(t *testing.T) {
	broker := natstest.New(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	migrated := pgtest.URL(t)
	for _, test := range []struct {
		name string
		cfg  func() config.Config
		want string
	}{
		{"a schema that is too old", func() config.Config { return testConfig(pgtest.Empty(t), broker.URL()) }, postgres.ErrNotMigrated.Error()},
		{"no database", func() config.Config { return testConfig("postgres://127.0.0.1:1/x", broker.URL()) }, "reach the database"},
		{"no bus", func() config.Config { return testConfig(migrated, "nats://127.0.0.1:1") }, "connect"},
		{"an address in use", func() config.Config {
			cfg := testConfig(migrated, broker.URL())
			cfg.Admin.Listen = taken.Addr().String()
			return cfg
		}, "admin: listen"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Run(t.Context(), test.cfg(), io.Discard, "test")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want an error about %q", err, test.want)
			}
		})
	}
}
