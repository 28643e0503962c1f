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

// Usage is summed by the service tier that was charged, in totals of any accounts and days, statements and exports. The default one is one
// row, whether the model has others or not.
func TestUsageByServiceTier(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(strings.Replace(servertest.DemoCatalog, `      secondary: [{kind: image_tool`, `      service_tiers:
        - {name: flex, input: "0.50", cached_input: "0.05", output: "2.50", tiers: [{above_input: 2000000, input: "1.00", output: "3.00"}]}
        - {name: priority, input: "4.00", cached_input: "0.40", output: "20.00", tiers: [{above_input: 2000000, input: "8.00", output: "30.00"}]}
      secondary: [{kind: image_tool`, 1))
	a := b.Account(1)
	k := b.Key(a.ID, "")
	p := b.Proxy("p")
	now := time.Now().UTC()
	for _, tier := range []string{"", "default", "priority", "flex", "priority"} {
		p.Report(k, now, b.Sheet("demo-chat"), price.Usage{Input: 1_000_000, ServiceTier: tier})
	}

	tierOf := func(name string, requests int64, cost string) adminclient.UsageTotal {
		return adminclient.UsageTotal{ServiceTier: &name, Requests: requests, Input: requests * 1_000_000, Cost: cost}
	}
	want := []adminclient.UsageTotal{tierOf("default", 2, "2.00"), tierOf("flex", 1, "0.50"), tierOf("priority", 2, "8.00")}
	const tier = adminclient.UsageGroupServiceTier
	today, tomorrow := now.AddDate(0, 0, -1).Format(time.DateOnly), now.AddDate(0, 0, 2).Format(time.DateOnly)
	account := adminclient.UsageGroupAccount
	for name, params := range map[string]adminclient.GetUsageTotalsParams{
		"of all":         {GroupBy: []adminclient.UsageGroup{tier}},
		"by day":         {GroupBy: []adminclient.UsageGroup{tier, adminclient.UsageGroupDay}},
		"by account":     {GroupBy: []adminclient.UsageGroup{tier, account}},
		"of all by both": {GroupBy: []adminclient.UsageGroup{tier, account, adminclient.UsageGroupDay, adminclient.UsageGroupModel}},
		"of the account": {GroupBy: []adminclient.UsageGroup{tier}, AccountID: &a.ID},
		"in a zone":      {GroupBy: []adminclient.UsageGroup{tier}, AccountID: &a.ID, From: &today, To: &tomorrow, TimeZone: new("Asia/Kathmandu")},
	} {
		params.Limit = new(1)
		var got []adminclient.UsageTotal
		for {
			page, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &params))
			servertest.Check(t, err)
			if page.Value == nil {
				t.Fatalf("totals %s: %s", name, page.Body)
			}
			for _, total := range page.Value.Data {
				total.Day, total.AccountID, total.Model = nil, nil, nil
				got = append(got, total)
			}
			if params.Cursor = page.Value.NextCursor; params.Cursor == nil {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("totals %s, page by page (-want +got):\n%s", name, diff)
		}
	}

	period := adminclient.GetStatementParams{From: &today, To: &tomorrow, GroupBy: []adminclient.UsageGroup{tier}}
	statement, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &period))
	servertest.Check(t, err)
	if statement.Value == nil || statement.Value.Usage != "10.50" {
		t.Fatalf("statement: %s", statement.Body)
	}
	if diff := cmp.Diff(want, statement.Value.UsageLines); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}
	table, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &period, adminclient.WithHeader("Accept", "text/csv")))
	servertest.Check(t, err)
	for _, line := range []string{"usage,,,,,,,,,default,2,-2.00,USD", "usage,,,,,,,,,flex,1,-0.50,USD", "usage,,,,,,,,,priority,2,-8.00,USD"} {
		if !strings.Contains(string(table.Body), line+"\r\n") {
			t.Errorf("the table of the statement has no line %s: %s", line, table.Body)
		}
	}
	csv, records := b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, "/admin/v1/usage/export?format=csv&account_id="+a.ID, "", "")
	if csv.StatusCode != http.StatusOK || strings.Count(records, "priority") != 2 || strings.Count(records, "flex") != 1 {
		t.Errorf("export: got %s", records)
	}
}
