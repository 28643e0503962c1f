package browser

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/demo"
	"modelgateway/scripts/e2e/rig"
)

func TestDemoFillsTheProductAndItsLedgerHolds(t *testing.T) {
	rig.Long(t)
	r := filled(t)
	limit := 100
	accounts, err := r.Admin.ListAccounts(t.Context(), &adminclient.ListAccountsParams{Limit: &limit})
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for _, a := range accounts.Value.Data {
		if a.ExternalID == nil || *a.ExternalID == "demo" {
			continue // not one of this demo
		}
		found, err := r.Admin.ListKeys(t.Context(), a.ID, &adminclient.ListKeysParams{Limit: &limit})
		if err != nil {
			t.Fatal(err)
		}
		keys += len(found.Value.Data)
	}
	if keys != 20 {
		t.Errorf("got %d keys; want 20", keys)
	}
	first := time.Now().AddDate(0, 0, -12)
	past, err := r.Admin.ListUsage(t.Context(), &adminclient.ListUsageParams{To: &first, Limit: &limit})
	if err != nil {
		t.Fatal(err)
	}
	if len(past.Value.Data) == 0 {
		t.Error("there is no usage of 12 days ago")
	}
	for _, u := range past.Value.Data {
		if _, err := r.Admin.GetUsage(t.Context(), u.RequestID); err != nil {
			t.Errorf("the receipt of %s: %v", u.RequestID, err)
		}
	}
	quarantined, err := r.Admin.ListQuarantine(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(quarantined.Value.Data) != 1 {
		t.Errorf("got %d events in quarantine; want the one of the demo", len(quarantined.Value.Data))
	}
	r.AwaitSettled(t)
	r.CheckLedger(t)
	if receipts, err := r.Admin.CheckReceipts(t.Context()); err != nil || receipts.Value.Differing != 0 || receipts.Value.Compared < int64(len(past.Value.Data)) {
		t.Errorf("the check of the receipts: got %v %v", receipts, err)
	}
}

func TestDemoCanRunAgain(t *testing.T) {
	rig.Long(t)
	r := filled(t)
	count := func(ctx context.Context) (accounts, models, tokens int) {
		limit := 100
		a, err := r.Admin.ListAccounts(ctx, &adminclient.ListAccountsParams{Limit: &limit})
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Admin.ListModels(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		k, err := r.Admin.ListTokens(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(a.Value.Data), len(m.Value.Data), len(k.Value.Data)
	}
	before := fmt.Sprint(count(t.Context()))
	d, err := demo.New(demo.Config{State: r.State(), PerDay: 40, Out: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := fmt.Sprint(count(t.Context())); after != before {
		t.Errorf("got %s accounts, models and tokens; want %s as before", after, before)
	}
}
