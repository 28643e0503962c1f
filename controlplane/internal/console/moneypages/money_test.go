package moneypages_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

func TestCheckOfTheLedgerIsStartedAndShown(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	id := w.Request(k, event.Completed, price.Usage{Input: 1000})
	b := w.SignedIn(servertest.BootstrapToken)
	if answer, page := b.Get("/console/money"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "has not run yet") || !strings.Contains(page, "25.000000001") {
		t.Errorf("before: got %d %s", answer.StatusCode, page)
	}
	for _, sql := range []string{
		"alter table usage_records disable trigger all", "alter table usage_records_" + time.Now().UTC().Format("200601") + " disable trigger all",
		"update usage_records set cost = cost + 1",
	} {
		_, err := w.DB.Pool().Exec(t.Context(), sql)
		servertest.Check(t, err)
	}
	answer, page := b.Fill("/console/money/start", "kind", "receipts")
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	at := answer.Header.Get("Location")
	servertest.Check(t, w.Checks.Work(t.Context()))
	if _, page := b.Get(at); !strings.Contains(page, "differs") || !strings.Contains(page, `href="/console/requests/`+id+`"`) {
		t.Errorf("the run: %s; want a link to the request that differs", page)
	}
	if _, page := b.Get("/console/money?kind=receipts"); !strings.Contains(page, "differs") {
		t.Errorf("the list: %s", page)
	}
	if answer, file := b.Get("/console/money/export"); answer.StatusCode != http.StatusOK || !strings.Contains(file, "25.000000001") {
		t.Errorf("the export: got %d %s", answer.StatusCode, file)
	}
}

func TestQuarantinedEventIsShownAndGivenUp(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	if _, page := b.Get("/console/quarantine"); !strings.Contains(page, "No event waits") {
		t.Errorf("without events: %s", page)
	}
	id := w.Quarantined(a.ID)
	list, err := w.API.ListQuarantine(t.Context(), nil)
	servertest.Check(t, err)
	if len(list.Value.Data) != 1 {
		t.Fatalf("got %s", list.Body)
	}
	_, page := b.Get("/console/quarantine")
	_, at, _ := strings.Cut(page, `class="row" href="`)
	at, _, _ = strings.Cut(at, `"`)
	if answer, page := b.Get(at); answer.StatusCode != http.StatusOK || !strings.Contains(page, id) || !strings.Contains(page, "9007199254740993") || !strings.Contains(page, a.ID) {
		t.Errorf("%s: got %d %s", at, answer.StatusCode, page)
	}
	if _, page := b.Get(at + "/settle"); !strings.Contains(page, "9007199.254740993") {
		t.Errorf("the form: %s; want the exact cost", page)
	}
	if answer, page := b.Fill(at + "/settle"); answer.StatusCode != http.StatusConflict || !strings.Contains(page, "cannot be settled") {
		t.Errorf("settle: got %d %s", answer.StatusCode, page)
	}
	number := at[strings.LastIndexByte(at, '/')+1:]
	if answer, page := b.Fill(at+"/dismiss", "reason", "made by a test", "confirmation", number); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("give up: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(at); !strings.Contains(page, "made by a test") || strings.Contains(page, "/dismiss") {
		t.Errorf("afterwards: %s", page)
	}
}

func TestRefusalsTellWhatWasShort(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	if answer, page := b.Get("/console/refusals"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "No request was refused") || !strings.Contains(page, "Refusals of the last day by hour") {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Get("/console/refusals?account_id=" + a.ID + "&from=2026-01-01"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "No refusal matches") || strings.Contains(page, "Refusals of the last day") {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
}
