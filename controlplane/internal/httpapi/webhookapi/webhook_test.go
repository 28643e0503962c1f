package webhookapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/webhook"
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	b := servertest.Start(t)
	once := &adminclient.CreateWebhookParams{IdempotencyKey: new("make it once")}
	wanted := adminclient.WebhookCreate{
		URL: "https://cabinet.example.com/hooks", Description: new("the cabinet"), EventTypes: []adminclient.EventType{adminclient.EventTypeAccountLowBalance},
	}
	made, err := servertest.Answered(b.API.CreateWebhook(t.Context(), once, wanted))
	servertest.Check(t, err)
	again, err := servertest.Answered(b.API.CreateWebhook(t.Context(), once, wanted))
	servertest.Check(t, err)
	if made.StatusCode != http.StatusCreated || again.StatusCode != http.StatusCreated || made.Value.Secret != again.Value.Secret {
		t.Fatalf("create: %s, then %s", made.Body, again.Body)
	}
	if _, err := signature.ParseSecret(made.Value.Secret); err != nil {
		t.Error(err)
	}
	id := made.Value.Webhook.ID
	got, err := servertest.Answered(b.API.GetWebhook(t.Context(), id))
	servertest.Check(t, err)
	if diff := cmp.Diff(&made.Value.Webhook, got.Value); diff != "" || !got.Value.Enabled {
		t.Errorf("get (-made +got):\n%s", diff)
	}
	changed, err := servertest.Answered(b.API.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{Enabled: new(false), EventTypes: &[]adminclient.EventType{}}))
	servertest.Check(t, err)
	if changed.StatusCode != http.StatusOK || changed.Value.Enabled || len(changed.Value.EventTypes) != 0 {
		t.Errorf("update: %s", changed.Body)
	}
	rotated, err := servertest.Answered(b.API.RotateWebhookSecret(t.Context(), id, nil, adminclient.WebhookRotation{OverlapSeconds: 60}))
	servertest.Check(t, err)
	if rotated.StatusCode != http.StatusOK || rotated.Value.Secret == made.Value.Secret {
		t.Errorf("rotate: %s", rotated.Body)
	}
	listed, err := servertest.Answered(b.API.ListWebhooks(t.Context(), nil))
	servertest.Check(t, err)
	if len(listed.Value.Data) != 1 || strings.Contains(string(listed.Body), "whsec_") {
		t.Errorf("list: %s", listed.Body)
	}
	deliveries, err := servertest.Answered(b.API.ListDeliveries(t.Context(), id, nil))
	servertest.Check(t, err)
	if deliveries.StatusCode != http.StatusOK || len(deliveries.Value.Data) != 0 {
		t.Errorf("deliveries: %s", deliveries.Body)
	}
	if r, err := servertest.Answered(b.API.DeleteWebhook(t.Context(), id)); err != nil || r.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %s, %v", r.Body, err)
	}
	gone, err := servertest.Answered(b.API.GetWebhook(t.Context(), id))
	servertest.Check(t, err)
	servertest.Problem(t, gone.Problem, http.StatusNotFound, "not_found")
	var actions []string
	log, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Object: &id}))
	servertest.Check(t, err)
	for _, e := range log.Value.Data {
		actions = append(actions, e.Action)
	}
	if diff := cmp.Diff([]string{"webhook.delete", "webhook.rotate_secret", "webhook.update", "webhook.create"}, actions); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
	if strings.Contains(string(log.Body), "whsec_") {
		t.Error("the audit log shows a secret")
	}
}

// A portal needs no token of the operator: it grants models and has webhooks for its customers' events. Events of the operator are
// none of its business.
func TestCabinetManagesModelsAndItsOwnWebhooks(t *testing.T) {
	t.Parallel()
	b := servertest.Start(t)
	cabinet := b.As(b.Token(adminclient.ScopeCabinet))
	customers := []adminclient.EventType{adminclient.EventTypeAccountLowBalance, adminclient.EventTypeKeyRevoked}
	create := func(types []adminclient.EventType) adminclient.WebhookCreate {
		return adminclient.WebhookCreate{URL: "https://cabinet.example.com/hooks", EventTypes: types}
	}
	for name, types := range map[string][]adminclient.EventType{
		"every type": nil, "one of the operator": append(customers, adminclient.EventTypeOperatorUsageQuarantined),
	} {
		r, err := servertest.Answered(cabinet.CreateWebhook(t.Context(), nil, create(types)))
		servertest.Check(t, err)
		t.Log(name)
		servertest.Problem(t, r.Problem, http.StatusForbidden, "insufficient_scope")
	}
	own, err := servertest.Answered(cabinet.CreateWebhook(t.Context(), nil, create(customers)))
	servertest.Check(t, err)
	if own.StatusCode != http.StatusCreated {
		t.Fatalf("create: %s", own.Body)
	}
	operators, err := servertest.Answered(b.API.CreateWebhook(t.Context(), nil, create(nil)))
	servertest.Check(t, err)
	id := operators.Value.Webhook.ID
	patched, err := servertest.Answered(cabinet.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{EventTypes: &customers}))
	servertest.Check(t, err)
	servertest.Problem(t, patched.Problem, http.StatusForbidden, "insufficient_scope")
	rotated, err := servertest.Answered(cabinet.RotateWebhookSecret(t.Context(), id, nil, adminclient.WebhookRotation{}))
	servertest.Check(t, err)
	servertest.Problem(t, rotated.Problem, http.StatusForbidden, "insufficient_scope")
	tested, err := servertest.Answered(cabinet.TestWebhook(t.Context(), id, nil))
	servertest.Check(t, err)
	servertest.Problem(t, tested.Problem, http.StatusForbidden, "insufficient_scope")
	deleted, err := servertest.Answered(cabinet.DeleteWebhook(t.Context(), id))
	servertest.Check(t, err)
	servertest.Problem(t, deleted.Problem, http.StatusForbidden, "insufficient_scope")

	id = own.Value.Webhook.ID
	patched, err = servertest.Answered(cabinet.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{EventTypes: &[]adminclient.EventType{}}))
	servertest.Check(t, err)
	servertest.Problem(t, patched.Problem, http.StatusForbidden, "insufficient_scope")
	patched, err = servertest.Answered(cabinet.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{Enabled: new(false)}))
	servertest.Check(t, err)
	if patched.StatusCode != http.StatusOK || patched.Value.Enabled {
		t.Errorf("update: %s", patched.Body)
	}
	if r, err := servertest.Answered(cabinet.DeleteWebhook(t.Context(), id)); err != nil || r.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %s, %v", r.Body, err)
	}
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	b := servertest.Start(t)
	made, err := servertest.Answered(b.API.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://cabinet.example.com/"}))
	servertest.Check(t, err)
	id := made.Value.Webhook.ID
	sent, err := servertest.Answered(b.API.TestWebhook(t.Context(), id, nil))
	servertest.Check(t, err)
	if _, err := b.Hooks.FanOut(t.Context(), 10, (*webhook.Event).Body); err != nil {
		t.Fatal(err)
	}
	listed, err := servertest.Answered(b.API.ListDeliveries(t.Context(), id, &adminclient.ListDeliveriesParams{State: new(adminclient.DeliveryStatePending)}))
	servertest.Check(t, err)
	if len(listed.Value.Data) != 1 || listed.Value.Data[0].EventID != sent.Value.EventID || listed.Value.Data[0].LastAttempt != nil {
		t.Fatalf("pending: %s", listed.Body)
	}
	delivery := listed.Value.Data[0].ID
	claims, err := b.Hooks.Claim(t.Context(), 1, 1, time.Minute)
	servertest.Check(t, err)
	servertest.Check(t, b.Hooks.Conclude(t.Context(), &webhook.Outcome{
		Claim: &claims[0], State: webhook.Failed,
		Attempt: webhook.Attempt{At: time.Now(), Status: 404, Latency: 1500 * time.Millisecond, Error: webhook.Refused, Excerpt: "no such page"},
	}))
	detail, err := servertest.Answered(b.API.GetDelivery(t.Context(), delivery))
	servertest.Check(t, err)
	if d := detail.Value; d == nil || d.Delivery.State != adminclient.DeliveryStateFailed || len(d.Attempts) != 1 || *d.Attempts[0].Status != 404 ||
		d.Event.ID != sent.Value.EventID || d.Event.Type != "webhook.test" || d.Attempts[0].LatencyMS != 1500 || *d.Attempts[0].Error != "status" || *d.Attempts[0].Excerpt != "no such page" {
		t.Errorf("delivery: %s", detail.Body)
	}
	many, err := servertest.Answered(b.API.RedeliverFailed(t.Context(), id, nil, adminclient.Redelivery{Since: time.Now().Add(-time.Minute)}))
	servertest.Check(t, err)
	one, err := servertest.Answered(b.API.Redeliver(t.Context(), delivery, nil))
	servertest.Check(t, err)
	if many.StatusCode != http.StatusOK || many.Value.Deliveries != 1 || one.StatusCode != http.StatusOK || one.Value.State != adminclient.DeliveryStatePending {
		t.Errorf("redeliver: %s, then %s", many.Body, one.Body)
	}
	missing, err := servertest.Answered(b.API.Redeliver(t.Context(), "dlv_00000000000070008000000000000000", nil))
	servertest.Check(t, err)
	servertest.Problem(t, missing.Problem, http.StatusNotFound, "not_found")
}

func TestInvalidWebhooksAreRejected(t *testing.T) {
	t.Parallel()
	b := servertest.Start(t)
	for name, url := range map[string]string{
		"no TLS": "http://example.com/", "no host": "https:///x", "no URL": "%", "relative": "/x", "password": "https://u:p@example.com/",
		"fragment": "https://example.com/#x", "other scheme": "file:///etc/passwd", "opaque": "https:example.com", "too long": "https://example.com/" + strings.Repeat("x", 2000),
	} {
		r, err := servertest.Answered(b.API.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: url}))
		servertest.Check(t, err)
		if r.Problem == nil || r.StatusCode != http.StatusBadRequest || r.Problem.Errors[0].Field != "url" {
			t.Errorf("%s: got %s; want a field error of url", name, r.Body)
		}
	}
	faulty, err := servertest.Answered(b.API.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{
		URL: "https://example.com/", EventTypes: []adminclient.EventType{"account.low_balance", "account.low_balance", "nothing"},
	}))
	servertest.Check(t, err)
	if p := faulty.Problem; p == nil || len(p.Errors) != 2 || p.Errors[0].Field != "event_types[1]" || p.Errors[1].Field != "event_types[2]" {
		t.Errorf("types: %s", faulty.Body)
	}
	made, err := servertest.Answered(b.API.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://example.com/"}))
	servertest.Check(t, err)
	// 2^64 nanoseconds are 18446744073.7 s: a little more would be a fraction of a second.
	for _, seconds := range []int{1 << 40, 18_446_744_074, -1} {
		long, err := servertest.Answered(b.API.RotateWebhookSecret(t.Context(), made.Value.Webhook.ID, nil, adminclient.WebhookRotation{OverlapSeconds: seconds}))
		servertest.Check(t, err)
		servertest.Problem(t, long.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	b := servertest.Start(t)
	account := b.Account(5)
	read := func() *adminclient.Alerts {
		t.Helper()
		r, err := servertest.Answered(b.API.GetAlerts(t.Context(), account.ID))
		servertest.Check(t, err)
		return r.Value
	}
	if diff := cmp.Diff(&adminclient.Alerts{SpendLimitPercent: 80}, read()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	wanted := adminclient.Alerts{LowBalance: new("5.00"), SpendLimitPercent: 0}
	if r, err := servertest.Answered(b.API.SetAlerts(t.Context(), account.ID, wanted)); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("set: %s, %v", r.Body, err)
	}
	if diff := cmp.Diff(&wanted, read()); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	for _, faulty := range []adminclient.Alerts{{LowBalance: new("0")}, {LowBalance: new("-1")}, {LowBalance: new("x")}, {SpendLimitPercent: 101}, {SpendLimitPercent: -1}} {
		r, err := servertest.Answered(b.API.SetAlerts(t.Context(), account.ID, faulty))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
	missing, err := servertest.Answered(b.API.SetAlerts(t.Context(), "acc_00000000000070008000000000000000", wanted))
	servertest.Check(t, err)
	servertest.Problem(t, missing.Problem, http.StatusNotFound, "not_found")
}
