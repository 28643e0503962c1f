package browser

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/demo"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// lossy is a model whose first route costs more than customers are charged for it, and breaks off calls that another one serves then.
type lossy struct {
	model, account string
	routes         [2]string
	// failover is a request that the second route served after the first one had begun.
	failover string
}

// lostYesterday adds a lossy model, and settles what its routes served yesterday.
func lostYesterday(t *testing.T, r *rig.Rig) *lossy {
	t.Helper()
	sheet := func(input, output string) map[string]any { return map[string]any{"input": input, "output": output} }
	account := r.Account(t, rig.AccountSpec{Credit: "500"})
	l := &lossy{account: account.ID, model: "assistant-" + rig.Unique()}
	r.Model(t, rig.Model{ID: l.model, MaxOutputTokens: 100_000, Price: sheet("1.10", "4.40"), Routes: []rig.Route{
		{UpstreamModel: "assistant-large", Priority: 0, ProviderPrice: sheet("1.25", "10.00")},
		{UpstreamModel: "assistant-spare", Priority: 1, ProviderPrice: sheet("0.80", "3.20")},
	}})
	made, err := r.Admin.GetModel(t.Context(), l.model)
	if err != nil || len(made.Value.Routes) != len(l.routes) {
		t.Fatalf("got %v, %v; want two routes", made, err)
	}
	for i := range l.routes {
		l.routes[i] = *made.Value.Routes[i].ID
	}

	// The prices of providers count from when they were set, which was long ago.
	conn := r.Postgres(t)
	for _, query := range []string{
		"set session_replication_role = replica", // without the triggers that refuse it
		"update provider_prices set effective_from = now() - interval '10 days' where route_id in ('" + l.routes[0] + "', '" + l.routes[1] + "')",
	} {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	err = demo.SettlePast(t.Context(), r.State(), func(models map[string]catalogkv.Model) (events []event.Usage, err error) {
		model := models[l.model]
		for n := range 30 {
			e, err := l.request(account, &model, n, day.Add(time.Duration(n)*40*time.Minute))
			if err != nil {
				return nil, err
			}
			events = append(events, e)
		}
		return events, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.AwaitUsage(t, l.failover)
	return l
}

// request is one of yesterday's: every fifth was begun by the first route and served by the second one, every seventh failed.
func (l *lossy) request(account *rig.Account, model *catalogkv.Model, n int, at time.Time) (event.Usage, error) {
	sheet := &model.Prices[0].Sheet
	e := event.Usage{
		V:                 event.Version,
		RequestID:         ident.Request.Format(ident.NewAt(at)),
		AccountID:         account.ID,
		KeyID:             account.KeyID,
		Model:             l.model,
		Format:            "chat",
		Provider:          rig.SimProvider,
		Route:             l.routes[0],
		Credential:        "main",
		ProviderRequestID: "chatcmpl-" + rig.Unique(),
		Status:            event.Completed,
		HTTPStatus:        http.StatusOK,
		Stream:            true,
		StartedMS:         at.UnixMilli(),
		FinishedMS:        at.Add(9 * time.Second).UnixMilli(),
		FirstByteMS:       700,
		Rule:              event.RuleReported,
		MaxInput:          200_000,
		MaxOutput:         100_000,
		PriceVersion:      sheet.Version,
		Usage:             price.Usage{Input: 21_017 + int64(n)*1_003, Output: 30_011 + int64(n)*701},
	}
	begun := event.Attempt{Route: l.routes[0], Provider: rig.SimProvider, CredentialName: "main", Class: "truncated", MS: 640, ProviderRequestID: "chatcmpl-" + rig.Unique()}
	switch {
	case n%5 == 4:
		begun.Usage, begun.Estimated = price.Usage{Input: e.Usage.Input, Output: 9_001}, true
		e.Attempts = []event.Attempt{begun, {Route: l.routes[1], Provider: rig.SimProvider, CredentialName: "main", MS: 2_000}}
		e.Route, l.failover = l.routes[1], e.RequestID
	case n%7 == 6:
		e.Attempts = []event.Attempt{begun}
		e.Status, e.HTTPStatus, e.Rule = event.Failed, http.StatusBadGateway, event.RuleNone
		return e, nil
	}
	var err error
	if e.Cost, err = price.Cost(&e.Usage, sheet); err != nil {
		return e, fmt.Errorf("price of a request: %w", err)
	}
	e.Reservation = 2 * e.Cost
	return e, nil
}

// An operator asks why money was lost yesterday, and comes by links alone from the overview to the remedy: the margin of all routes,
// the requests of the worst one, what one of them cost, and a price that bears it.
func TestWhyMoneyWasLostYesterday(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	r := filled(t)
	l := lostYesterday(t, r)
	for _, width := range []int64{wide, narrow} {
		b := open(t)
		b.run(chromedp.EmulateViewport(width, 900), scheme("light"))
		b.signIn(r.AdminToken())
		l.walk(b, width)
	}
}

func (l *lossy) walk(b *tab, width int64) {
	b.t.Helper()
	step := 0
	click := func(name, link string) {
		b.t.Helper()
		if status := b.load(chromedp.Click(link, chromedp.ByQuery)); status != http.StatusOK {
			b.t.Fatalf("%s: got %d:\n%s", link, status, b.text())
		}
		step++
		b.looksRight("loss-"+strconv.Itoa(step)+"-"+name, width)
	}

	b.visit("/console/")
	b.looksRight("loss-0-overview", width)
	if width == narrow {
		b.run(chromedp.Click(".sidebar > summary", chromedp.ByQuery))
	}
	click("margin", `nav a[href="/console/margin"]`)
	click("yesterday", `main h1 a.button`)
	const first = `main table.list tbody tr:first-child `
	worst := eval[string](b, `document.querySelector('`+first+`').innerText`)
	if !strings.Contains(worst, "loss") || !strings.Contains(worst, "-") || eval[string](b, `document.querySelector('`+first+`a').href`) == "" {
		b.t.Errorf("the first line is no loss: %q", worst)
	}
	show := first + `td[data-label="Show"] a`
	if to := eval[string](b, `document.querySelector('`+show+`').search`); !strings.Contains(to, "route="+l.routes[0]) {
		b.t.Fatalf("the worst line leads to %s; want the route %s:\n%s", to, l.routes[0], b.text())
	}

	click("requests", show)
	b.has("1 call failed", "for other calls")
	click("request", `main table.list a.row[href="/console/requests/`+l.failover+`"]`)
	b.has("Provider cost", "Margin", "truncated", "for calls that did not serve it")
	click("model", `main dd a[href="/console/models/`+l.model+`"]`)
	l.preview(b, width)
}

// preview changes the price of the model in the form, up to the review that tells the margin by the new price.
func (l *lossy) preview(b *tab, width int64) {
	b.t.Helper()
	b.run(chromedp.Click(`main h1 a[href="/console/models/`+l.model+`/price"]`, chromedp.ByQuery))
	const review = `dialog button[name="step"][value="review"]`
	b.await("the form of the price", `document.querySelector('`+review+`') !== null`)
	b.run(chromedp.SetValue(`dialog [name="price.input"]`, "2.50", chromedp.ByQuery), chromedp.SetValue(`dialog [name="price.output"]`, "15.00", chromedp.ByQuery),
		chromedp.Click(review, chromedp.ByQuery))
	b.await("the review of the price", `document.body.innerText.includes("by this price it would have been")`)
	b.looksRight("loss-6-preview", width)
	b.has("the margin was -")
	if strings.Contains(b.text(), "it would have been -") {
		b.t.Errorf("the new price does not bear the cost:\n%s", b.text())
	}
}
