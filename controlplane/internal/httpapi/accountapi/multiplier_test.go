package accountapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/shared/apikey"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// record returns the key record that a proxy gets.
func (b *server) record(k *adminclient.IssuedKey) *wire.KeyRecord {
	b.T.Helper()
	hash := b.Hasher.Hash(k.Secret)
	loaded, err := leasestore.NewLeases(b.DB).LoadKeys(b.T.Context(), []apikey.Hash{hash})
	servertest.Check(b.T, err)
	return loaded[hash].Record
}

// Proxies are told whether the answers of an account have their costs.
func TestAccountIsToldItsCosts(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	if a.IncludeCost || b.record(k).IncludeCost {
		t.Errorf("a new account is told its costs: %+v", b.record(k))
	}
	for i, include := range []bool{true, true, false} {
		changed, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{IncludeCost: &include}))
		servertest.Check(t, err)
		if changed.StatusCode != http.StatusOK || changed.Value.IncludeCost != include || b.record(k).IncludeCost != include {
			t.Errorf("set to %t: got %s, and proxies are told %t", include, changed.Body, b.record(k).IncludeCost)
		}
		if want := []int{1, 1, 2}[i]; len(b.Announcer.Told) != want {
			t.Errorf("%d changes were announced; want %d", len(b.Announcer.Told), want)
		}
	}
	with, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "told", IncludeCost: new(true)}))
	servertest.Check(t, err)
	if !with.Value.IncludeCost {
		t.Errorf("created: %s", with.Body)
	}
}

func TestPriceMultiplier(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	if a.PriceMultiplier != "1" || len(a.ModelMultipliers) != 0 || b.record(k).PriceMultiplier != 0 {
		t.Errorf("a new account pays %s and %v; want list prices", a.PriceMultiplier, a.ModelMultipliers)
	}
	own, models := "0.85", adminclient.ModelMultipliers{"demo-other": "1.25"}
	changed, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{PriceMultiplier: &own, ModelMultipliers: &models}))
	servertest.Check(t, err)
	if changed.StatusCode != http.StatusOK || changed.Value.PriceMultiplier != own || changed.Value.ModelMultipliers["demo-other"] != "1.25" {
		t.Fatalf("patch: %s", changed.Body)
	}
	if n := len(b.Announcer.Told); n != 1 || b.Announcer.Told[0].Kind != wire.AccountUpdated {
		t.Errorf("received %+v; want one change of the account", b.Announcer.Told)
	}
	record := b.record(k)
	if record.Multiplier("demo-chat") != 850_000 || record.Multiplier("demo-other") != 1_250_000 {
		t.Errorf("proxies are told %+v", record)
	}

	// 1 input token at 1.00 a million is 0.000001; under the multiplier 0.00000085.
	id := b.Proxy("p").Report(k, time.Now(), *new(b.Sheet("demo-chat")).WithMultiplier(record.Multiplier("demo-chat")), price.Usage{Input: 1})
	one := "1"
	_, err = servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{PriceMultiplier: &one}))
	servertest.Check(t, err)
	r, err := servertest.Answered(b.API.GetUsage(t.Context(), id))
	servertest.Check(t, err)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("receipt: %s", r.Body)
	}
	receipt := r.Value.Receipt
	want := []string{"0.85", "0.000001", "0.00000085"}
	if diff := cmp.Diff(want, []string{receipt.PriceMultiplier, receipt.ListCost, receipt.Cost}); diff != "" {
		t.Errorf("multiplier, list price and cost (-want +got):\n%s", diff)
	}
	receipts, err := servertest.Answered(b.API.CheckReceipts(t.Context()))
	servertest.Check(t, err)
	if receipts.StatusCode != http.StatusOK || !receipts.Value.OK {
		t.Errorf("receipts: %s", receipts.Body)
	}
	b.CheckLedger()
}

func TestInvalidPriceMultiplierIsRejected(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, text := range []string{"", "0", "-1", "1e3", "0.0000001", "100.000001", "101", ".5", "1.", "0x1"} {
		models := adminclient.ModelMultipliers{"m": text}
		r, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "a", PriceMultiplier: &text, ModelMultipliers: &models}))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
		if faults := r.Problem.Errors; len(faults) != 2 {
			t.Errorf("%q: got %v; want both fields refused", text, faults)
		}
	}
}

func TestReceiptShowsCorrections(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a, other := b.Account(1), b.Account(1)
	b.Credit(a.ID, "10.00", "r")
	id := b.Proxy("p").Report(b.Key(a.ID, ""), time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})
	post := func(account, kind, reference, reason string) *servertest.Answer[adminclient.Transaction] {
		r, err := servertest.Answered(b.API.CreateCredit(t.Context(), account, nil, adminclient.CreditCreate{
			Amount: "0.30", Kind: adminclient.CreditKind(kind), Reference: reference, Reason: &reason, RequestID: &id,
		}))
		servertest.Check(t, err)
		return r
	}
	before, err := servertest.Answered(b.API.GetUsage(t.Context(), id))
	servertest.Check(t, err)
	servertest.Problem(t, post(a.ID, "correction", "c1", "  ").Problem, http.StatusBadRequest, "invalid_input")
	servertest.Problem(t, post(a.ID, "payment", "c1", "why").Problem, http.StatusBadRequest, "invalid_input")
	servertest.Problem(t, post(other.ID, "correction", "c1", "why").Problem, http.StatusConflict, "no_such_request")
	booked := post(a.ID, "correction", "c1", "cut short").Value
	if booked == nil || booked.RequestID == nil || *booked.RequestID != id {
		t.Fatalf("correction: %+v", booked)
	}
	after, err := servertest.Answered(b.API.GetUsage(t.Context(), id))
	servertest.Check(t, err)
	if diff := cmp.Diff([]adminclient.Transaction{*booked}, after.Value.Corrections); diff != "" {
		t.Errorf("corrections of the request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Value.Receipt, after.Value.Receipt); diff != "" || before.Value.Cost != after.Value.Cost {
		t.Errorf("the receipt has changed (-before +after):\n%s", diff)
	}
	var noted struct {
		Reason    string
		RequestID string `json:"request_id"`
	}
	audit, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Object: &a.ID}))
	servertest.Check(t, err)
	text, err := json.Marshal(audit.Value.Data[0].After)
	servertest.Check(t, err)
	servertest.Check(t, json.Unmarshal(text, &noted))
	if noted.Reason != "cut short" || noted.RequestID != id || audit.Value.Data[0].Action != "ledger.correction" {
		t.Errorf("audit: %s", audit.Body)
	}
	b.CheckLedger()
}
