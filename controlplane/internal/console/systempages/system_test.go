package systempages_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestEveryPageOfTheSystemIsShown(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	_, err := w.DB.Pool().Exec(t.Context(), `insert into proxy_sessions (name, boot_id, build, window_ms, valid_until, applied_revision, spool_capacity, spool_used, refused_credentials)
		select 'proxy-7', 'b-7', 'v1', 20000, now() + interval '20 s', 0, 1000, 250, jsonb_build_array(jsonb_build_object('credential', id, 'reason', 'key_rejected'))
		from provider_credentials where name = 'main'`)
	servertest.Check(t, err)
	_, err = w.DB.Pool().Exec(t.Context(), `update provider_credentials set refused_at = now(), refused_reason = 'key_rejected' where name = 'main'`)
	servertest.Check(t, err)
	hook := w.Webhook()
	id, _ := w.NewToken(adminclient.ScopeRead)
	b := w.SignedIn(servertest.BootstrapToken)
	for path, want := range map[string]string{
		"/console/proxies": "key rejected", "/console/proxies/1": "25 % used", "/console/diagnosis": "As text, for a ticket", "/console/video-jobs": "No video job matches",
		"/console/video-jobs?state=stuck": "No video job matches", "/console/webhooks": "receiver.example", "/console/webhooks/" + hook.ID: "No delivery matches",
		"/console/webhooks/new": "operator.usage_quarantined", "/console/webhooks/" + hook.ID + "/edit": "Save", "/console/webhooks/" + hook.ID + "/delete": "confirm",
		"/console/webhooks/" + hook.ID + "/secret": "86400", "/console/webhooks/" + hook.ID + "/test": "webhook.test", "/console/webhooks/" + hook.ID + "/redeliver": "since",
		"/console/audit": "webhook.create", "/console/audit?action=token": "token.create", "/console/access": "this one", "/console/events": "No event matches", "/console/events?type=key.revoked": "No event matches", "/console/access/new": "keys.reveal",
		"/console/access/" + id + "/revoke": "somebody", "/console/secrets": "No rotation has run", "/console/secrets/master-key/rotate": "m1", "/console/secrets/pepper/rotate": "pepper",
		"/console/archive": "No month is closed yet", "/console/archive/2026-01/exported": "2026-01", "/console/settings": "USD", "/console/settings/edit": "Save",
	} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: got %d without %q: %s", path, answer.StatusCode, want, page)
		}
	}
	for _, path := range []string{"/console/proxies/99", "/console/webhooks/whk_none", "/console/deliveries/none", "/console/video-jobs/none", "/console/access/none/revoke"} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, page)
		}
	}
}

// Whoever issues a token goes by these words.
func TestFormForTokensSaysWhatTheScopeOperatorAllows(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/access/new")
	if !strings.Contains(page, "operator: everything, also credits and secrets of keys") {
		t.Errorf("got %s", page)
	}
	_, token := w.NewToken(adminclient.ScopeOperator)
	operator, err := adminclient.New(w.URL, token)
	servertest.Check(t, err)
	account, err := operator.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "n"})
	servertest.Check(t, err)
	_, err = operator.CreateCredit(t.Context(), account.Value.ID, nil, adminclient.CreditCreate{
		Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r",
	})
	servertest.Check(t, err)
}

func TestTokenIsShownOnceAndRevokedByItsName(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	values := []string{"name", "watcher", "scopes", "observe", "idempotency_key", "k1", "step", "do"}
	answer, page := b.Post("/console/access/new", values...)
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "shown once") {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	secret := hiddenIn(t, page, `data-copy="`)
	if answer, page := b.Post("/console/access/new", values...); answer.StatusCode != http.StatusSeeOther || strings.Contains(page, secret) {
		t.Errorf("the form sent twice: got %d %s", answer.StatusCode, page)
	}
	watcher, err := adminclient.New(w.URL, secret)
	servertest.Check(t, err)
	me, err := watcher.GetIdentity(t.Context())
	servertest.Check(t, err)
	list, err := w.API.ListTokens(t.Context(), nil)
	servertest.Check(t, err)
	if len(list.Value.Data) != 1 || !strings.HasPrefix(me.Value.Name, "watcher ") {
		t.Fatalf("got %d tokens and the name %s", len(list.Value.Data), me.Value.Name)
	}
	path := "/console/access/" + list.Value.Data[0].ID + "/revoke"
	if answer, page := b.Post(path, "step", "do", "confirmation", "somebody else"); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("another name: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Post(path, "step", "do", "confirmation", "watcher"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
	if _, err := watcher.GetIdentity(t.Context()); err == nil {
		t.Error("the token still works")
	}
}

// hiddenIn returns the text between a mark and the next quotation mark.
func hiddenIn(t *testing.T, page, mark string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, mark)
	text, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		t.Fatalf("the page has no %s: %s", mark, page)
	}
	return text
}

func TestWebhookIsManaged(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	answer, page := b.Post("/console/webhooks/new", "url", "http://receiver.example", "enabled", "yes", "step", "do")
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "field-error") {
		t.Errorf("an address without TLS: got %d %s", answer.StatusCode, page)
	}
	answer, page = b.Post("/console/webhooks/new", "url", "https://receiver.example/a", "event_types", "key.revoked", "step", "do", "idempotency_key", "k1")
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "whsec_") {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	list, err := w.API.ListWebhooks(t.Context(), nil)
	servertest.Check(t, err)
	hook := list.Value.Data[0]
	if hook.Enabled || len(hook.EventTypes) != 1 {
		t.Errorf("got %+v", hook)
	}
	path := "/console/webhooks/" + hook.ID
	_, page = b.Get(path + "/edit")
	answer, page = b.Post(path+"/edit", "url", "https://receiver.example/b", "enabled", "yes", "step", "do", "if_match", consoletest.Hidden(t, page, "if_match"))
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	if answer, page = b.Post(path+"/test", "step", "do", "idempotency_key", "k2"); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	// the control plane creates and attempts deliveries in the background
	_, err = w.DB.Pool().Exec(t.Context(), `with sent as (update webhook_events set body = '{"type": "webhook.test"}' returning id, endpoint_id),
		delivery as (insert into webhook_deliveries (id, event_id, endpoint_id, state, attempts) select gen_delivery_id(), id, endpoint_id, 'failed', 1 from sent returning id)
		insert into webhook_attempts (delivery_id, number, started_at, status, latency_ms, error, excerpt) select id, 1, now(), 502, 84, 'status', 'Bad <gateway>' from delivery`)
	servertest.Check(t, err)
	sent, err := w.API.ListDeliveries(t.Context(), hook.ID, nil)
	servertest.Check(t, err)
	if len(sent.Value.Data) != 1 {
		t.Fatalf("got %d deliveries; want that of the test event", len(sent.Value.Data))
	}
	if answer, page = b.Get("/console/deliveries/" + sent.Value.Data[0].ID); answer.StatusCode != http.StatusOK || !strings.Contains(page, "Bad &lt;gateway&gt;") {
		t.Errorf("the delivery: got %d %s", answer.StatusCode, page)
	}
	// Only a cause that the status does not tell is shown beside it.
	if cells := consoletest.Texts(page, `(?s)<td data-label="Answer">.*?</td>`); !slices.Equal(cells, []string{"502 Bad &lt;gateway&gt;"}) {
		t.Errorf("the attempts: got %q", cells)
	}
	if answer, page = b.Post("/console/deliveries/"+sent.Value.Data[0].ID+"/redeliver", "step", "do", "idempotency_key", "k3"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("send the delivery again: got %d %s", answer.StatusCode, page)
	}
	if answer, page = b.Post(path+"/delete", "step", "do", "confirmation", "https://receiver.example/b"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
}

func TestThoseWhoObserveSeeNoControls(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	hook := w.Webhook()
	_, token := w.NewToken(adminclient.ScopeObserve)
	b := w.SignedIn(token)
	for _, path := range []string{"/console/webhooks", "/console/webhooks/" + hook.ID, "/console/access", "/console/secrets", "/console/settings", "/console/archive", "/console/proxies"} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK || strings.Contains(page, `class="button danger`) || strings.Contains(page, "/new") || strings.Contains(page, "/rotate") {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, page)
		}
	}
	for _, path := range []string{"/console/access/new", "/console/webhooks/" + hook.ID + "/delete", "/console/secrets/pepper/rotate", "/console/settings/edit"} {
		if answer, page := b.Post(path, "step", "do"); answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, page)
		}
	}
}

func TestSessionOfAnotherPersonIsEnded(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, token := w.NewToken(adminclient.ScopeRead)
	other, b := w.SignedIn(token), w.SignedIn(servertest.BootstrapToken)
	list, err := w.API.ListConsoleSessions(t.Context(), nil)
	servertest.Check(t, err)
	for _, s := range list.Value.Data {
		if !strings.HasPrefix(s.Name, "somebody") {
			continue
		}
		path := "/console/access/sessions/" + s.ID + "/end"
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK {
			t.Errorf("got %d %s", answer.StatusCode, page)
		}
		if answer, page := b.Post(path, "step", "do"); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("got %d %s", answer.StatusCode, page)
		}
	}
	if answer, _ := other.Get("/console/accounts"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("after its end the session gets %d", answer.StatusCode)
	}
	if answer, _ := b.Get("/console/accounts"); answer.StatusCode != http.StatusOK {
		t.Errorf("the own session gets %d", answer.StatusCode)
	}
}

// Pages name accounts and keys where the API has ids.
func TestEventsAndAuditHaveNames(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Northwind Robotics")
	// The service that writes the bodies of events does not run here.
	_, err := w.DB.Pool().Exec(t.Context(), `update webhook_events set body = jsonb_build_object(
		'id', 'evt_1', 'type', type, 'timestamp', now(), 'data', jsonb_build_object('account_id', $1::text))::text::bytea`, a.ID)
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	for path, name := range map[string]string{
		"/console/events": `<a href="/console/accounts/` + a.ID + `">Northwind Robotics</a>`,
		"/console/audit":  `<a href="/console/audit?object=` + a.ID + `">Northwind Robotics <code>`,
	} {
		if _, page := b.Get(path); !strings.Contains(page, name) {
			t.Errorf("%s does not have %s: %s", path, name, page)
		}
	}
}

// An installation without a name is not called by that of the product twice.
func TestPagesHaveTheNameOfTheInstallationIfItHasOne(t *testing.T) {
	t.Parallel()
	for environment, want := range map[string]string{
		"":           "<title>Overview · model gateway</title>",
		"production": "<title>Overview · production · model gateway</title>",
	} {
		_, page := consoletest.StartAs(t, environment).SignedIn(servertest.BootstrapToken).Get("/console/")
		if pill := strings.Contains(page, `<span class="environment">`); !strings.Contains(page, want) || pill != (environment != "") {
			t.Errorf("%q: got %s", environment, page)
		}
	}
}
