package trafficapi_test

import (
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/pulse"
)

// writeMinute writes a minute of now.
func (b *server) writeMinute(rows []traffic.Row, refusals ...traffic.Refusal) time.Time {
	b.T.Helper()
	at := time.Now().UTC().Truncate(time.Minute)
	servertest.Check(b.T, usagestore.NewTraffic(b.DB).Write(b.T.Context(), &traffic.Minute{At: at, Heard: 2, Silent: 1, Rows: rows, Refusals: refusals}))
	return at
}

func TestSeriesShowsWhatIsKnownAndLeavesOutWhatIsNot(t *testing.T) {
	t.Parallel()
	b := start(t)
	at := b.writeMinute([]traffic.Row{
		{Series: pulse.Series{Measure: pulse.Requests, Endpoint: "/v1/models", Status: 200, Outcome: "completed"}, Sum: traffic.Sum{N: 5}},
		{Series: pulse.Series{Measure: pulse.Charges, Model: "m", Provider: "p"}, Sum: traffic.Sum{N: 1_234_567_890_123_456_789}},
	})
	from, to, by := at.Add(-time.Minute), at.Add(time.Minute), adminclient.GetTrafficSeriesParamsByStatus
	got, err := b.API.GetTrafficSeries(t.Context(), &adminclient.GetTrafficSeriesParams{Measure: "requests", By: &by, From: &from, To: &to})
	servertest.Check(t, err)
	p := got.Value.Points
	if len(p) != 2 || p[0].KnownMinutes != 0 || p[0].Values != nil || p[1].KnownMinutes != 1 || *p[1].Heard != 2 || *p[1].Silent != 1 ||
		len(p[1].Values) != 1 || p[1].Values[0].Label != "200" || *p[1].Values[0].Count != 5 {
		t.Errorf("got %s", got.Body)
	}
	got, err = b.API.GetTrafficSeries(t.Context(), &adminclient.GetTrafficSeriesParams{Measure: "cost", From: &at, To: &to})
	servertest.Check(t, err)
	if p := got.Value.Points; len(p) != 1 || len(p[0].Values) != 1 || *p[0].Values[0].Cost != "1234567890.123456789" || p[0].Values[0].Count != nil {
		t.Errorf("got %s; want the exact cost", got.Body)
	}
	day, daily := at.Truncate(24*time.Hour), adminclient.GetTrafficSeriesParamsStepN1D
	got, err = b.API.GetTrafficSeries(t.Context(), &adminclient.GetTrafficSeriesParams{Measure: "cost", Step: &daily, From: &day, To: &to})
	servertest.Check(t, err)
	if v := got.Value; !v.FromRecords || len(v.Points) != 1 || len(v.Points[0].Values) != 0 {
		t.Errorf("got %s; want the day of the settled requests, of which there are none", got.Body)
	}
}

func TestInvalidSeriesAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	by, minute, long, now := adminclient.GetTrafficSeriesParamsByCode, adminclient.GetTrafficSeriesParamsStep("5m"), time.Now().Add(-30*time.Hour), time.Now()
	for name, p := range map[string]adminclient.GetTrafficSeriesParams{
		"measure": {Measure: "weather"}, "label of another measure": {Measure: "cost", By: &by}, "step": {Measure: "cost", Step: &minute},
		"too long": {Measure: "requests", From: &long, To: &now}, "empty": {Measure: "requests", From: &now, To: &long},
	} {
		got, err := servertest.Answered(b.API.GetTrafficSeries(t.Context(), &p))
		servertest.Check(t, err)
		if got.Problem == nil || got.Problem.Status != http.StatusBadRequest {
			t.Errorf("%s: got %d", name, got.StatusCode)
		}
	}
}

func TestRefusalsAreListedByAccount(t *testing.T) {
	t.Parallel()
	b := start(t)
	now := time.Now()
	refusal := func(account, code string, status int) traffic.Refusal {
		return traffic.Refusal{
			RefusalKey: traffic.RefusalKey{Account: account, Key: ident.Key.New(), Code: code, Status: status}, N: 3, First: now, Last: now, RequestID: ident.Request.New(),
			Short: &pulse.Short{Pool: pulse.Slots, Reason: "no_slot", Wanted: 1, Scope: limit.Key},
		}
	}
	account := ident.Account.New()
	b.writeMinute(nil, refusal(account, "rate_limit_exceeded", 429), refusal(ident.Account.New(), "insufficient_quota", 402), traffic.Refusal{
		RefusalKey: traffic.RefusalKey{Code: "invalid_api_key", Status: 401}, N: 1, First: now, Last: now, RequestID: ident.Request.New(),
	})
	got, err := b.API.ListRefusals(t.Context(), &adminclient.ListRefusalsParams{AccountID: &account})
	servertest.Check(t, err)
	if d := got.Value.Data; len(d) != 1 || d[0].Count != 3 || d[0].Short == nil || d[0].Short.Wanted != "1" || d[0].Short.Available != "0" || *d[0].AccountID != account ||
		*d[0].Short.LimitScope != adminclient.LimitScopeKey || d[0].Short.LimitID != nil {
		t.Errorf("got %s", got.Body)
	}
	one, seen := 1, 0
	for cursor := (*string)(nil); ; {
		page, err := b.API.ListRefusals(t.Context(), &adminclient.ListRefusalsParams{Limit: &one, Cursor: cursor})
		servertest.Check(t, err)
		seen += len(page.Value.Data)
		if cursor = page.Value.NextCursor; cursor == nil {
			break
		}
	}
	if seen != 3 {
		t.Errorf("%d refusals on all pages; want 3", seen)
	}
	bad := "garbage"
	for _, p := range []adminclient.ListRefusalsParams{{KeyID: &bad}, {ProjectID: &bad}} {
		wrong, err := servertest.Answered(b.API.ListRefusals(t.Context(), &p))
		servertest.Check(t, err)
		servertest.Problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")
	}
}

// The refusals of a project are those of the keys that are in it.
func TestRefusalsAreListedByProject(t *testing.T) {
	t.Parallel()
	b := start(t)
	now, a := time.Now(), b.Account(1)
	made, err := b.API.CreateProject(t.Context(), a.ID, nil, adminclient.ProjectCreate{Name: "shop"})
	servertest.Check(t, err)
	within, outside := b.Key(a.ID, ""), b.Key(a.ID, "")
	_, err = b.API.UpdateKey(t.Context(), within.ID, nil, adminclient.KeyPatch{ProjectID: optional.Of(made.Value.ID)})
	servertest.Check(t, err)
	refusal := func(key string) traffic.Refusal {
		return traffic.Refusal{
			RefusalKey: traffic.RefusalKey{Account: a.ID, Key: key, Code: "rate_limit_exceeded", Status: 429}, N: 2, First: now, Last: now,
			RequestID: ident.Request.New(),
		}
	}
	stranger := refusal(b.Key(b.Account(1).ID, "").ID)
	b.writeMinute(nil, refusal(within.ID), refusal(outside.ID), stranger)
	got, err := b.API.ListRefusals(t.Context(), &adminclient.ListRefusalsParams{ProjectID: &made.Value.ID})
	servertest.Check(t, err)
	if d := got.Value.Data; len(d) != 1 || *d[0].KeyID != within.ID {
		t.Errorf("got %s; want the refusals of the key in the project", got.Body)
	}

	got, err = b.API.ListRefusals(t.Context(), &adminclient.ListRefusalsParams{ProjectID: new("none"), AccountID: &a.ID})
	servertest.Check(t, err)
	if d := got.Value.Data; len(d) != 1 || *d[0].KeyID != outside.ID {
		t.Errorf("of no project: got %s; want the refusals of the key outside", got.Body)
	}
	wrong, err := servertest.Answered(b.API.ListRefusals(t.Context(), &adminclient.ListRefusalsParams{ProjectID: new("none")}))
	servertest.Check(t, err)
	servertest.Problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")
}
