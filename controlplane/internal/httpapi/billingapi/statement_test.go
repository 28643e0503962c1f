package billingapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/price"
)

func TestStatement(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	paid := b.Credit(a.ID, "10.00", "=cmd")
	p := b.Proxy("p")
	for range 2 {
		p.Report(k, time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000, Output: 100_000})
	}
	reason := "paid \"twice\", back"
	corrected, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: "-1.25", Kind: adminclient.CreditKindCorrection, Reference: "c", Reason: &reason,
	}))
	servertest.Check(t, err)
	today := time.Now().UTC()
	from, to := today.AddDate(0, 0, -1).Format(time.DateOnly), today.AddDate(0, 0, 2).Format(time.DateOnly)
	r, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &adminclient.GetStatementParams{From: &from, To: &to, GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupModel}}))
	servertest.Check(t, err)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("statement: %s", r.Body)
	}
	want := adminclient.Statement{
		AccountID: a.ID, Currency: "USD", From: from, To: to, TimeZone: "UTC", OpeningBalance: "0.00", Payments: "10.00", Promotions: "0.00", Expired: "0.00", Refunds: "0.00", Corrections: "-1.25", Usage: "3.00",
		ClosingBalance: "5.75", Transactions: []adminclient.Transaction{*paid, *corrected.Value},
		UsageLines: []adminclient.UsageTotal{{Model: new("demo-chat"), Requests: 2, Input: 2_000_000, Output: 200_000, Cost: "3.00"}},
	}
	if diff := cmp.Diff(want, *r.Value); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}
	month := today.Format("2006-01")
	whole, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &adminclient.GetStatementParams{Month: &month}))
	servertest.Check(t, err)
	if whole.StatusCode != http.StatusOK || whole.Value.From != month+"-01" || whole.Value.ClosingBalance != "5.75" || len(whole.Value.UsageLines) != 1 ||
		*whole.Value.UsageLines[0].KeyID != k.ID || whole.Value.UsageLines[0].Day == nil {
		t.Errorf("statement of the month: %s", whole.Body)
	}

	table, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &adminclient.GetStatementParams{From: &from, To: &to, GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupModel}},
		adminclient.WithHeader("Accept", "text/csv")))
	servertest.Check(t, err)
	lines := strings.Join([]string{
		"line,date,transaction_id,reference,reason,request_id,project_id,key_id,model,service_tier,requests,amount,currency",
		"opening_balance," + from + ",,,,,,,,,,0.00,USD",
		"payment," + paid.CreatedAt.UTC().Format(time.RFC3339Nano) + "," + paid.ID + ",'=cmd,,,,,,,,10.00,USD",
		"correction," + corrected.Value.CreatedAt.UTC().Format(time.RFC3339Nano) + "," + corrected.Value.ID + `,c,"paid ""twice"", back",,,,,,,-1.25,USD`,
		"usage,,,,,,,,demo-chat,,2,-3.00,USD",
		"closing_balance," + to + ",,,,,,,,,,5.75,USD", "",
	}, "\r\n")
	if diff := cmp.Diff(lines, string(table.Body)); diff != "" || table.Header.Get("Content-Type") != "text/csv" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestInvalidStatementIsRejected(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	day, before, never, month := "2026-10-02", "2026-10-01", "2026-13-01", "2026-13"
	for name, params := range map[string]adminclient.GetStatementParams{
		"no period":          {},
		"only from":          {From: &day},
		"ends before":        {From: &day, To: &before},
		"empty":              {From: &day, To: &day},
		"too long":           {From: new("2020-01-01"), To: &day},
		"no day":             {From: &before, To: &never},
		"no month":           {Month: &month},
		"of a month to come": {Month: new(time.Now().AddDate(0, 2, 0).Format("2006-01"))},
		"of days to come":    {From: new(time.Now().AddDate(0, 0, 2).Format(time.DateOnly)), To: new(time.Now().AddDate(0, 0, 3).Format(time.DateOnly))},
		"in no zone":         {Month: new("2026-10"), TimeZone: new("Europe/Atlantis")},
		"long in a zone":     {From: new("2026-08-01"), To: &before, TimeZone: new("Asia/Kathmandu")},
		"both":               {Month: new("2026-10"), From: &before},
		"by account":         {Month: new("2026-10"), GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupAccount}},
		"by nothing real":    {Month: new("2026-10"), GroupBy: []adminclient.UsageGroup{"week"}},
	} {
		r, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &params))
		servertest.Check(t, err)
		if r.Problem == nil || r.Problem.Status != http.StatusBadRequest {
			t.Errorf("%s: got %s; want it refused", name, r.Body)
		}
	}
	r, err := servertest.Answered(b.API.GetStatement(t.Context(), "acc_00000000000070008000000000000000", &adminclient.GetStatementParams{Month: new("2026-10")}))
	servertest.Check(t, err)
	servertest.Problem(t, r.Problem, http.StatusNotFound, "not_found")
}

// A portal shows days and months of its customers' zone.
func TestDaysAreThoseOfTheTimeZone(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	k := b.Key(b.Account(1).ID, "")
	p := b.Proxy("p")
	midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	p.Report(k, midnight.Add(-6*time.Hour), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})                // 23:45 of the day before
	p.Report(k, midnight.Add(-5*time.Hour-45*time.Minute), b.Sheet("demo-chat"), price.Usage{Input: 2_000_000}) // midnight
	from, to, zone := midnight.AddDate(0, 0, -1).Format(time.DateOnly), midnight.AddDate(0, 0, 1).Format(time.DateOnly), "Asia/Kathmandu"
	by := []adminclient.UsageGroup{adminclient.UsageGroupDay}
	totals, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &adminclient.GetUsageTotalsParams{KeyID: &k.ID, From: &from, To: &to, TimeZone: &zone, GroupBy: by}))
	servertest.Check(t, err)
	want := []adminclient.UsageTotal{
		{Day: &from, Requests: 1, Input: 1_000_000, Cost: "1.00"}, {Day: new(midnight.Format(time.DateOnly)), Requests: 1, Input: 2_000_000, Cost: "2.00"},
	}
	if diff := cmp.Diff(want, totals.Value.Data); diff != "" || totals.Value.TimeZone != zone {
		t.Errorf("totals in %s (-want +got):\n%s", totals.Value.TimeZone, diff)
	}
	month := time.Now().In(time.FixedZone("", 5*3600+45*60)).Format("2006-01") // what is booked now is in this month there
	made, err := servertest.Answered(b.API.GetStatement(t.Context(), k.AccountID, &adminclient.GetStatementParams{Month: &month, TimeZone: &zone}))
	servertest.Check(t, err)
	if made.Value == nil || made.Value.TimeZone != zone || made.Value.Usage != "3.00" || made.Value.ClosingBalance != "-3.00" {
		t.Errorf("the statement: %s", made.Body)
	}
	for name, params := range map[string]adminclient.GetUsageTotalsParams{
		"of everybody": {From: &from, To: &to, TimeZone: &zone},
		"for ever":     {KeyID: &k.ID, TimeZone: &zone},
		"for a year":   {KeyID: &k.ID, From: new("2025-01-01"), To: &to, TimeZone: &zone},
		"of no zone":   {KeyID: &k.ID, From: &from, To: &to, TimeZone: new("Local")},
	} {
		r, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &params))
		servertest.Check(t, err)
		if r.Problem == nil || r.Problem.Status != http.StatusBadRequest {
			t.Errorf("totals %s: got %s; want them refused", name, r.Body)
		}
	}
}

func TestUsageTotals(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	first, second := b.Account(1), b.Account(1)
	k, other := b.Key(first.ID, ""), b.Key(second.ID, "")
	p := b.Proxy("p")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	p.Report(k, today.AddDate(0, 0, -3), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})
	p.Report(k, today, b.Sheet("demo-chat"), price.Usage{Input: 2_000_000, CacheWrite5m: 3, CacheWrite1h: 4})
	p.Report(other, today, b.Sheet("demo-chat"), price.Usage{Output: 100_000})
	totals := func(params adminclient.GetUsageTotalsParams) []adminclient.UsageTotal {
		t.Helper()
		var found []adminclient.UsageTotal
		for {
			r, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &params))
			servertest.Check(t, err)
			if r.StatusCode != http.StatusOK || r.Value.Currency != "USD" {
				t.Fatalf("totals: %s", r.Body)
			}
			found = append(found, r.Value.Data...)
			if params.Cursor = r.Value.NextCursor; params.Cursor == nil {
				return found
			}
		}
	}
	day := func(d time.Time) *string { return new(d.Format(time.DateOnly)) }
	one := 1
	got := totals(adminclient.GetUsageTotalsParams{GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupDay, adminclient.UsageGroupAccount}, AccountID: &first.ID, Limit: &one})
	want := []adminclient.UsageTotal{
		{Day: day(today.AddDate(0, 0, -3)), AccountID: &first.ID, Requests: 1, Input: 1_000_000, Cost: "1.00"},
		{Day: day(today), AccountID: &first.ID, Requests: 1, Input: 2_000_000, CacheWrite: 7, Cost: "4.000014"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by day and account, page by page (-want +got):\n%s", diff)
	}
	got = totals(adminclient.GetUsageTotalsParams{From: day(today)})
	if len(got) != 1 || got[0].Requests != 2 || got[0].Cost != "4.500014" || got[0].Day != nil {
		t.Errorf("of today: %+v", got)
	}
	got = totals(adminclient.GetUsageTotalsParams{KeyID: &other.ID, GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupKey, adminclient.UsageGroupModel}})
	if len(got) != 1 || *got[0].KeyID != other.ID || *got[0].Model != "demo-chat" || got[0].Output != 100_000 {
		t.Errorf("of a key: %+v", got)
	}
	r, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &adminclient.GetUsageTotalsParams{
		GroupBy: []adminclient.UsageGroup{"week"}, From: new("today"), AccountID: new("x"), Cursor: new("e30x"),
	}))
	servertest.Check(t, err)
	if p := r.Problem; p == nil || len(p.Errors) != 4 {
		t.Errorf("got %s; want four fields refused", r.Body)
	}
}
