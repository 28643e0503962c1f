package moneypages_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// billOf returns a bill of today with a line of the provider for each amount.
func billOf(amounts ...string) string {
	today := time.Now().UTC().Format(time.DateOnly)
	return "day,model,amount,currency\n" + today + "," + strings.Join(amounts, ",USD\n"+today+",") + ",USD\n"
}

// A bill is uploaded, its open differences lead to the requests behind them, it is accepted, and deleted.
func TestBillOfAProviderIsComparedInTheConsole(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	request := w.Request(k, event.Completed, price.Usage{Input: 1000})
	w.SmallCatalog()
	w.SQL(
		"alter table usage_records disable trigger all", "alter table usage_records_"+time.Now().UTC().Format("200601")+" disable trigger all",
		"update usage_records set provider = 'acme', route = 'small-main', provider_cost = 5000000000, estimated = true",
	)
	b := w.SignedIn(servertest.BootstrapToken)
	if answer, page := b.Get("/console/bills"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "No bill was imported yet") {
		t.Errorf("before: got %d %s", answer.StatusCode, page)
	}

	const path = "/console/bills/import"
	text := billOf("small-2026,17.000000000", "<script>alert(1)</script>,3.000000000") + "\n"
	answer, page := b.UploadTo(path, "file", text, "provider", "acme", "time_zone", "UTC", "name", "=1+1")
	at := answer.Header.Get("Location")
	if answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(at, "/console/bills/bil_") {
		t.Fatalf("the upload: got %d %s", answer.StatusCode, page)
	}
	_, page = b.Get(at)
	for _, want := range []string{"17.", "20.", "unexplained", "our estimate", "unknown call", "rounding", "/differences/", "acme", "=1&#43;1", "/accept"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the bill has no %q: %s", want, page)
		}
	}
	if _, all := b.Get(at + "?show=all&day=" + time.Now().UTC().Format(time.DateOnly)); !strings.Contains(all, "&lt;script&gt;alert(1)") || strings.Contains(all, "<script>alert") {
		t.Errorf("all differences: %s", all)
	}
	link := regexp.MustCompile(`/console/bills/bil_[0-9a-f]+/differences/[0-9]+`).FindString(page)
	if answer, page := b.Get(link); answer.StatusCode != http.StatusOK || !strings.Contains(page, `href="/console/requests/`+request+`"`) {
		t.Errorf("the difference: got %d %s; want a link to the request", answer.StatusCode, page)
	}
	if _, page := b.Get("/console/bills"); !strings.Contains(page, at) || !strings.Contains(page, "open") {
		t.Errorf("the list: %s", page)
	}

	// The same bytes over the API are the same bill.
	same, err := w.API.ImportBill(t.Context(), &adminclient.ImportBillParams{Provider: "acme"}, adminclient.WithBody("application/octet-stream", []byte(text)))
	servertest.Check(t, err)
	if same.StatusCode != http.StatusOK || !strings.HasSuffix(at, same.Value.ID) {
		t.Errorf("over the API: %s; want the same bill", same)
	}

	if answer, page := b.Fill(at+"/accept", "reason", "They give a credit."); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("accept: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(at); !strings.Contains(page, "They give a credit.") || strings.Contains(page, "/accept") {
		t.Errorf("after it was accepted: %s", page)
	}
	if answer, page := b.Fill(at + "/delete"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("delete: got %d %s", answer.StatusCode, page)
	}
	if answer, _ := b.Get(at); answer.StatusCode != http.StatusNotFound {
		t.Errorf("after the deletion: got %d", answer.StatusCode)
	}
}

// A wrong file is explained at the form, and what was entered stays.
func TestWrongBillIsExplainedAtItsForm(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	for name, test := range map[string]struct{ file, zone, want string }{
		"no file":    {"", "UTC", "must be chosen"},
		"a workbook": {"PK\x03\x04", "UTC", "workbook"},
		"a line":     {billOf("small-2026,1", "small-2026,x"), "UTC", "line 3, amount"},
		"a zone":     {billOf("small-2026,1"), "Nowhere", "Europe/Berlin"},
		"old":        {"day,amount\n2020-01-01,1\n", "UTC", "not kept any more"},
	} {
		answer, page := b.UploadTo("/console/bills/import", "file", test.file, "provider", "acme", "time_zone", test.zone, "credential", "main")
		if answer.StatusCode < 400 || answer.StatusCode > 499 || !strings.Contains(page, test.want) || !strings.Contains(page, `value="main"`) {
			t.Errorf("%s: got %d %s; want %q", name, answer.StatusCode, page, test.want)
		}
	}
}
