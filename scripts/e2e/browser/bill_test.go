package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// billed makes requests of a model of a provider of its own, and returns their records, newest first.
func billed(t *testing.T, r *rig.Rig) (provider, upstream string, records []adminclient.UsageRecord) {
	t.Helper()
	provider, upstream = r.Provider(t, rig.Provider{BaseURL: r.State().ProviderSimURL}), "billed-"+rig.Unique()
	sheet := map[string]any{"input": "1500", "output": "6000"}
	model := r.Model(t, rig.Model{Price: sheet, Routes: []rig.Route{{
		Provider: provider, UpstreamModel: upstream, Formats: []string{"chat"}, ProviderPrice: map[string]any{"input": "1234.567", "output": "4938.271"},
	}}})
	account := r.Account(t, rig.AccountSpec{})
	const requests = 6
	for range requests {
		if answer := ask(t, r, account.Key, model); answer.Status != http.StatusOK {
			t.Fatalf("got %s", answer)
		}
	}
	return provider, upstream, account.AwaitUsage(t, requests)
}

// A bill is chosen in the form, compared, and each of its differences is explained down to the request, at both widths. It is accepted.
func TestBillOfAProviderIsExplained(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	r := filled(t)
	provider, upstream, records := billed(t, r)
	day := records[0].StartedAt.UTC().Format(time.DateOnly)
	lines := []string{"day,model,credential,request_id,amount"}
	line := func(id, amount string) { lines = append(lines, day+","+upstream+",main,"+id+","+amount) }
	for i := range records {
		id, cost := *records[i].ProviderRequestID, *records[i].ProviderCost
		switch i {
		case 0: // not billed
		case 1:
			line(id, "7.123456789") // by another price
		case 2:
			line(id, cost)
			line(id, cost) // twice
		default:
			line(id, cost)
		}
	}
	line("chatcmpl-of-somebody-else", "0.987654321")
	file := filepath.Join(t.TempDir(), "bill.csv")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, width := range []int64{wide, narrow} {
		b := open(t)
		b.run(chromedp.EmulateViewport(width, 900), scheme("light"))
		b.signIn(r.AdminToken())
		importBill(b, provider, file, width)
		explainBill(b, records, width)
	}
	b := open(t)
	b.signIn(r.AdminToken())
	b.visit("/console/bills")
	b.load(chromedp.Click(`main table.list a.row[href*="/console/bills/bil_"]`, chromedp.ByQuery))
	at := b.at()
	b.visit(at + "/accept")
	b.run(chromedp.SetValue(`form.edit [name="reason"]`, "They give a credit.", chromedp.ByQuery))
	if status := b.press("do"); status != http.StatusOK {
		t.Fatalf("accept: got %d:\n%s", status, b.text())
	}
	b.has("They give a credit.", "accepted")
}

// importBill chooses the file in the form. The second time the bill is there already.
func importBill(b *tab, provider, file string, width int64) {
	b.t.Helper()
	b.visit("/console/bills")
	b.looksRight("bill-0-list", width)
	b.run(chromedp.Click(`main h1 a[href="/console/bills/import"]`, chromedp.ByQuery))
	const button = `dialog button[name="step"][value="do"]`
	b.await("the form of the import", `document.querySelector('`+button+`') !== null`)
	b.looksRight("bill-1-form", width)
	b.run(chromedp.SetUploadFiles(`dialog input[name="file"]`, []string{file}, chromedp.ByQuery),
		chromedp.SetValue(`dialog [name="provider"]`, provider, chromedp.ByQuery),
		chromedp.SetValue(`dialog [name="name"]`, "The test of a bill", chromedp.ByQuery),
		chromedp.Click(button, chromedp.ByQuery))
	b.await("the page of the bill", `location.pathname.startsWith("/console/bills/bil_") && document.readyState === "complete"`)
	b.looksRight("bill-2-bill", width)
}

func explainBill(b *tab, records []adminclient.UsageRecord, width int64) {
	b.t.Helper()
	b.has("not billed", "price", "billed twice", "unknown call", "The test of a bill")
	b.load(chromedp.Click(`main nav.tabs a[href$="?show=all"]`, chromedp.ByQuery))
	b.looksRight("bill-3-all", width)
	const difference = `main table.list a.row[href*="/differences/"]`
	b.load(chromedp.Click(difference, chromedp.ByQuery))
	b.looksRight("bill-4-difference", width)
	b.has("not ours", "chatcmpl-of-somebody-else", "no line")
	for i, kind := range []string{"not billed", "price", "billed twice"} {
		row := eval[string](b, `document.querySelector('main a.row[href="/console/requests/`+records[i].RequestID+`"]').closest("tr").innerText`)
		if !strings.Contains(row, kind) {
			b.t.Errorf("the request %d is %q; want %s", i, row, kind)
		}
	}
	if status := b.load(chromedp.Click(`main a.row[href="/console/requests/`+records[1].RequestID+`"]`, chromedp.ByQuery)); status != http.StatusOK {
		b.t.Fatalf("the request: got %d:\n%s", status, b.text())
	}
	b.has("Provider cost")
}
