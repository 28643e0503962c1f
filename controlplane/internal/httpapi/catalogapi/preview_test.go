package catalogapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/price"
)

// newPrice has no price for the images of tools, which demoCatalog has.
func newPrice() adminclient.CatalogPrice {
	return adminclient.CatalogPrice{Input: new("1.234567891"), CachedInput: new("0.1"), Output: new("4.999999999")}
}

func TestPricePreviewEqualsReceiptsMadeAnew(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	first, second := b.Account(1), b.Account(2)
	keys := []*adminclient.IssuedKey{b.Key(first.ID, ""), b.Key(second.ID, "")}
	multipliers := []price.Multiplier{0, 850_000}
	old := b.Sheet("demo-chat")
	proxy := b.Proxy("p1")
	now := time.Now()
	var past []price.Usage
	var charged money.Nano
	var of []int
	for i := range 9 {
		u := price.Usage{Input: int64(1_000_003 * (i + 1)), CachedInput: int64(i * 17), Output: int64(333 * i)}
		sheet := old.WithMultiplier(multipliers[i%2])
		cost, err := price.Cost(&u, sheet)
		servertest.Check(t, err)
		proxy.Report(keys[i%2], now.Add(-time.Duration(i)*time.Hour), *sheet, u)
		charged, past, of = charged+cost, append(past, u), append(of, i%2)
	}
	// This one was before the period, and the price has no line for the images of this one.
	proxy.Report(keys[0], now.Add(-25*time.Hour), old, price.Usage{Input: 5_000_000})
	proxy.Report(keys[0], now.Add(-time.Minute), old, price.Usage{Secondary: price.Secondary{Kind: price.ImageTool, Images: 7}})

	days := 1
	got, err := servertest.Answered(b.API.PreviewPrices(t.Context(), "demo-chat", adminclient.PricePreviewCreate{Price: newPrice(), Days: &days}))
	servertest.Check(t, err)
	if got.StatusCode != http.StatusOK {
		t.Fatalf("preview: %s", got.Body)
	}

	created, err := servertest.Answered(b.API.CreatePrice(t.Context(), "demo-chat", nil, adminclient.PriceCreate{Price: newPrice()}))
	servertest.Check(t, err)
	if created.StatusCode != http.StatusCreated {
		t.Fatalf("create price: %s", created.Body)
	}
	sheet := b.Sheet("demo-chat")
	var anew money.Nano
	accounts := make([]money.Nano, 2)
	for i := range past {
		_, cost, err := price.Receipt(&past[i], sheet.WithMultiplier(multipliers[of[i]]))
		servertest.Check(t, err)
		anew, accounts[of[i]] = anew+cost, accounts[of[i]]+cost
	}
	v := got.Value
	want := []string{charged.String(), anew.String(), (anew - charged).String(), "0.07"}
	if diff := cmp.Diff(want, []string{v.Charged, v.Previewed, v.Change, v.UnpricedCharged}); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	if v.Requests != 9 || v.UnpricedRequests != 1 || v.AccountCount != 2 || v.Currency != "USD" || v.To.Sub(v.From) != 24*time.Hour {
		t.Errorf("preview: %s", got.Body)
	}
	ids := []string{first.ID, second.ID}
	for _, a := range v.Accounts {
		for i, id := range ids {
			if a.AccountID == id && a.Previewed != accounts[i].String() {
				t.Errorf("account %d pays %s; want %s", i, a.Previewed, accounts[i])
			}
		}
	}
	b.CheckLedger()
}

// What the provider charges is no part of the price: the same cost is compared with both charges.
func TestPricePreviewTellsTheMargin(t *testing.T) {
	t.Parallel()
	b := start(t)
	const route = "routes: [{provider: sim, upstream_model: sim-chat, "
	b.Apply(strings.Replace(servertest.DemoCatalog, route, route+`id: r1, provider_price: {input: "1.10", output: "2.00"}, `, 1))
	k, proxy := b.Key(b.Account(1).ID, ""), b.Proxy("p1")
	var since time.Time
	servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select max(effective_from) from provider_prices").Scan(&since))
	at := since.Add(time.Millisecond) // the id of a request has milliseconds
	spent := event.Attempt{Route: "r1", Provider: "sim", Class: "no_stream", Usage: price.Usage{Input: 100_000}}
	proxy.Route = "r1"
	proxy.Report(k, at, b.Sheet("demo-chat"), price.Usage{Input: 1_000_000}, spent, event.Attempt{Route: "r1"})
	proxy.Route = "unknown"
	proxy.Report(k, at, b.Sheet("demo-chat"), price.Usage{Input: 500_000})

	var v adminclient.PricePreview
	await.Until(t, "a period with the requests", func() bool {
		got, err := servertest.Answered(b.API.PreviewPrices(t.Context(), "demo-chat", adminclient.PricePreviewCreate{Price: newPrice()}))
		servertest.Check(t, err)
		v = *got.Value
		return v.Requests == 2
	})
	// 1.1 million tokens cost 1.21, and a million of them were charged 1.00.
	want := adminclient.PricePreviewAccount{
		AccountID:       k.AccountID,
		Requests:        2,
		Charged:         "1.50",
		Previewed:       "1.851851837",
		Change:          "0.351851837",
		ProviderCost:    "1.21",
		UnknownCalls:    1,
		Margin:          "-0.21",
		PreviewedMargin: "0.024567891",
	}
	if diff := cmp.Diff([]adminclient.PricePreviewAccount{want}, v.Accounts); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	got := []string{v.ProviderCost, v.UnknownCharged, v.UnknownPreviewed, v.Margin, v.PreviewedMargin}
	if diff := cmp.Diff([]string{"1.21", "0.50", "0.617283946", "-0.21", "0.024567891"}, got); diff != "" || v.UnknownCalls != 1 {
		t.Errorf("%d calls have an unknown cost; want 1. Sums (-want +got):\n%s", v.UnknownCalls, diff)
	}
}

func TestPricePreviewRefusesInvalidInput(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	for _, c := range []struct {
		name, model string
		days        int
		price       adminclient.CatalogPrice
		status      int
	}{
		{"no days", "demo-chat", 0, newPrice(), http.StatusBadRequest},
		{"too many days", "demo-chat", 32, newPrice(), http.StatusBadRequest},
		{"an incomplete price", "demo-chat", 7, adminclient.CatalogPrice{Input: new("1.00")}, http.StatusBadRequest},
		{"an unknown model", "unknown", 7, newPrice(), http.StatusNotFound},
	} {
		got, err := servertest.Answered(b.API.PreviewPrices(t.Context(), c.model, adminclient.PricePreviewCreate{Price: c.price, Days: &c.days}))
		servertest.Check(t, err)
		if got.StatusCode != c.status {
			t.Errorf("%s: %d %s; want %d", c.name, got.StatusCode, got.Body, c.status)
		}
	}
}

func TestPricePreviewBoundsRecords(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	k := b.Key(b.Account(1).ID, "")
	proxy := b.Proxy("p1")
	at := time.Now()
	for range 3 {
		proxy.Report(k, at, b.Sheet("demo-chat"), price.Usage{Input: 1})
	}
	q := usage.PreviewQuery{Model: "demo-chat", From: at.Add(-time.Hour), To: at.Add(time.Hour)}
	for limit, want := range map[int]bool{2: true, 3: false} {
		got, err := usagestore.NewUsage(b.DB).Exceeds(t.Context(), q, limit)
		servertest.Check(t, err)
		if got != want {
			t.Errorf("3 records exceed %d: %t; want %t", limit, got, want)
		}
	}
}

// The table is locked, so that previews run until their clients go away.
func TestPricePreviewsAreBoundedAndEndWithTheirRequests(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	var locked pgx.Tx
	var err error
	locked, err = b.DB.Pool().Begin(t.Context())
	servertest.Check(t, err)
	defer func() { _ = locked.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = locked.Exec(t.Context(), "lock table usage_records in access exclusive mode")
	servertest.Check(t, err)

	const most = 2
	body := adminclient.PricePreviewCreate{Price: newPrice()}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, most)
	for range most {
		go func() {
			_, err := b.API.PreviewPrices(ctx, "demo-chat", body)
			ended <- err
		}()
	}
	waiting := func() (n int) {
		servertest.Check(t, locked.QueryRow(t.Context(), "select count(*) from pg_locks where not granted and relation = 'usage_records'::regclass").Scan(&n))
		return n
	}
	await.Until(t, "the previews to wait for the lock", func() bool { return waiting() >= most })
	refused, err := servertest.Answered(b.API.PreviewPrices(t.Context(), "demo-chat", body))
	servertest.Check(t, err)
	if refused.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a third preview: %d %s; want 429", refused.StatusCode, refused.Body)
	}
	leave()
	for range most {
		if err := <-ended; err == nil {
			t.Error("a preview that waited for a lock succeeded")
		}
	}
	await.Until(t, "the queries to be cancelled although the lock is held", func() bool { return waiting() == 0 })
	servertest.Check(t, locked.Rollback(t.Context()))
	await.Until(t, "another preview", func() bool {
		again, err := servertest.Answered(b.API.PreviewPrices(t.Context(), "demo-chat", body))
		servertest.Check(t, err)
		return again.StatusCode == http.StatusOK
	})
}
