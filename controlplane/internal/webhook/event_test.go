package webhook_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
)

func TestHoursLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		balance, hour, day money.Nano
		hours              int64
		ok                 bool
	}{
		"nothing charged":      {100, 0, 0, 0, false},
		"nothing left":         {0, 0, 5, 0, true},
		"overdrawn":            {-3, 1, 1, 0, true},
		"by the last hour":     {100, 10, 24, 10, true},
		"by the last day":      {100, 1, 240, 10, true},
		"only the day":         {100, 0, 240, 10, true},
		"rounded down":         {99, 10, 10, 9, true},
		"less than an hour":    {9, 10, 10, 0, true},
		"beyond 64 bits":       {math.MaxInt64, 0, math.MaxInt64, 24, true},
		"quotient too great":   {math.MaxInt64, 0, 1, math.MaxInt64, true},
		"one unit in each":     {math.MaxInt64, 1, 1, math.MaxInt64, true},
		"the day is no faster": {1000, 100, 1, 10, true},
	} {
		hours, ok := webhook.HoursLeft(test.balance, test.hour, test.day)
		if hours != test.hours || ok != test.ok {
			t.Errorf("%s: got %d, %v; want %d, %v", name, hours, ok, test.hours, test.ok)
		}
	}
}

func TestEventBody(t *testing.T) {
	t.Parallel()
	id, account, key := ident.New(), ident.New(), ident.New()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	subject := &webhook.Subject{
		Currency: "EUR", AccountExternalID: "customer-7", KeyExternalID: "k-1", KeyName: "production", Hour: money.Unit / 2, Day: 6 * money.Unit,
	}
	amount := func(n money.Nano) *money.Nano { return &n }
	for _, test := range []struct {
		event webhook.Event
		data  map[string]any
	}{
		{
			webhook.Event{Type: webhook.LowBalance, AccountID: account, Facts: webhook.Facts{Balance: amount(4 * money.Unit), Threshold: amount(5 * money.Unit)}},
			map[string]any{
				"account_id": ident.Account.Format(account), "account_external_id": "customer-7", "currency": "EUR", "balance": "4.00", "threshold": "5.00",
				"forecast": map[string]any{"charged_last_hour": "0.50", "charged_last_day": "6.00", "hours_left": 8.0},
			},
		},
		{
			webhook.Event{Type: webhook.LimitReached, AccountID: account, KeyID: key, Facts: webhook.Facts{SpendLimit: amount(5), Spent: amount(5)}},
			map[string]any{
				"account_id": ident.Account.Format(account), "account_external_id": "customer-7", "currency": "EUR", "key_id": ident.Key.Format(key),
				"key_external_id": "k-1", "key_name": "production", "spend_limit": "0.000000005", "spent": "0.000000005", "request_refused": false,
			},
		},
		{
			webhook.Event{Type: webhook.ExpiresSoon, AccountID: account, KeyID: key, Facts: webhook.Facts{ExpiresAt: new(at.AddDate(0, 0, 7))}},
			map[string]any{
				"account_id": ident.Account.Format(account), "account_external_id": "customer-7", "currency": "EUR", "key_id": ident.Key.Format(key),
				"key_external_id": "k-1", "key_name": "production", "expires_at": "2026-01-09T03:04:05Z",
			},
		},
		{
			webhook.Event{Type: webhook.LimitShareSpent, AccountID: account, Facts: webhook.Facts{
				Amount: amount(100 * money.Unit), Spent: amount(80 * money.Unit), Percent: 80,
				Limit: &webhook.LimitFacts{ID: "lim_1", Name: "team", Scope: limit.Account, Period: limit.Day, StartsAt: at, ResetsAt: new(at.AddDate(0, 0, 1))},
			}},
			map[string]any{
				"account_id": ident.Account.Format(account), "account_external_id": "customer-7", "currency": "EUR", "limit_id": "lim_1", "limit_name": "team",
				"scope": "account", "period": "day", "starts_at": "2026-01-02T03:04:05Z", "resets_at": "2026-01-03T03:04:05Z",
				"amount": "100.00", "spent": "80.00", "percent": 80.0,
			},
		},
		{
			webhook.Event{Type: webhook.CheckFailed, Facts: webhook.Facts{Checks: []string{"pool_conservation"}}},
			map[string]any{"checks": []any{"pool_conservation"}},
		},
	} {
		test.event.ID, test.event.At = id, at
		body, err := test.event.Body(subject)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"id": ident.Event.Format(id), "type": string(test.event.Type), "timestamp": "2026-01-02T03:04:05Z", "data": test.data}
		if diff := cmp.Diff(any(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.event.Type, diff)
		}
		documented(t, body)
	}
}

// documented checks that the API document describes every member of an event.
func documented(t *testing.T, body []byte) {
	t.Helper()
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(adminclient.Event)); err != nil {
		t.Errorf("%s: %v", body, err)
	}
}

// Every fact appears in the event under a documented name.
func TestEveryMemberIsDocumented(t *testing.T) {
	t.Parallel()
	amount := new(money.Unit)
	facts := webhook.Facts{
		Balance: amount, Threshold: amount, SpendLimit: amount, Spent: amount, Percent: 80, Amount: amount, Kind: "payment", Limit: new(webhook.LimitFacts),
		Reference: "invoice-7", Refused: true, Count: 3, Checks: []string{"pool_conservation"},
		Provider: "openai", Credential: "main", CredentialID: "crd_1", Reason: "key_rejected",
		ExpiresAt: new(time.Now()),
	}
	for _, kind := range append([]webhook.Type{webhook.Test}, webhook.Types...) {
		e := webhook.Event{ID: ident.New(), Type: kind, AccountID: ident.New(), KeyID: ident.New(), Facts: facts}
		body, err := e.Body(&webhook.Subject{Currency: "EUR", AccountExternalID: "a", KeyExternalID: "k", KeyName: "n"})
		if err != nil {
			t.Fatal(err)
		}
		documented(t, body)
	}
}

// Events name ledger kinds as the rest of the API does.
func TestEventNamesLedgerKindsAsTheAPI(t *testing.T) {
	t.Parallel()
	for kind, want := range map[ledger.Kind]adminclient.TransactionKind{
		ledger.Payment: adminclient.TransactionKindPayment, ledger.Refund: adminclient.TransactionKindRefund, ledger.Correction: adminclient.TransactionKindCorrection,
	} {
		e := webhook.Event{ID: ident.New(), Type: webhook.Credited, AccountID: ident.New(), Facts: webhook.Facts{Amount: new(money.Unit), Kind: string(kind)}}
		body, err := e.Body(&webhook.Subject{Currency: "EUR"})
		if err != nil {
			t.Fatal(err)
		}
		var told adminclient.Event
		if err := json.Unmarshal(body, &told); err != nil || told.Data.Kind == nil || *told.Data.Kind != string(want) {
			t.Errorf("%s: %s, %v; want the kind %s", kind, body, err, want)
		}
	}
}
