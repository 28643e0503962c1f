package console_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

func TestCheckOfTheLedgerIsStartedAndShown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, k := w.account("Example")
	id := w.request(k, event.Completed, price.Usage{Input: 1000})
	b := w.signedIn(bootstrapToken)
	if answer, page := b.get("/console/money"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "has not run yet") || !strings.Contains(page, "25.000000001") {
		t.Errorf("before: got %d %s", answer.StatusCode, page)
	}
	for _, sql := range []string{
		"alter table usage_records disable trigger all", "alter table usage_records_" + time.Now().UTC().Format("200601") + " disable trigger all",
		"update usage_records set cost = cost + 1",
	} {
		_, err := w.pool.Exec(t.Context(), sql)
		check(t, err)
	}
	answer, page := b.fill("/console/money/start", "kind", "receipts")
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	at := answer.Header.Get("Location")
	check(t, w.checks.Work(t.Context()))
	if _, page := b.get(at); !strings.Contains(page, "differs") || !strings.Contains(page, `href="/console/requests/`+id+`"`) {
		t.Errorf("the run: %s; want a link to the request that differs", page)
	}
	if _, page := b.get("/console/money?kind=receipts"); !strings.Contains(page, "differs") {
		t.Errorf("the list: %s", page)
	}
	if answer, file := b.get("/console/money/export"); answer.StatusCode != http.StatusOK || !strings.Contains(file, "25.000000001") {
		t.Errorf("the export: got %d %s", answer.StatusCode, file)
	}
}

// quarantine puts an event into quarantine: its key does not exist. It returns the request's id.
func (w *world) quarantine(account string) string {
	w.t.Helper()
	id, now := ident.Request.New(), time.Now().UnixMilli()
	raw, err := json.Marshal(event.Usage{
		V: event.Version, RequestID: id, Session: 1, Seq: 1, AccountID: account, KeyID: ident.Key.New(), Model: "m", Format: "chat", Status: event.Completed,
		StartedMS: now, FinishedMS: now, Usage: price.Usage{Input: 1}, Rule: event.RuleReported, PriceVersion: 1, Cost: 9_007_199_254_740_993,
	})
	check(w.t, err)
	batch, err := json.Marshal(event.Batch{V: 1, Session: 1, Events: []json.RawMessage{raw}})
	check(w.t, err)
	_, err = settle.New(moneystore.NewSettlement(postgres.Wrap(w.pool)), nil).Settle(w.t.Context(), settle.DecodeBatch(batch))
	check(w.t, err)
	return id
}

func TestQuarantinedEventIsShownAndGivenUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, _ := w.account("Example")
	b := w.signedIn(bootstrapToken)
	if _, page := b.get("/console/quarantine"); !strings.Contains(page, "No event waits") {
		t.Errorf("without events: %s", page)
	}
	id := w.quarantine(a.ID)
	list, err := w.api.ListQuarantine(t.Context(), nil)
	check(t, err)
	if len(list.Value.Data) != 1 {
		t.Fatalf("got %s", list.Body)
	}
	_, page := b.get("/console/quarantine")
	_, at, _ := strings.Cut(page, `class="row" href="`)
	at, _, _ = strings.Cut(at, `"`)
	if answer, page := b.get(at); answer.StatusCode != http.StatusOK || !strings.Contains(page, id) || !strings.Contains(page, "9007199254740993") || !strings.Contains(page, a.ID) {
		t.Errorf("%s: got %d %s", at, answer.StatusCode, page)
	}
	if _, page := b.get(at + "/settle"); !strings.Contains(page, "9007199.254740993") {
		t.Errorf("the form: %s; want the exact cost", page)
	}
	if answer, page := b.fill(at + "/settle"); answer.StatusCode != http.StatusConflict || !strings.Contains(page, "cannot be settled") {
		t.Errorf("settle: got %d %s", answer.StatusCode, page)
	}
	number := at[strings.LastIndexByte(at, '/')+1:]
	if answer, page := b.fill(at+"/dismiss", "reason", "made by a test", "confirmation", number); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("give up: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.get(at); !strings.Contains(page, "made by a test") || strings.Contains(page, "/dismiss") {
		t.Errorf("afterwards: %s", page)
	}
}

func TestRefusalsTellWhatWasShort(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, _ := w.account("Example")
	b := w.signedIn(bootstrapToken)
	if answer, page := b.get("/console/refusals"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "No request was refused") || !strings.Contains(page, "Refusals of the last day by hour") {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.get("/console/refusals?account_id=" + a.ID + "&from=2026-01-01"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "No refusal matches") || strings.Contains(page, "Refusals of the last day") {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
}
