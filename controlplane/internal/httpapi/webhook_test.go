package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/controlplane/internal/webhook"
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	once := &adminclient.CreateWebhookParams{IdempotencyKey: new("make it once")}
	wanted := adminclient.WebhookCreate{
		URL: "https://cabinet.example.com/hooks", Description: new("the cabinet"), EventTypes: []adminclient.EventType{adminclient.EventTypeAccountLowBalance},
	}
	made, err := answered(b.api.CreateWebhook(t.Context(), once, wanted))
	check(t, err)
	again, err := answered(b.api.CreateWebhook(t.Context(), once, wanted))
	check(t, err)
	if made.StatusCode != http.StatusCreated || again.StatusCode != http.StatusCreated || made.Value.Secret != again.Value.Secret {
		t.Fatalf("create: %s, then %s", made.Body, again.Body)
	}
	if _, err := signature.ParseSecret(made.Value.Secret); err != nil {
		t.Error(err)
	}
	id := made.Value.Webhook.ID
	got, err := answered(b.api.GetWebhook(t.Context(), id))
	check(t, err)
	if diff := cmp.Diff(&made.Value.Webhook, got.Value); diff != "" || !got.Value.Enabled {
		t.Errorf("get (-made +got):\n%s", diff)
	}
	changed, err := answered(b.api.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{Enabled: new(false), EventTypes: &[]adminclient.EventType{}}))
	check(t, err)
	if changed.StatusCode != http.StatusOK || changed.Value.Enabled || len(changed.Value.EventTypes) != 0 {
		t.Errorf("update: %s", changed.Body)
	}
	rotated, err := answered(b.api.RotateWebhookSecret(t.Context(), id, nil, adminclient.WebhookRotation{OverlapSeconds: 60}))
	check(t, err)
	if rotated.StatusCode != http.StatusOK || rotated.Value.Secret == made.Value.Secret {
		t.Errorf("rotate: %s", rotated.Body)
	}
	listed, err := answered(b.api.ListWebhooks(t.Context(), nil))
	check(t, err)
	if len(listed.Value.Data) != 1 || strings.Contains(string(listed.Body), "whsec_") {
		t.Errorf("list: %s", listed.Body)
	}
	deliveries, err := answered(b.api.ListDeliveries(t.Context(), id, nil))
	check(t, err)
	if deliveries.StatusCode != http.StatusOK || len(deliveries.Value.Data) != 0 {
		t.Errorf("deliveries: %s", deliveries.Body)
	}
	if r, err := answered(b.api.DeleteWebhook(t.Context(), id)); err != nil || r.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %s, %v", r.Body, err)
	}
	gone, err := answered(b.api.GetWebhook(t.Context(), id))
	check(t, err)
	problem(t, gone.Problem, http.StatusNotFound, "not_found")
	var actions []string
	log, err := answered(b.api.ListAudit(t.Context(), &adminclient.ListAuditParams{Object: &id}))
	check(t, err)
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
	b := setup(t)
	cabinet := b.as(b.token(adminclient.ScopeCabinet))
	customers := []adminclient.EventType{adminclient.EventTypeAccountLowBalance, adminclient.EventTypeKeyRevoked}
	create := func(types []adminclient.EventType) adminclient.WebhookCreate {
		return adminclient.WebhookCreate{URL: "https://cabinet.example.com/hooks", EventTypes: types}
	}
	for name, types := range map[string][]adminclient.EventType{
		"every type": nil, "one of the operator": append(customers, adminclient.EventTypeOperatorUsageQuarantined),
	} {
		r, err := answered(cabinet.CreateWebhook(t.Context(), nil, create(types)))
		check(t, err)
		t.Log(name)
		problem(t, r.Problem, http.StatusForbidden, "insufficient_scope")
	}
	own, err := answered(cabinet.CreateWebhook(t.Context(), nil, create(customers)))
	check(t, err)
	if own.StatusCode != http.StatusCreated {
		t.Fatalf("create: %s", own.Body)
	}
	operators, err := answered(b.api.CreateWebhook(t.Context(), nil, create(nil)))
	check(t, err)
	id := operators.Value.Webhook.ID
	patched, err := answered(cabinet.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{EventTypes: &customers}))
	check(t, err)
	problem(t, patched.Problem, http.StatusForbidden, "insufficient_scope")
	rotated, err := answered(cabinet.RotateWebhookSecret(t.Context(), id, nil, adminclient.WebhookRotation{}))
	check(t, err)
	problem(t, rotated.Problem, http.StatusForbidden, "insufficient_scope")
	tested, err := answered(cabinet.TestWebhook(t.Context(), id, nil))
	check(t, err)
	problem(t, tested.Problem, http.StatusForbidden, "insufficient_scope")
	deleted, err := answered(cabinet.DeleteWebhook(t.Context(), id))
	check(t, err)
	problem(t, deleted.Problem, http.StatusForbidden, "insufficient_scope")

	id = own.Value.Webhook.ID
	patched, err = answered(cabinet.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{EventTypes: &[]adminclient.EventType{}}))
	check(t, err)
	problem(t, patched.Problem, http.StatusForbidden, "insufficient_scope")
	patched, err = answered(cabinet.UpdateWebhook(t.Context(), id, nil, adminclient.WebhookPatch{Enabled: new(false)}))
	check(t, err)
	if patched.StatusCode != http.StatusOK || patched.Value.Enabled {
		t.Errorf("update: %s", patched.Body)
	}
	if r, err := answered(cabinet.DeleteWebhook(t.Context(), id)); err != nil || r.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %s, %v", r.Body, err)
	}
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := answered(b.api.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://cabinet.example.com/"}))
	check(t, err)
	id := made.Value.Webhook.ID
	sent, err := answered(b.api.TestWebhook(t.Context(), id, nil))
	check(t, err)
	if _, err := b.hooks.FanOut(t.Context(), 10, (*webhook.Event).Body); err != nil {
		t.Fatal(err)
	}
	listed, err := answered(b.api.ListDeliveries(t.Context(), id, &adminclient.ListDeliveriesParams{State: new(adminclient.DeliveryStatePending)}))
	check(t, err)
	if len(listed.Value.Data) != 1 || listed.Value.Data[0].EventID != sent.Value.EventID || listed.Value.Data[0].LastAttempt != nil {
		t.Fatalf("pending: %s", listed.Body)
	}
	delivery := listed.Value.Data[0].ID
	claims, err := b.hooks.Claim(t.Context(), 1, 1, time.Minute)
	check(t, err)
	check(t, b.hooks.Conclude(t.Context(), &webhook.Outcome{
		Claim: &claims[0], State: webhook.Failed,
		Attempt: webhook.Attempt{At: time.Now(), Status: 404, Latency: 1500 * time.Millisecond, Error: webhook.Refused, Excerpt: "no such page"},
	}))
	detail, err := answered(b.api.GetDelivery(t.Context(), delivery))
	check(t, err)
	if d := detail.Value; d == nil || d.Delivery.State != adminclient.DeliveryStateFailed || len(d.Attempts) != 1 || *d.Attempts[0].Status != 404 ||
		d.Event.ID != sent.Value.EventID || d.Event.Type != "webhook.test" || d.Attempts[0].LatencyMS != 1500 || *d.Attempts[0].Error != "status" || *d.Attempts[0].Excerpt != "no such page" {
		t.Errorf("delivery: %s", detail.Body)
	}
	many, err := answered(b.api.RedeliverFailed(t.Context(), id, nil, adminclient.Redelivery{Since: time.Now().Add(-time.Minute)}))
	check(t, err)
	one, err := answered(b.api.Redeliver(t.Context(), delivery, nil))
	check(t, err)
	if many.StatusCode != http.StatusOK || many.Value.Deliveries != 1 || one.StatusCode != http.StatusOK || one.Value.State != adminclient.DeliveryStatePending {
		t.Errorf("redeliver: %s, then %s", many.Body, one.Body)
	}
	missing, err := answered(b.api.Redeliver(t.Context(), "dlv_00000000000070008000000000000000", nil))
	check(t, err)
	problem(t, missing.Problem, http.StatusNotFound, "not_found")
}

func TestInvalidWebhooksAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, url := range map[string]string{
		"no TLS": "http://example.com/", "no host": "https:///x", "no URL": "%", "relative": "/x", "password": "https://u:p@example.com/",
		"fragment": "https://example.com/#x", "other scheme": "file:///etc/passwd", "opaque": "https:example.com", "too long": "https://example.com/" + strings.Repeat("x", 2000),
	} {
		r, err := answered(b.api.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: url}))
		check(t, err)
		if r.Problem == nil || r.StatusCode != http.StatusBadRequest || r.Problem.Errors[0].Field != "url" {
			t.Errorf("%s: got %s; want a field error of url", name, r.Body)
		}
	}
	faulty, err := answered(b.api.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{
		URL: "https://example.com/", EventTypes: []adminclient.EventType{"account.low_balance", "account.low_balance", "nothing"},
	}))
	check(t, err)
	if p := faulty.Problem; p == nil || len(p.Errors) != 2 || p.Errors[0].Field != "event_types[1]" || p.Errors[1].Field != "event_types[2]" {
		t.Errorf("types: %s", faulty.Body)
	}
	made, err := answered(b.api.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://example.com/"}))
	check(t, err)
	long, err := answered(b.api.RotateWebhookSecret(t.Context(), made.Value.Webhook.ID, nil, adminclient.WebhookRotation{OverlapSeconds: 1 << 40}))
	check(t, err)
	problem(t, long.Problem, http.StatusBadRequest, "invalid_input")
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	account := b.account(5)
	read := func() *adminclient.Alerts {
		t.Helper()
		r, err := answered(b.api.GetAlerts(t.Context(), account.ID))
		check(t, err)
		return r.Value
	}
	if diff := cmp.Diff(&adminclient.Alerts{SpendLimitPercent: 80}, read()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	wanted := adminclient.Alerts{LowBalance: new("5.00"), SpendLimitPercent: 0}
	if r, err := answered(b.api.SetAlerts(t.Context(), account.ID, wanted)); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("set: %s, %v", r.Body, err)
	}
	if diff := cmp.Diff(&wanted, read()); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	for _, faulty := range []adminclient.Alerts{{LowBalance: new("0")}, {LowBalance: new("-1")}, {LowBalance: new("x")}, {SpendLimitPercent: 101}, {SpendLimitPercent: -1}} {
		r, err := answered(b.api.SetAlerts(t.Context(), account.ID, faulty))
		check(t, err)
		problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
	missing, err := answered(b.api.SetAlerts(t.Context(), "acc_00000000000070008000000000000000", wanted))
	check(t, err)
	problem(t, missing.Problem, http.StatusNotFound, "not_found")
}
