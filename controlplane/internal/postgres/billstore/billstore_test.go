package billstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

const unit = money.Unit

// yesterday is a day whose usage is complete.
var yesterday = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)

// at is a time of yesterday.
func at(hour int) time.Time { return yesterday.Add(time.Duration(hour) * time.Hour) }

func usage(when time.Time, providerID string, cost money.Nano) record {
	return record{
		id:         ident.NewAt(when),
		at:         when,
		route:      "rte-1",
		providerID: providerID,
		cost:       cost,
	}
}

// rows returns a bill of yesterday.
func rows(lines ...string) string {
	return "day,model,amount,request_id\n" + strings.ReplaceAll(strings.Join(lines, "\n"), "DAY", yesterday.Format(time.DateOnly)) + "\n"
}

// with sets the credential of a record.
func (r record) with(credential string) record { r.credential = credential; return r }

// kinds returns what a bill differs by.
func kinds(bill *providerbill.Bill) string {
	var text []string
	for _, part := range bill.Comparison.Parts {
		text = append(text, fmt.Sprintf("%s +%s -%s", part.Kind, part.Over, part.Under))
	}
	return strings.Join(text, ", ")
}

// The same content is the same bill, packed or not, and everything of a bill goes with it. Nothing else changes.
func TestFileIsImportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert("maker", usage(at(1), "a", unit))
	text := rows("DAY,demo-1,1.5,a")
	first := w.mustImport(text)
	again, created, err := w.importFile(text, nil)
	if err != nil || created || again.ID != first.ID {
		t.Fatalf("the second import gives %v, created %v, %v", again, created, err)
	}
	for name, change := range map[string]func(*providerbill.Options){
		"provider":   func(o *providerbill.Options) { o.Provider = "other" },
		"credential": func(o *providerbill.Options) { o.Credential = "main" },
		"time zone":  func(o *providerbill.Options) { o.TimeZone = "Asia/Tokyo" },
	} {
		if _, _, err := w.importFile(text, change); !errors.Is(err, providerbill.ErrImported) {
			t.Errorf("with another %s: %v; want %v", name, err, providerbill.ErrImported)
		}
	}
	if n := storetest.Scalar[int](w, "select count(*) from provider_bill_lines"); n != 1 {
		t.Errorf("%d lines are stored; want 1", n)
	}
	if err := w.bills.Delete(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	left := storetest.Scalar[int](w, `select (select count(*) from provider_bills) + (select count(*) from provider_bill_lines)
		+ (select count(*) from provider_bill_differences)`)
	if left != 0 {
		t.Errorf("%d rows are left", left)
	}
	if err := w.bills.Delete(t.Context(), first.ID); !errors.Is(err, providerbill.ErrNotFound) {
		t.Errorf("the second deletion: %v", err)
	}
	if booked := storetest.Scalar[int](w, "select count(*) from ledger_transactions"); booked != 0 {
		t.Errorf("%d ledger transactions", booked)
	}
	if n := storetest.Scalar[string](w, "select string_agg(action, ' ' order by id) from audit_log"); n != "bill.import bill.delete" {
		t.Errorf("audit log: %s", n)
	}
}

// A file that is refused leaves nothing behind, wherever it is wrong.
func TestRefusedFileLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert("maker", usage(at(1), "a", unit).with("main"))
	long := strings.Repeat("DAY,demo-1,1,\n", 25_000)
	for name, test := range map[string]struct {
		text   string
		change func(*providerbill.Options)
		place  string
	}{
		"the last line":       {rows(long + "DAY,demo-1,x,"), nil, "line 25002, amount"},
		"another currency":    {strings.ReplaceAll(rows("DAY,demo-1,1,EUR"), "request_id", "currency"), nil, "file"},
		"another format":      {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.Format = providerbill.FOCUS }, "format"},
		"no format":           {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.Format = "xml" }, "format"},
		"no provider":         {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.Provider = "nobody" }, "provider"},
		"no zone":             {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.TimeZone = "Mars/Base" }, "time_zone"},
		"the machine's zone":  {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.TimeZone = "Local" }, "time_zone"},
		"half a pair":         {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.Credential = "a=b,c" }, "credential"},
		"no credential":       {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.Credential = "mian" }, "credential"},
		"no credential among": {rows("DAY,demo-1,1,"), func(o *providerbill.Options) { o.Credential = "proj_a=main,proj_b=batsh" }, "credential"},
		"a day in the future": {"day,amount\n2190-01-01,1\n", nil, "file"},
	} {
		_, _, err := w.importFile(test.text, test.change)
		found, is := validation.As(err)
		if !is || found[0].Path != test.place {
			t.Errorf("%s: %v; want a problem of %s", name, err, test.place)
		}
	}
	if _, _, err := w.importFile("day,amount\n2020-01-01,1\n", nil); !errors.Is(err, providerbill.ErrRecordsDropped) {
		t.Errorf("a bill of days without records: %v", err)
	}
	left := storetest.Scalar[int](w, "select (select count(*) from provider_bills) + (select count(*) from provider_bill_lines)")
	if left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

func TestComparisonsOverRealTables(t *testing.T) {
	t.Parallel()
	boundary := yesterday.Add(-10 * time.Minute)
	for name, test := range map[string]struct {
		records []record
		text    string
		change  func(*providerbill.Options)
		want    string
	}{
		"equal, by request": {[]record{usage(at(1), "a", unit)}, rows("DAY,demo-1,1.000000000,a"), nil, ""},
		"a request of the day before": {
			[]record{usage(boundary, "a", unit)}, rows("DAY,demo-1,1.000000000,a"), nil, "",
		},
		"two records with one id": {[]record{usage(at(1), "a", unit), usage(at(2), "a", unit)}, rows("DAY,demo-1,2.000000000,a"), nil, ""},
		"an unknown price": {
			[]record{usage(at(1), "a", -1)}, rows("DAY,demo-1,2.000000000,a"), nil, "no_price +2.00 -0.00",
		},
		"a line that was taken back": {
			[]record{usage(at(1), "a", unit)}, rows("DAY,demo-1,1.000000000,a", "DAY,demo-1,-1.000000000,a"), nil, "credited +0.00 -1.00",
		},
		"lines with and without a request": {
			[]record{usage(at(1), "a", unit), usage(at(2), "", unit)}, rows("DAY,demo-1,1.000000000,a", "DAY,demo-1,1.000000000,"), nil, "",
		},
		"a repeated line of a day": {
			[]record{usage(at(1), "a", 5*unit), usage(at(2), "b", 3*unit)},
			rows("DAY,demo-1,5.000000000,", "DAY,demo-1,3.000000000,", "DAY,demo-1,3.000000000,"), nil,
			"billed_twice +2.999999995 -0.00, rounding +0.000000005 -0.00",
		},
		"parts of a nano-unit": {
			[]record{usage(at(1), "a", 1)}, rows(strings.Repeat("DAY,demo-1,0.0000000001,\n", 10)), nil, "",
		},
		"tokens": {
			[]record{usage(at(1), "a", unit), usage(at(2), "b", unit)},
			"day,model,requests,input_tokens,output_tokens\n" + yesterday.Format(time.DateOnly) + ",demo-1,2,30,11\n", nil, "unexplained +0.000000001 -0.00",
		},
		"a zone": {
			[]record{usage(at(2), "a", unit)},
			"day,model,amount\n" + yesterday.AddDate(0, 0, -1).Format(time.DateOnly) + ",demo-1,1.000000000\n",
			func(o *providerbill.Options) { o.TimeZone = "America/Los_Angeles" }, "",
		},
		"a bill that ends at noon": {
			[]record{usage(at(1), "a", unit), usage(at(13), "b", unit)},
			rows("DAYT01:00:00Z,demo-1,1.000000000,a", "DAYT12:00:00Z,demo-1,0,c"), nil, "after_end +0.00 -1.00",
		},
		"all of one credential": {
			[]record{usage(at(1), "a", unit).with("main"), usage(at(2), "b", unit).with("batch")},
			rows("DAY,demo-1,1.000000000,"),
			func(o *providerbill.Options) { o.Credential = "batch" }, "",
		},
		"names of credentials": {
			[]record{usage(at(1), "a", unit).with("main"), usage(at(2), "b", 2*unit).with("batch")},
			strings.ReplaceAll("day,credential,amount\nDAY,proj_a,1.000000000\nDAY,proj_b,2.000000000\nDAY,proj_c,3.000000000\n", "DAY", yesterday.Format(time.DateOnly)),
			func(o *providerbill.Options) { o.Credential = "proj_a=main, proj_b=batch" }, "unknown_call +2.999999999 -0.00, rounding +0.000000001 -0.00",
		},
		"a call that served nobody": {
			[]record{{
				id: ident.NewAt(at(1)), at: at(1), route: "elsewhere", providerID: "x", cost: 7 * unit,
				attempts: `[{"route": "rte-1", "provider": "other", "usage": {"input": 1}, "provider_cost": 1}, {"route": "rte-1", "provider": "maker"},
					{"route": "rte-1", "provider": "maker", "provider_request_id": "a", "usage": {"input": 1}, "provider_cost": 1000000000}]`,
			}}, rows("DAY,demo-1,7.000000000,x", "DAY,demo-1,1.000000000,a"), nil, "",
		},
		"a fractional rest of a negative line": {[]record{usage(at(1), "a", unit)}, rows("DAY,demo-1,1.5,a", "DAY,demo-1,-0.4999999999999,a"), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.insert("maker", test.records...)
			bill, _, err := w.importFile(test.text, test.change)
			if err != nil {
				t.Fatal(err)
			}
			if got := kinds(bill); got != test.want {
				t.Errorf("differs by %q; want %q", got, test.want)
			}
		})
	}
}

// What is settled late is compared again; what somebody has accepted is not, and gives no alarm.
func TestBillIsComparedAgainUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert("maker", usage(at(1), "a", unit))
	bill := w.mustImport(rows("DAY,demo-1,1.000000000,", "DAY,demo-1,2.000000000,"))
	if bill.OpenAmount == 0 {
		t.Fatal("nothing is open")
	}
	overdue := func() int64 {
		t.Helper()
		n, _, err := w.bills.Overdue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := overdue(); n != 0 {
		t.Errorf("%d bills are overdue at once", n)
	}
	w.Exec("update provider_bills set imported_at = imported_at - interval '49 hours', compared_at = compared_at - interval '13 hours'")
	if n := overdue(); n != 1 {
		t.Errorf("%d bills are overdue after 49 hours; want 1", n)
	}

	w.insert("maker", usage(at(3), "b", 2*unit))
	if err := w.bills.CompareDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bill, err := w.bills.Get(t.Context(), bill.ID); err != nil || bill.OpenAmount != 0 || bill.State(time.Now()) != providerbill.Explained {
		t.Errorf("after late usage %s is open, %v", bill.OpenAmount, err)
	}

	w.insert("maker", usage(at(4), "c", unit))
	w.Exec("update provider_bills set compared_at = compared_at - interval '13 hours'")
	if err := w.bills.CompareDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := overdue(); n != 1 {
		t.Errorf("%d bills are overdue; want 1", n)
	}
	accepted, err := w.bills.Accept(t.Context(), bill.ID, " They will credit it. ")
	if err != nil || accepted.AcceptedAs != "They will credit it." || accepted.State(time.Now()) != providerbill.Accepted {
		t.Errorf("accepted %+v, %v", accepted, err)
	}
	if n := overdue(); n != 0 {
		t.Errorf("%d bills are overdue after one was accepted", n)
	}
	if _, err := w.bills.Accept(t.Context(), ident.New(), "x"); !errors.Is(err, providerbill.ErrNotFound) {
		t.Errorf("another bill: %v", err)
	}
}

// Pages of differences are in the order of what is open, and no difference is on two.
func TestDifferencesAreInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert("maker", usage(at(1), "a", unit))
	var lines []string
	for i := range 9 {
		lines = append(lines, fmt.Sprintf("DAY,demo-1,%d.000000000,id-%d", 1+i%3, i), fmt.Sprintf("DAY,x-%d,%d.000000000,twice-%d", i, i%3, i))
	}
	bill := w.mustImport(rows(append(lines, "DAY,demo-1,3.000000000,a")...))
	seen := map[int64]bool{}
	query := providerbill.DifferenceQuery{Limit: 3}
	for {
		page, err := w.bills.Differences(t.Context(), bill.ID, &query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			d := &page[i]
			if seen[d.Number] || (query.AfterNumber > 0 && d.OpenAmount() > query.AfterOpen) {
				t.Errorf("difference %d with %s open comes after %d with %s", d.Number, d.OpenAmount(), query.AfterNumber, query.AfterOpen)
			}
			seen[d.Number], query.AfterNumber, query.AfterOpen = true, d.Number, d.OpenAmount()
		}
		if len(page) < query.Limit {
			break
		}
	}
	if len(seen) != 7 { // six models with amounts that the gateway did not call, and demo-1
		t.Errorf("%d differences; want 7", len(seen))
	}
	open, err := w.bills.Differences(t.Context(), bill.ID, &providerbill.DifferenceQuery{Open: true, Limit: 9})
	if err != nil || len(open) != 1 || open[0].Model != "demo-1" {
		t.Errorf("open: %+v, %v; want demo-1", open, err)
	}
	named, err := w.bills.Differences(t.Context(), bill.ID, &providerbill.DifferenceQuery{Kind: providerbill.UnknownCall, Model: "x-1", Limit: 9})
	if err != nil || len(named) != 1 {
		t.Errorf("unknown calls of x-1: %+v, %v", named, err)
	}
}
