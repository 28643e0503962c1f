package webhooksender_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/controlplane/internal/webhooksender"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/seal"
)

// receipt is a message with a valid signature.
type receipt struct{ id, kind string }

// receiver verifies messages and answers as the test wants.
type receiver struct {
	receipts chan receipt

	mu      sync.Mutex
	status  int
	secrets []signature.Secret
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) know(t *testing.T, texts ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = nil
	for _, text := range texts {
		s, err := signature.ParseSecret(text)
		check(t, err)
		r.secrets = append(r.secrets, s)
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	status := r.status
	id, err := signature.Verify(q.Header, body, time.Now(), r.secrets...)
	r.mu.Unlock()
	if err != nil {
		status = http.StatusUnauthorized
	}
	var event struct{ ID, Type string }
	if json.Unmarshal(body, &event) != nil || event.ID != id {
		status = http.StatusUnprocessableEntity
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "noted")
	if status != http.StatusUnauthorized {
		r.receipts <- receipt{id, event.Type}
	}
}

// world is a database with an endpoint and a receiver.
type world struct {
	t        *testing.T
	sql      *pgxpool.Pool
	store    *webhookstore.Store
	keys     *vault.Vault
	service  *webhook.Service
	receiver *receiver
	endpoint webhook.Endpoint
	secret   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, sql: pgtest.New(t), receiver: &receiver{receipts: make(chan receipt, 1000), status: http.StatusOK}}
	w.store = webhookstore.New(postgres.Wrap(w.sql))
	var err error
	w.keys, err = vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	check(t, err)
	w.service = webhook.NewService(webhook.Config{Store: w.store, Vault: w.keys, Insecure: true})
	server := httptest.NewServer(w.receiver)
	t.Cleanup(server.Close)
	w.endpoint, w.secret, err = w.service.Create(t.Context(), webhook.Endpoint{ID: webhook.ID(ident.New()), URL: server.URL, Enabled: true})
	check(t, err)
	w.receiver.know(t, w.secret)
	return w
}

// dispatcher starts the Dispatcher of a replica.
func (w *world) dispatcher() *webhook.Dispatcher {
	w.t.Helper()
	sender := webhooksender.New(webhooksender.Config{Allowed: loopback})
	w.t.Cleanup(sender.Close)
	d := webhook.NewDispatcher(webhook.DispatchConfig{
		Queue: w.store, Sender: sender, Vault: w.keys, Log: slog.New(slog.DiscardHandler), Every: 10 * time.Millisecond,
	}, prometheus.NewRegistry())
	d.Start(w.t.Context())
	w.t.Cleanup(d.Stop)
	return d
}

func (w *world) test() string {
	w.t.Helper()
	id, err := w.service.Test(w.t.Context(), w.endpoint.ID, ident.New())
	check(w.t, err)
	return id
}

// delivery waits until the only delivery satisfies a condition.
func (w *world) delivery(is func(*webhook.Delivery) bool) (only webhook.Delivery) {
	w.t.Helper()
	await.Until(w.t, "the state of the only delivery", func() bool {
		found, err := w.service.Deliveries(w.t.Context(), webhook.DeliveryQuery{EndpointID: w.endpoint.ID, Limit: 10})
		check(w.t, err)
		if len(found) == 1 {
			only = found[0]
		}
		return len(found) == 1 && is(&only)
	})
	return only
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Two replicas share the deliveries: without failures, every event arrives once, under its own id.
func TestReplicasDeliverEachEventOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for range 60 {
		want = append(want, w.test())
	}
	for range 2 {
		w.dispatcher()
	}
	var got []string
	for range want {
		got = append(got, (<-w.receiver.receipts).id)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d events arrived; want each of %d once", len(got), len(want))
	}
	await.Until(t, "the end of the backlog", func() bool {
		backlog, err := w.store.Backlog(t.Context())
		check(t, err)
		return backlog.Pending == 0
	})
	if len(w.receiver.receipts) != 0 {
		t.Errorf("%d arrived again", len(w.receiver.receipts))
	}
}

// A delivery that a crashed replica has claimed is delivered by another replica, under the same
// id. A late outcome of the first one is ignored.
func TestExpiredClaimIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.test()
	_, err := w.store.FanOut(t.Context(), 10, (*webhook.Event).Body)
	check(t, err)
	claims, err := w.store.Claim(t.Context(), 10, 10, time.Minute)
	check(t, err)
	if again, err := w.store.Claim(t.Context(), 10, 10, time.Minute); err != nil || len(claims) != 1 || len(again) != 0 {
		t.Fatalf("claimed %d, then %d, %v; want it once", len(claims), len(again), err)
	}
	_, err = w.sql.Exec(t.Context(), "update webhook_deliveries set claimed_until = clock_timestamp() - interval '1 second'")
	check(t, err)
	w.dispatcher()
	if got := <-w.receiver.receipts; got.id != id {
		t.Errorf("event %s arrived; want %s", got.id, id)
	}
	w.delivery(func(d *webhook.Delivery) bool { return d.State == webhook.Delivered })
	check(t, w.store.Conclude(t.Context(), &webhook.Outcome{
		Claim: &claims[0], State: webhook.Failed, Attempt: webhook.Attempt{At: time.Now(), Error: webhook.TimedOut},
	}))
	if d := w.delivery(func(*webhook.Delivery) bool { return true }); d.State != webhook.Delivered || d.Attempts != 1 {
		t.Errorf("the outcome of the first replica was stored: %+v", d)
	}
}

// A failed delivery is retried, and can be redelivered.
func TestFailedDeliveryIsRetriedAndRedelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.receiver.answer(http.StatusInternalServerError)
	w.dispatcher()
	id := w.test()
	<-w.receiver.receipts
	d := w.delivery(func(d *webhook.Delivery) bool { return d.Attempts == 1 })
	if d.State != webhook.Pending || d.Last == nil || d.Last.Status != 500 || d.Last.Error != webhook.Refused || d.Last.Excerpt != "noted" ||
		d.NextAttemptAt == nil || !d.NextAttemptAt.After(d.Last.At) {
		t.Errorf("after a refusal: %+v, last %+v", d, d.Last)
	}
	w.receiver.answer(http.StatusOK)
	_, err := w.service.Redeliver(t.Context(), d.ID)
	check(t, err)
	if got := <-w.receiver.receipts; got.id != id || got.kind != "webhook.test" {
		t.Errorf("redelivered %+v; want %s", got, id)
	}
	w.delivery(func(d *webhook.Delivery) bool { return d.State == webhook.Delivered && d.Attempts == 2 })
	if _, attempts, err := w.service.Delivery(t.Context(), d.ID); err != nil || len(attempts) != 2 || attempts[1].Error != "" {
		t.Errorf("attempts %+v, %v; want a refusal and a success", attempts, err)
	}
}

// After the last attempt a delivery fails for good, until failed deliveries are redelivered.
func TestDeliveryFailsAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.receiver.answer(http.StatusBadGateway)
	_, err := w.service.Test(t.Context(), w.endpoint.ID, ident.New())
	check(t, err)
	_, err = w.store.FanOut(t.Context(), 10, (*webhook.Event).Body)
	check(t, err)
	_, err = w.sql.Exec(t.Context(), "update webhook_deliveries set attempts_since_request = 12, attempts = 12")
	check(t, err)
	w.dispatcher()
	<-w.receiver.receipts
	if d := w.delivery(func(d *webhook.Delivery) bool { return d.Attempts == 13 }); d.State != webhook.Failed || d.EndedAt == nil || d.NextAttemptAt != nil {
		t.Errorf("after the last attempt: %+v", d)
	}
	w.receiver.answer(http.StatusOK)
	n, err := w.service.RedeliverFailed(t.Context(), w.endpoint.ID, time.Now().Add(-time.Hour))
	check(t, err)
	if n != 1 {
		t.Errorf("%d are delivered again; want 1", n)
	}
	<-w.receiver.receipts
	w.delivery(func(d *webhook.Delivery) bool { return d.State == webhook.Delivered })
}

// During the overlap of a rotation, both secrets sign.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher()
	operation := ident.New()
	newer, err := w.service.Rotate(t.Context(), w.endpoint.ID, operation, time.Hour)
	check(t, err)
	if again, err := w.service.Rotate(t.Context(), w.endpoint.ID, operation, time.Hour); err != nil || again != newer || newer == w.secret {
		t.Errorf("the same rotation again gave another secret, or the old one: %v", err)
	}
	for _, known := range []string{w.secret, newer} {
		w.receiver.know(t, known)
		w.test()
		<-w.receiver.receipts // only genuine ones arrive here
	}
	last, err := w.service.Rotate(t.Context(), w.endpoint.ID, ident.New(), 0)
	check(t, err)
	w.receiver.know(t, last)
	w.test()
	<-w.receiver.receipts
	if n := scalar[int](w, "select count(*) from webhook_secrets where expires_at is null or expires_at > now()"); n != 1 {
		t.Errorf("signed with %d secrets; want only the last", n)
	}
	if sealed := scalar[[]byte](w, "select string_agg(sealed, '') from webhook_secrets"); slices.Contains([]string{w.secret, newer, last}, string(sealed)) {
		t.Error("a secret is stored unencrypted")
	}
}

func scalar[T any](w *world, query string) T {
	w.t.Helper()
	var value T
	check(w.t, w.sql.QueryRow(w.t.Context(), query).Scan(&value))
	return value
}

// An endpoint that has failed for days, or answers 410 Gone, is disabled, and the audit log shows
// it. Pending deliveries continue when it is enabled again.
func TestFailingEndpointIsDisabled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		since  string
		want   string
	}{
		"failing": {http.StatusServiceUnavailable, "6 days", "the endpoint failed for 120h0m0s"},
		"gone":    {http.StatusGone, "0", "the endpoint answered 410 Gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.receiver.answer(test.status)
			_, err := w.sql.Exec(t.Context(), "update webhook_endpoints set failures = 1, failing_since = clock_timestamp() - $1::interval", test.since)
			check(t, err)
			w.test()
			w.dispatcher()
			<-w.receiver.receipts
			w.delivery(func(d *webhook.Delivery) bool { return d.Attempts == 1 })
			e, err := w.service.Get(t.Context(), w.endpoint.ID)
			check(t, err)
			if e.Enabled || e.DisabledReason != test.want {
				t.Errorf("enabled %v, reason %q; want it disabled because %s", e.Enabled, e.DisabledReason, test.want)
			}
			if backlog, err := w.store.Backlog(t.Context()); err != nil || backlog.Endpoints["failed"] != 1 || backlog.Endpoints["disabled"] != 0 {
				t.Errorf("the endpoints are %v, %v; want one failed", backlog.Endpoints, err)
			}
			if who := scalar[string](w, "select actor from audit_log where action = 'webhook.disable'"); who != "system" {
				t.Errorf("disabled by %q", who)
			}
			w.receiver.answer(http.StatusOK)
			_, err = w.sql.Exec(t.Context(), "update webhook_deliveries set next_attempt_at = clock_timestamp()")
			check(t, err)
			e, err = w.service.Patch(t.Context(), e.ID, webhook.Patch{Enabled: new(true)})
			check(t, err)
			if !e.Enabled || e.DisabledReason != "" || e.FailingSince != nil {
				t.Errorf("enabled again: %+v", e)
			}
			<-w.receiver.receipts
		})
	}
}

// Enabled endpoints get the event types that they subscribe to.
func TestEndpointsGetSubscribedEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	types := []webhook.Type{webhook.CheckFailed}
	_, err := w.service.Patch(t.Context(), w.endpoint.ID, webhook.Patch{EventTypes: &types})
	check(t, err)
	off, _, err := w.service.Create(t.Context(), webhook.Endpoint{ID: webhook.ID(ident.New()), URL: w.endpoint.URL})
	check(t, err)
	check(t, w.store.InsertEvent(t.Context(), webhook.QuarantineEvent(0, time.Now())))
	check(t, w.store.InsertEvent(t.Context(), webhook.CheckFailedEvent(nil, time.Now())))
	w.dispatcher()
	if got := <-w.receiver.receipts; got.kind != string(webhook.CheckFailed) {
		t.Errorf("got %s", got.kind)
	}
	await.Until(t, "the bodies of the events", func() bool { return scalar[int](w, "select count(*) from webhook_events where body is null") == 0 })
	if n := scalar[int](w, "select count(*) from webhook_deliveries"); n != 1 {
		t.Errorf("%d deliveries; want one", n)
	}
	check(t, w.service.Delete(t.Context(), off.ID))
	check(t, w.service.Delete(t.Context(), w.endpoint.ID))
	if n := scalar[int](w, "select count(*) from webhook_deliveries"); n != 0 {
		t.Errorf("%d deliveries are left of removed endpoints", n)
	}
}

// hanging is a sender that never finishes.
type hanging struct{ begun chan struct{} }

func (h hanging) Send(ctx context.Context, _ webhook.Message) webhook.Attempt {
	h.begun <- struct{}{}
	<-ctx.Done()
	return webhook.Attempt{Error: webhook.TimedOut}
}

// An attempt that a stopping replica cancels does not count as a failure.
func TestStopReleasesClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sender := hanging{make(chan struct{})}
	d := webhook.NewDispatcher(webhook.DispatchConfig{
		Queue: w.store, Sender: sender, Vault: w.keys, Log: slog.New(slog.DiscardHandler), Every: time.Millisecond,
	}, prometheus.NewRegistry())
	w.test()
	d.Start(t.Context())
	<-sender.begun
	d.Stop()
	w.dispatcher()
	<-w.receiver.receipts
	if d := w.delivery(func(d *webhook.Delivery) bool { return d.State == webhook.Delivered }); d.Attempts != 1 {
		t.Errorf("%d attempts; want one", d.Attempts)
	}
}
