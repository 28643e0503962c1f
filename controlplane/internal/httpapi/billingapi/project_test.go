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

// Usage is counted in the project in which its key was, in records, totals of any days, statements and exports.
func TestUsageOfAProject(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	made, err := servertest.Answered(b.API.CreateProject(t.Context(), a.ID, nil, adminclient.ProjectCreate{Name: "shop"}))
	servertest.Check(t, err)
	shop := made.Value.ID
	k, other := b.Key(a.ID, ""), b.Key(a.ID, "")
	p := b.Proxy("p")
	now := time.Now().UTC()
	before := p.Report(k, now, b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})
	k.ProjectID = &shop
	inside := p.Report(k, now, b.Sheet("demo-chat"), price.Usage{Input: 2_000_000})
	p.Report(other, now, b.Sheet("demo-chat"), price.Usage{Input: 1_000_000})

	record, err := servertest.Answered(b.API.GetUsage(t.Context(), inside))
	servertest.Check(t, err)
	outside, err := servertest.Answered(b.API.GetUsage(t.Context(), before))
	servertest.Check(t, err)
	if *record.Value.ProjectID != shop || outside.Value.ProjectID != nil {
		t.Errorf("records: got %s and %s", record.Body, outside.Body)
	}
	listed, err := servertest.Answered(b.API.ListUsage(t.Context(), &adminclient.ListUsageParams{ProjectID: &shop}))
	servertest.Check(t, err)
	if len(listed.Value.Data) != 1 || listed.Value.Data[0].RequestID != inside {
		t.Errorf("listed: got %s", listed.Body)
	}

	group := []adminclient.UsageGroup{adminclient.UsageGroupProject}
	today, tomorrow := now.AddDate(0, 0, -1).Format(time.DateOnly), now.AddDate(0, 0, 2).Format(time.DateOnly)
	for name, params := range map[string]adminclient.GetUsageTotalsParams{
		"of all":         {GroupBy: group},
		"of the account": {GroupBy: group, AccountID: &a.ID},
		"in a zone":      {GroupBy: group, AccountID: &a.ID, From: &today, To: &tomorrow, TimeZone: new("Asia/Kathmandu")},
	} {
		got, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &params))
		servertest.Check(t, err)
		want := []adminclient.UsageTotal{
			{Requests: 2, Input: 2_000_000, Cost: "2.00"},
			{ProjectID: &shop, Requests: 1, Input: 2_000_000, Cost: "2.00"},
		}
		if diff := cmp.Diff(want, got.Value.Data); diff != "" {
			t.Errorf("totals %s (-want +got):\n%s", name, diff)
		}
		params.ProjectID = &shop
		if got, err = servertest.Answered(b.API.GetUsageTotals(t.Context(), &params)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[1:], got.Value.Data); diff != "" {
			t.Errorf("totals %s, of the project (-want +got):\n%s", name, diff)
		}
		params.ProjectID, params.AccountID = new("none"), &a.ID
		if got, err = servertest.Answered(b.API.GetUsageTotals(t.Context(), &params)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[:1], got.Value.Data); diff != "" {
			t.Errorf("totals %s, of no project (-want +got):\n%s", name, diff)
		}
	}

	statement, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &adminclient.GetStatementParams{From: &today, To: &tomorrow, GroupBy: group}))
	servertest.Check(t, err)
	if lines := statement.Value.UsageLines; len(lines) != 2 || *lines[1].ProjectID != shop || lines[1].Cost != "2.00" {
		t.Errorf("statement: got %s", statement.Body)
	}
	csv, body := b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, "/admin/v1/usage/export?format=csv&project_id="+shop, "", "")
	if csv.StatusCode != http.StatusOK || strings.Count(body, "req_") != 1 || !strings.Contains(body, k.ID+","+shop+",demo-chat") {
		t.Errorf("export: got %s", body)
	}
	unassigned, err := servertest.Answered(b.API.ListUsage(t.Context(), &adminclient.ListUsageParams{AccountID: &a.ID, ProjectID: new("none")}))
	servertest.Check(t, err)
	if len(unassigned.Value.Data) != 2 || strings.Contains(string(unassigned.Body), inside) {
		t.Errorf("listed of no project: got %s", unassigned.Body)
	}
	csv, body = b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, "/admin/v1/usage/export?format=csv&project_id=none&account_id="+a.ID, "", "")
	if csv.StatusCode != http.StatusOK || strings.Count(body, "req_") != 2 || strings.Contains(body, shop) {
		t.Errorf("export of no project: got %s", body)
	}
	for _, path := range []string{"/admin/v1/usage", "/admin/v1/usage/totals", "/admin/v1/usage/export"} {
		answer, body := b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, path+"?project_id=none", "", "")
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(body, "account_id") {
			t.Errorf("%s of no project of any account: got %d %s", path, answer.StatusCode, body)
		}
	}
	unknown := "prj_00000000000070008000000000000000"
	none, err := servertest.Answered(b.API.GetUsageTotals(t.Context(), &adminclient.GetUsageTotalsParams{ProjectID: &unknown}))
	servertest.Check(t, err)
	if len(none.Value.Data) != 0 {
		t.Errorf("of an unknown project: got %s", none.Body)
	}
}
