package billingapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/ident"
)

// fillCosts writes the requests of one day: 40 that earn and 4 that lose, of which one had a call that failed at a price.
func (b *server) fillCosts(k *adminclient.IssuedKey, day time.Time) {
	b.T.Helper()
	account, err := ident.Account.Parse(k.AccountID)
	servertest.Check(b.T, err)
	key, err := ident.Key.Parse(k.ID)
	servertest.Check(b.T, err)
	_, err = b.DB.Pool().Exec(b.T.Context(), `
		insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, route, credential, status, started_at,
			finished_at, usage, rule, price_version, cost, reservation, provider_cost, attempts)
		select (left(uuid_floor(at)::text, 14) || '7' || lpad(to_hex(g), 3, '0') || '-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 1, g, $1, $2,
			'model-' || g % 2, 'chat', 'prv_1', case when g > 40 then 'rte_bad' else 'rte_good' end, 'main', 'completed', at, at as finished_at, '{}', 'reported', 1,
			case when g = 42 then 0 else 1000000000 end, 0, case when g = 41 then null when g > 40 then 3000000000 else 250000000 end,
			case when g = 1 then '[{"route": "rte_bad", "provider": "prv_2", "credential_name": "spare", "class": "truncated", "usage": {"input": 3}, "provider_cost": 500000000}]'::jsonb end
		from generate_series(1, 44) g, lateral (select $3::timestamptz + g * interval '10 minutes' as at) as moments`, account, key, day)
	servertest.Check(b.T, err)
}

func TestMarginShowsTheWorstFirst(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	k := b.Key(b.Account(1).ID, "")
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	b.fillCosts(k, day)

	by, limit := adminclient.MarginByRoute, 1
	r, err := servertest.Answered(b.API.GetMargin(t.Context(), &adminclient.GetMarginParams{By: &by, Limit: &limit}))
	servertest.Check(t, err)
	if r.Value == nil || r.Value.NextCursor == nil {
		t.Fatalf("margin: %s", r.Body)
	}
	total := adminclient.MarginSums{
		Requests: 44, Charged: "43.00", ProviderCost: "19.50", Loss: "3.50", UnknownCalls: 1, UnknownCharged: "1.00", Margin: "22.50", MarginPercent: new("53.5"),
	}
	bad := adminclient.MarginLine{
		By: by, Name: "rte_bad", Requests: 4, Charged: "3.00", ProviderCost: "9.50", Loss: "3.50", UnknownCalls: 1, UnknownCharged: "1.00",
		Margin: "-7.50", MarginPercent: new("-375.0"),
	}
	if diff := cmp.Diff(total, r.Value.Total) + cmp.Diff([]adminclient.MarginLine{bad}, r.Value.Data); diff != "" {
		t.Errorf("the first page (-want +got):\n%s", diff)
	}
	r, err = servertest.Answered(b.API.GetMargin(t.Context(), &adminclient.GetMarginParams{By: &by, Limit: &limit, Cursor: r.Value.NextCursor}))
	servertest.Check(t, err)
	good := adminclient.MarginLine{
		By: by, Name: "rte_good", Requests: 40, Charged: "40.00", ProviderCost: "10.00", Loss: "0.00", UnknownCharged: "0.00", Margin: "30.00", MarginPercent: new("75.0"),
	}
	if diff := cmp.Diff([]adminclient.MarginLine{good}, r.Value.Data); diff != "" || r.Value.NextCursor != nil {
		t.Errorf("the second page (-want +got):\n%s", diff)
	}

	csv := adminclient.ExportFormatCSV
	export, err := b.API.ExportMargin(t.Context(), &adminclient.ExportMarginParams{By: new(adminclient.MarginByCredential), Provider: new("prv_2"), Format: &csv})
	servertest.Check(t, err)
	var text bytes.Buffer
	done, err := export.CopyTo(&text)
	servertest.Check(t, err)
	want := "by,name,label,model,provider,requests,charged,provider_cost,loss,unknown_calls,unknown_charged,margin,margin_percent,currency\n" +
		"credential,spare,,,prv_2,0,0.00,0.50,0.50,0,0.00,-0.50,,USD\n"
	if got := strings.ReplaceAll(text.String(), "\r", ""); got != want || done.Rows != 1 {
		t.Errorf("got %q; want %q", got, want)
	}

	for name, params := range map[string]adminclient.GetMarginParams{
		"by": {By: new(adminclient.MarginBy("weather"))}, "time_zone": {TimeZone: new("Mars/Olympus")}, "account_id": {AccountID: new("x")},
		"to": {From: new("2026-01-01"), To: new("2026-03-01")}, "cursor": {Cursor: new("eA")},
	} {
		faulty, err := servertest.Answered(b.API.GetMargin(t.Context(), &params))
		servertest.Check(t, err)
		servertest.Problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
		if p := faulty.Problem; p != nil && (len(p.Errors) != 1 || p.Errors[0].Field != name) {
			t.Errorf("%s: got %+v", name, p.Errors)
		}
	}
}

// Lines have the names by which people know things, as far as these exist.
func TestMarginNamesWhatItsLinesAreAbout(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	b.fillCosts(k, time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1))
	for _, known := range []string{
		"insert into providers (id, name, spec, revision) values ('prv_1', 'Acme', '{}', 1)",
		"insert into models (id, enabled, type, public, spec, revision) values ('model-1', true, 'text', true, '{}', 1)",
		"insert into routes (id, model_id, provider_id, spec) values ('rte_bad', 'model-1', 'prv_1', '{}')",
	} {
		_, err := b.DB.Pool().Exec(t.Context(), known)
		servertest.Check(t, err)
	}

	for by, want := range map[adminclient.MarginBy][]string{
		adminclient.MarginByRoute:      {"rte_bad: model-1, Acme; model-1 prv_1", "rte_good: "},
		adminclient.MarginByCredential: {"spare:  prv_2", "main: main, Acme; prv_1"},
		adminclient.MarginByProvider:   {"prv_2: ", "prv_1: Acme; "},
		adminclient.MarginByAccount:    {a.ID + ": " + a.Name + "; "},
		adminclient.MarginByKey:        {k.ID + ": " + k.Name + "; "},
		adminclient.MarginByProject:    {": "},
		adminclient.MarginByModel:      {"model-0: ", "model-1: model-1; "},
		adminclient.MarginByDay:        nil,
	} {
		r, err := servertest.Answered(b.API.GetMargin(t.Context(), &adminclient.GetMarginParams{By: &by}))
		servertest.Check(t, err)
		var got []string
		for _, l := range r.Value.Data {
			text := l.Name + ": "
			if l.Label != nil {
				text += *l.Label + "; "
			}
			if l.Model != nil {
				text += *l.Model
			}
			if l.Provider != nil {
				text += " " + *l.Provider
			}
			got = append(got, strings.ReplaceAll(text, ";  ", "; "))
		}
		if by == adminclient.MarginByDay {
			if len(r.Value.Data) != 1 || r.Value.Data[0].Label != nil {
				t.Errorf("days: got %v", got)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", by, diff)
		}
	}
}

// What a route has lost is found among its requests: those that it failed before another route served them are there, too.
func TestRequestsOfARouteHaveThoseItFailed(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	k := b.Key(b.Account(1).ID, "")
	b.fillCosts(k, time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1))
	for name, tt := range map[string]struct {
		params       adminclient.ListUsageParams
		want, failed int
	}{
		"route":                      {adminclient.ListUsageParams{Route: new("rte_bad")}, 5, 1},
		"route, of an account":       {adminclient.ListUsageParams{Route: new("rte_bad"), AccountID: &k.AccountID}, 5, 1},
		"provider":                   {adminclient.ListUsageParams{Provider: new("prv_2")}, 1, 1},
		"credential":                 {adminclient.ListUsageParams{Credential: new("spare")}, 1, 1},
		"one call":                   {adminclient.ListUsageParams{Route: new("rte_bad"), Provider: new("prv_2"), Credential: new("spare")}, 1, 1},
		"of different calls":         {adminclient.ListUsageParams{Route: new("rte_bad"), Credential: new("main")}, 4, 0},
		"of different calls, of key": {adminclient.ListUsageParams{Route: new("rte_bad"), Credential: new("main"), KeyID: &k.ID}, 4, 0},
		"another filter":             {adminclient.ListUsageParams{Route: new("rte_bad"), MinCost: new("1.00")}, 4, 1},
	} {
		answer, err := servertest.Answered(b.API.ListUsage(t.Context(), &tt.params))
		servertest.Check(t, err)
		failed := 0
		for _, u := range answer.Value.Data {
			if u.FailedCalls == nil {
				continue
			}
			if failed++; *u.FailedCalls != 1 || u.FailedCallsCost == nil || *u.FailedCallsCost != "0.50" || *u.Route == "rte_bad" {
				t.Errorf("%s: a request with a call that failed: %+v", name, u)
			}
		}
		if len(answer.Value.Data) != tt.want || failed != tt.failed {
			t.Errorf("%s: got %d requests, %d with a call that failed; want %d, %d", name, len(answer.Value.Data), failed, tt.want, tt.failed)
		}
	}
}
