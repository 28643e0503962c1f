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
		URL: "https://cabinet.example.com/hooks", Description: new("the cabinet"), EventTypes: []adminclient.EventType{adminclient.AccountLowBalance},
	}
	made, err := b.api.CreateWebhookWithResponse(t.Context(), once, wanted)
	check(t, err)
	again, err := b.api.CreateWebhookWithResponse(t.Context(), once, wanted)
	check(t, err)
	if made.JSON201 == nil || again.JSON201 == nil || made.JSON201.Secret != again.JSON201.Secret {
		t.Fatalf("create: %s, then %s", made.Body, again.Body)
	}
	if _, err := signature.ParseSecret(made.JSON201.Secret); err != nil {
		t.Error(err)
	}
	id := made.JSON201.Webhook.ID
	got, err := b.api.GetWebhookWithResponse(t.Context(), id)
	check(t, err)
	if diff := cmp.Diff(&made.JSON201.Webhook, got.JSON200); diff != "" || !got.JSON200.Enabled {
		t.Errorf("get (-made +got):\n%s", diff)
	}
	changed, err := b.api.UpdateWebhookWithResponse(t.Context(), id, nil, adminclient.WebhookPatch{Enabled: new(false), EventTypes: &[]adminclient.EventType{}})
	check(t, err)
	if changed.JSON200 == nil || changed.JSON200.Enabled || len(changed.JSON200.EventTypes) != 0 {
		t.Errorf("update: %s", changed.Body)
	}
	rotated, err := b.api.RotateWebhookSecretWithResponse(t.Context(), id, nil, adminclient.WebhookRotation{OverlapSeconds: 60})
	check(t, err)
	if rotated.JSON200 == nil || rotated.JSON200.Secret == made.JSON201.Secret {
		t.Errorf("rotate: %s", rotated.Body)
	}
	listed, err := b.api.ListWebhooksWithResponse(t.Context(), nil)
	check(t, err)
	if len(listed.JSON200.Data) != 1 || strings.Contains(string(listed.Body), "whsec_") {
		t.Errorf("list: %s", listed.Body)
	}
	deliveries, err := b.api.ListDeliveriesWithResponse(t.Context(), id, nil)
	check(t, err)
	if deliveries.JSON200 == nil || len(deliveries.JSON200.Data) != 0 {
		t.Errorf("deliveries: %s", deliveries.Body)
	}
	if r, err := b.api.DeleteWebhookWithResponse(t.Context(), id); err != nil || r.StatusCode() != http.StatusNoContent {
		t.Errorf("delete: %s, %v", r.Body, err)
	}
	gone, err := b.api.GetWebhookWithResponse(t.Context(), id)
	check(t, err)
	problem(t, gone.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	var actions []string
	log, err := b.api.ListAuditWithResponse(t.Context(), &adminclient.ListAuditParams{Object: &id})
	check(t, err)
	for _, e := range log.JSON200.Data {
		actions = append(actions, e.Action)
	}
	if diff := cmp.Diff([]string{"webhook.delete", "webhook.rotate_secret", "webhook.update", "webhook.create"}, actions); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
	if strings.Contains(string(log.Body), "whsec_") {
		t.Error("the audit log shows a secret")
	}
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := b.api.CreateWebhookWithResponse(t.Context(), nil, adminclient.WebhookCreate{URL: "https://cabinet.example.com/"})
	check(t, err)
	id := made.JSON201.Webhook.ID
	sent, err := b.api.TestWebhookWithResponse(t.Context(), id, nil)
	check(t, err)
	if _, err := b.hooks.LayOut(t.Context(), 10, (*webhook.Event).Body); err != nil {
		t.Fatal(err)
	}
	listed, err := b.api.ListDeliveriesWithResponse(t.Context(), id, &adminclient.ListDeliveriesParams{State: new(adminclient.DeliveryStatePending)})
	check(t, err)
	if len(listed.JSON200.Data) != 1 || listed.JSON200.Data[0].EventID != sent.JSON200.EventID || listed.JSON200.Data[0].LastAttempt != nil {
		t.Fatalf("pending: %s", listed.Body)
	}
	delivery := listed.JSON200.Data[0].ID
	claims, err := b.hooks.Claim(t.Context(), 1, 1, time.Minute)
	check(t, err)
	check(t, b.hooks.Conclude(t.Context(), &webhook.Outcome{
		Claim: &claims[0], State: webhook.Failed,
		Attempt: webhook.Attempt{At: time.Now(), Status: 404, Latency: 1500 * time.Millisecond, Error: webhook.Refused, Excerpt: "no such page"},
	}))
	detail, err := b.api.GetDeliveryWithResponse(t.Context(), delivery)
	check(t, err)
	if d := detail.JSON200; d == nil || d.Delivery.State != adminclient.DeliveryStateFailed || len(d.Attempts) != 1 || *d.Attempts[0].Status != 404 ||
		d.Event.ID != sent.JSON200.EventID || d.Event.Type != "webhook.test" || d.Attempts[0].LatencyMS != 1500 || *d.Attempts[0].Error != "status" || *d.Attempts[0].Excerpt != "no such page" {
		t.Errorf("delivery: %s", detail.Body)
	}
	many, err := b.api.RedeliverFailedWithResponse(t.Context(), id, nil, adminclient.Redelivery{Since: time.Now().Add(-time.Minute)})
	check(t, err)
	one, err := b.api.RedeliverWithResponse(t.Context(), delivery, nil)
	check(t, err)
	if many.JSON200 == nil || many.JSON200.Deliveries != 1 || one.JSON200 == nil || one.JSON200.State != adminclient.DeliveryStatePending {
		t.Errorf("redeliver: %s, then %s", many.Body, one.Body)
	}
	missing, err := b.api.RedeliverWithResponse(t.Context(), "dlv_00000000000070008000000000000000", nil)
	check(t, err)
	problem(t, missing.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
}

func TestRefusedWebhooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, url := range map[string]string{
		"no TLS": "http://example.com/", "no host": "https:///x", "no URL": "%", "relative": "/x", "password": "https://u:p@example.com/",
		"fragment": "https://example.com/#x", "other scheme": "file:///etc/passwd", "opaque": "https:example.com", "too long": "https://example.com/" + strings.Repeat("x", 2000),
	} {
		r, err := b.api.CreateWebhookWithResponse(t.Context(), nil, adminclient.WebhookCreate{URL: url})
		check(t, err)
		if r.ApplicationProblemJSONDefault == nil || r.StatusCode() != http.StatusBadRequest || r.ApplicationProblemJSONDefault.Errors[0].Field != "url" {
			t.Errorf("%s: got %s; want a fault of url", name, r.Body)
		}
	}
	faulty, err := b.api.CreateWebhookWithResponse(t.Context(), nil, adminclient.WebhookCreate{
		URL: "https://example.com/", EventTypes: []adminclient.EventType{"account.low_balance", "account.low_balance", "nothing"},
	})
	check(t, err)
	if p := faulty.ApplicationProblemJSONDefault; p == nil || len(p.Errors) != 2 || p.Errors[0].Field != "event_types[1]" || p.Errors[1].Field != "event_types[2]" {
		t.Errorf("types: %s", faulty.Body)
	}
	made, err := b.api.CreateWebhookWithResponse(t.Context(), nil, adminclient.WebhookCreate{URL: "https://example.com/"})
	check(t, err)
	long, err := b.api.RotateWebhookSecretWithResponse(t.Context(), made.JSON201.Webhook.ID, nil, adminclient.WebhookRotation{OverlapSeconds: 1 << 40})
	check(t, err)
	problem(t, long.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	account := b.account(5)
	read := func() *adminclient.Alerts {
		t.Helper()
		r, err := b.api.GetAlertsWithResponse(t.Context(), account.ID)
		check(t, err)
		return r.JSON200
	}
	if diff := cmp.Diff(&adminclient.Alerts{SpendLimitPercent: 80}, read()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	wanted := adminclient.Alerts{LowBalance: new("5.00"), SpendLimitPercent: 0}
	if r, err := b.api.SetAlertsWithResponse(t.Context(), account.ID, wanted); err != nil || r.JSON200 == nil {
		t.Fatalf("set: %s, %v", r.Body, err)
	}
	if diff := cmp.Diff(&wanted, read()); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	for _, faulty := range []adminclient.Alerts{{LowBalance: new("0")}, {LowBalance: new("-1")}, {LowBalance: new("x")}, {SpendLimitPercent: 101}, {SpendLimitPercent: -1}} {
		r, err := b.api.SetAlertsWithResponse(t.Context(), account.ID, faulty)
		check(t, err)
		problem(t, r.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	}
	missing, err := b.api.SetAlertsWithResponse(t.Context(), "acc_00000000000070008000000000000000", wanted)
	check(t, err)
	problem(t, missing.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
}
