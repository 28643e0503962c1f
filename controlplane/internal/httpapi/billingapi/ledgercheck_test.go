package billingapi_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

func (b *server) startCheck(kind adminclient.LedgerCheckStartKind) *adminclient.LedgerCheckRun {
	b.T.Helper()
	r, err := servertest.Answered(b.API.StartLedgerCheck(b.T.Context(), nil, adminclient.LedgerCheckStart{Kind: kind}))
	servertest.Check(b.T, err)
	if r.StatusCode != http.StatusAccepted {
		b.T.Fatalf("start check: %s", r.Body)
	}
	return r.Value
}

func TestLedgerChecksRunInTheBackground(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	b.Credit(a.ID, "10.00", "r")
	k := b.Key(a.ID, "")
	at := time.Now().Truncate(time.Millisecond)
	id := b.Proxy("p1").Report(k, at, b.Sheet("demo-chat"), price.Usage{Input: 1000})

	whole, receipts := b.startCheck(adminclient.LedgerCheckStartKindAll), b.startCheck(adminclient.LedgerCheckStartKindReceipts)
	if whole.State != adminclient.LedgerCheckStateWaiting || whole.OK != nil {
		t.Errorf("a new run is %+v", whole)
	}
	if again := b.startCheck(adminclient.LedgerCheckStartKindAll); again.ID != whole.ID {
		t.Errorf("started %s beside the open run %s", again.ID, whole.ID)
	}
	for range 3 {
		servertest.Check(t, b.Checks.Work(t.Context()))
	}
	for _, run := range []*adminclient.LedgerCheckRun{whole, receipts} {
		got, err := servertest.Answered(b.API.GetLedgerCheck(t.Context(), run.ID))
		servertest.Check(t, err)
		if r := got.Value; r.State != adminclient.LedgerCheckStateDone || r.OK == nil || !*r.OK || r.Done != r.Total || r.Done == 0 || len(r.Checks) == 0 || r.EndedAt == nil {
			t.Errorf("ended: %s", got.Body)
		}
	}

	// A changed charge is found by both, and the operator is notified.
	b.Exec("alter table usage_records disable trigger all")
	b.Exec("alter table usage_records_" + time.Now().UTC().Format("200601") + " disable trigger all")
	b.Exec("update usage_records set cost = cost + 1")
	b.startCheck(adminclient.LedgerCheckStartKindReceipts)
	servertest.Check(t, b.Checks.Work(t.Context()))
	list, err := servertest.Answered(b.API.ListLedgerChecks(t.Context(), &adminclient.ListLedgerChecksParams{Kind: new(adminclient.LedgerCheckKindReceipts)}))
	servertest.Check(t, err)
	if len(list.Value.Data) != 2 || *list.Value.Data[0].OK || list.Value.Data[0].Checks[0].First.Row != "request "+id || !*list.Value.Data[1].OK {
		t.Errorf("receipts: %s", list.Body)
	}
	if !slices.Equal(b.Notified, []string{"receipts"}) {
		t.Errorf("notified of %v; want the receipts", b.Notified)
	}
	log, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Action: new("ledger_check.start")}))
	servertest.Check(t, err)
	if len(log.Value.Data) != 3 {
		t.Errorf("audit: %s", log.Body)
	}
}

func TestPeriodicLedgerChecksAreKept(t *testing.T) {
	t.Parallel()
	b := start(t)
	store := moneystore.NewLedgerCheck(b.DB)
	for i := range 3 {
		id := ledgercheck.ID(ident.NewAt(time.UnixMilli(int64(i + 1))))
		servertest.Check(t, store.Record(t.Context(), id, ledgercheck.Changed, &ledger.Report{Checks: []ledger.Check{{Name: "c", Compared: int64(i)}}}))
	}
	servertest.Check(t, store.DeleteOld(t.Context(), ledgercheck.Changed, 2))
	list, err := servertest.Answered(b.API.ListLedgerChecks(t.Context(), nil))
	servertest.Check(t, err)
	var compared []int64
	for _, r := range list.Value.Data {
		compared = append(compared, r.Checks[0].Compared)
	}
	if !slices.Equal(compared, []int64{2, 1}) || list.Value.Data[0].Actor != "system" {
		t.Errorf("kept: %s", list.Body)
	}
}

// A run whose replica ended is executed by another one, and the first can write nothing any more.
func TestLedgerCheckIsTakenOverWhenItsClaimExpires(t *testing.T) {
	t.Parallel()
	b := start(t)
	run := b.startCheck(adminclient.LedgerCheckStartKindAll)
	store := moneystore.NewLedgerCheck(b.DB)
	first, err := store.Claim(t.Context(), time.Hour)
	servertest.Check(t, err)
	if _, err := store.Claim(t.Context(), time.Hour); err == nil {
		t.Error("a claimed run was claimed again")
	}
	first.Done, first.Total = 4, 9
	servertest.Check(t, store.Advance(t.Context(), &first, time.Hour))
	got, err := servertest.Answered(b.API.GetLedgerCheck(t.Context(), run.ID))
	servertest.Check(t, err)
	if r := got.Value; r.State != adminclient.LedgerCheckStateRunning || r.Done != 4 || r.Total != 9 {
		t.Errorf("progress: %s", got.Body)
	}
	b.Exec("update ledger_checks set claimed_until = clock_timestamp() - interval '1 second'")
	servertest.Check(t, b.Checks.Work(t.Context()))
	for name, err := range map[string]error{"progress": store.Advance(t.Context(), &first, time.Hour), "result": store.End(t.Context(), &first)} {
		if err != ledgercheck.ErrClaimLost { //nolint:errorlint // exactly this
			t.Errorf("%s of the first replica: got %v; want it refused", name, err)
		}
	}
}

func TestLedgerChecksRejectInvalidInput(t *testing.T) {
	t.Parallel()
	b := start(t)
	r, err := servertest.Answered(b.API.StartLedgerCheck(t.Context(), nil, adminclient.LedgerCheckStart{Kind: "changed"}))
	servertest.Check(t, err)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	list, err := servertest.Answered(b.API.ListLedgerChecks(t.Context(), &adminclient.ListLedgerChecksParams{Kind: new(adminclient.LedgerCheckKind("x"))}))
	servertest.Check(t, err)
	servertest.Problem(t, list.Problem, http.StatusBadRequest, "invalid_input")
	for _, id := range []string{"chk_1", ident.LedgerCheck.New()} {
		got, err := servertest.Answered(b.API.GetLedgerCheck(t.Context(), id))
		servertest.Check(t, err)
		servertest.Problem(t, got.Problem, http.StatusNotFound, "not_found")
	}
}

func TestLedgerBooks(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	b.Credit(a.ID, "10.00", "r")
	_, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: "-9.50", Kind: adminclient.CreditKindCorrection, Reference: "c", Reason: new("a test"),
	}))
	servertest.Check(t, err)
	b.Proxy("p1").Report(b.Key(a.ID, ""), time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})
	got, err := servertest.Answered(b.API.GetLedgerBooks(t.Context(), nil))
	servertest.Check(t, err)
	want := []adminclient.LedgerBook{
		{LedgerAccount: "customer", Payments: "10.00", Promotions: "0.00", Refunds: "0.00", Corrections: "-9.50", Expired: "0.00", Usage: "-1.00", Total: "-0.50"},
		{LedgerAccount: "funding", Payments: "-10.00", Promotions: "0.00", Refunds: "0.00", Corrections: "0.00", Expired: "0.00", Usage: "0.00", Total: "-10.00"},
		{LedgerAccount: "promotion", Payments: "0.00", Promotions: "0.00", Refunds: "0.00", Corrections: "0.00", Expired: "0.00", Usage: "0.00", Total: "0.00"},
		{LedgerAccount: "adjustment", Payments: "0.00", Promotions: "0.00", Refunds: "0.00", Corrections: "9.50", Expired: "0.00", Usage: "0.00", Total: "9.50"},
		{LedgerAccount: "breakage", Payments: "0.00", Promotions: "0.00", Refunds: "0.00", Corrections: "0.00", Expired: "0.00", Usage: "0.00", Total: "0.00"},
		{LedgerAccount: "revenue", Payments: "0.00", Promotions: "0.00", Refunds: "0.00", Corrections: "0.00", Expired: "0.00", Usage: "1.00", Total: "1.00"},
	}
	if diff := cmp.Diff(want, got.Value.Books); diff != "" {
		t.Errorf("books (-want +got):\n%s", diff)
	}
	if v := got.Value; v.Sum != "0.00" || v.NegativeAccounts != 1 || v.Overdrawn != "0.50" || v.Currency != "USD" {
		t.Errorf("sums: %s", got.Body)
	}
	today := time.Now().UTC()
	for name, period := range map[string]struct {
		from, to int
		total    string
	}{"today": {0, 1, "-0.50"}, "yesterday": {-1, 0, "0.00"}, "tomorrow": {1, 2, "0.00"}} {
		from, to := today.AddDate(0, 0, period.from).Format(time.DateOnly), today.AddDate(0, 0, period.to).Format(time.DateOnly)
		r, err := servertest.Answered(b.API.GetLedgerBooks(t.Context(), &adminclient.GetLedgerBooksParams{From: &from, To: &to}))
		servertest.Check(t, err)
		if got := r.Value.Books[0].Total; got != period.total {
			t.Errorf("%s: customers have %s; want %s", name, got, period.total)
		}
	}
	bad, err := servertest.Answered(b.API.GetLedgerBooks(t.Context(), &adminclient.GetLedgerBooksParams{From: new("2026-10-02"), To: new("2026-10-01")}))
	servertest.Check(t, err)
	servertest.Problem(t, bad.Problem, http.StatusBadRequest, "invalid_input")
}
