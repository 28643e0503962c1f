package trafficapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/wire"
)

// explain answers for a proxy; a refusal has a status.
func explained(name string, status int) wire.ExplainResponse {
	r := wire.ExplainResponse{V: 1, Name: name, CatalogRevision: 3, PriceVersion: 2, Reservation: 5, Needs: []wire.Need{}}
	if status != 0 {
		r.Refusals = []wire.ExplainRefusal{{Step: wire.ExplainRoutes, Status: status, Message: "No."}, {Step: wire.ExplainRoutes, Status: 500, Message: "Later."}}
	}
	return r
}

func TestExplanationComparesTheProxies(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(10)
	params := &adminclient.ExplainRequestParams{AccountID: &a.ID, Model: "m"}
	for _, tt := range []struct {
		answers []wire.ExplainResponse
		want    adminclient.RequestExplanationOutcome
	}{
		{nil, adminclient.RequestExplanationOutcomeUnknown},
		{[]wire.ExplainResponse{explained("b", 0), explained("a", 0)}, adminclient.RequestExplanationOutcomeSent},
		{[]wire.ExplainResponse{explained("b", 503), explained("a", 503)}, adminclient.RequestExplanationOutcomeRefused},
		{[]wire.ExplainResponse{explained("b", 503), explained("a", 404)}, adminclient.RequestExplanationOutcomeDiffers},
		{[]wire.ExplainResponse{explained("b", 503), explained("a", 0)}, adminclient.RequestExplanationOutcomeDiffers},
	} {
		b.Explained, b.Silent = map[wire.SessionID]wire.ExplainResponse{}, []string{"c"}
		for i, answer := range tt.answers {
			b.Explained[wire.SessionID(i)] = answer
		}
		r, err := b.API.ExplainRequest(t.Context(), params)
		servertest.Check(t, err)
		got := r.Value
		if got.Outcome != tt.want || len(got.Proxies) != len(tt.answers) || len(got.Silent) != 1 || (got.Refusal != nil) != (tt.want == adminclient.RequestExplanationOutcomeRefused) {
			t.Errorf("got %s; want %s", r.Body, tt.want)
		}
		if len(got.Proxies) > 0 && got.Proxies[0].Proxy != "a" {
			t.Errorf("the first proxy is %s; want them by name", got.Proxies[0].Proxy)
		}
	}
}

// A question has the record of the key and what its pools have.
func TestExplanationAsksWithTheRecordOfTheKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(10)
	b.Credit(a.ID, "5", "r")
	k := b.Key(a.ID, "2")
	_, err := b.API.ExplainRequest(t.Context(), &adminclient.ExplainRequestParams{KeyID: &k.ID, Model: "m", MaxTokens: new(int64(7)), Parameters: new(`{"temperature":1}`)})
	servertest.Check(t, err)
	q := b.Asked
	if q.Record.AccountID != a.ID || q.Record.KeyID != k.ID || !q.Record.Active || len(q.Pools) != 3 || q.MaxTokens != 7 || q.Format != "chat" || string(q.Parameters) != `{"temperature":1}` {
		t.Errorf("asked %+v", q)
	}
	for _, p := range q.Pools {
		if want := map[wire.PoolKind]int64{wire.Balance: 5e9, wire.Limit: 2e9, wire.Slots: 10}[p.Kind]; p.Free != want || p.Total != want {
			t.Errorf("pool %+v; want %d free", p, want)
		}
	}
	_, err = b.API.RevokeKey(t.Context(), k.ID, nil)
	servertest.Check(t, err)
	_, err = b.API.ExplainRequest(t.Context(), &adminclient.ExplainRequestParams{KeyID: &k.ID, Model: "m"})
	if servertest.Check(t, err); b.Asked.Record.Active {
		t.Error("the record of a revoked key is active")
	}
	// Without a key there is no limit.
	_, err = b.API.ExplainRequest(t.Context(), &adminclient.ExplainRequestParams{AccountID: &a.ID, Model: "m"})
	if servertest.Check(t, err); b.Asked.Record.KeyID != "" || b.Asked.Record.LimitPool != 0 || len(b.Asked.Pools) != 2 {
		t.Errorf("asked %+v", b.Asked)
	}
}

// A question has the current windows of limits, and the answer says which of them is short: whose, its id, what is left and until when.
func TestExplanationNamesTheLimitThatIsShort(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(10)
	k := b.Key(a.ID, "2")
	limit := func(amount string, key *string, period adminclient.LimitPeriod) string {
		made, err := servertest.Answered(b.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{Amount: amount, KeyID: key, Window: period}))
		servertest.Check(t, err)
		return made.Value.ID
	}
	used := limit("1.00", nil, adminclient.LimitPeriod{Period: "first_use", LengthSeconds: new(int64(3600))})
	unused := limit("3.00", &k.ID, adminclient.LimitPeriod{Period: "forever"})
	var ends time.Time
	servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), `insert into pools (id, account_id, kind, limit_number, total, free, settled, starts_at, ends_at)
		overriding system value
		select (1::bigint << 58) | (l.number << 24) | 1, l.account_id, 2, l.number, l.amount, 200000000, 700000000, now(), date_trunc('second', now()) + interval '1 hour'
		from limits l where l.period = 'first_use' returning ends_at`).Scan(&ends))

	params := &adminclient.ExplainRequestParams{KeyID: &k.ID, Model: "m"}
	_, err := b.API.ExplainRequest(t.Context(), params)
	servertest.Check(t, err)
	needs := []wire.Need{}
	for _, p := range b.Asked.Pools {
		if p.Kind == wire.Limit {
			needs = append(needs, wire.Need{Pool: p.Pool, Kind: p.Kind, Amount: 5e8})
		}
	}
	answer := explained("a", 0)
	answer.Needs = needs
	b.Explained = map[wire.SessionID]wire.ExplainResponse{0: answer}
	r, err := b.API.ExplainRequest(t.Context(), params)
	servertest.Check(t, err)
	endsAt := time.UnixMilli(ends.UnixMilli()).UTC()
	want := []adminclient.ExplainedNeed{
		{
			Pool: "spend_limit", OfKey: true, Wanted: "0.50", Available: new("2.00"), Reserved: new("0.00"), Enough: true,
			LimitScope: new(adminclient.LimitScopeKey), LimitID: &k.ID,
		},
		{
			Pool: "spend_limit", Wanted: "0.50", Available: new("0.20"), Reserved: new("0.10"),
			LimitScope: new(adminclient.LimitScope("account")), LimitID: &used, LimitResetsAt: &endsAt,
		},
		{
			Pool: "spend_limit", Wanted: "0.50", Available: new("3.00"), Reserved: new("0.00"), Enough: true,
			LimitScope: new(adminclient.LimitScope("key")), LimitID: &unused,
		},
	}
	if diff := cmp.Diff(want, r.Value.Needs); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
}

// A client gets the answer for an unknown key; who asks for the explanation learns why.
func TestExplanationSaysWhyAKnownKeyIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, other := b.Account(10), b.Account(10)
	revoked, suspended := b.Key(other.ID, ""), b.Key(a.ID, "")
	_, err := b.API.RevokeKey(t.Context(), revoked.ID, nil)
	servertest.Check(t, err)
	_, err = b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Status: new(adminclient.AccountStatusSuspended)})
	servertest.Check(t, err)
	for want, id := range map[string]string{"account_suspended": suspended.ID, "key_revoked": revoked.ID} {
		b.Explained = map[wire.SessionID]wire.ExplainResponse{0: {V: 1, Name: "a", Refusals: []wire.ExplainRefusal{
			{Step: wire.ExplainKey, Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: "Invalid API key."},
		}}}
		r, err := b.API.ExplainRequest(t.Context(), &adminclient.ExplainRequestParams{KeyID: &id, Model: "m"})
		servertest.Check(t, err)
		if got := r.Value.Refusal; got == nil || got.Reason == nil || *got.Reason != want {
			t.Errorf("got %s; want the reason %s", r.Body, want)
		}
	}
}

func TestExplanationRefusesQuestionsWithoutMeaning(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, other := b.Account(10), b.Account(10)
	k := b.Key(other.ID, "")
	for _, tt := range []struct {
		params adminclient.ExplainRequestParams
		status int
		kind   string
	}{
		{adminclient.ExplainRequestParams{Model: "m"}, http.StatusBadRequest, "invalid_input"},
		{adminclient.ExplainRequestParams{AccountID: &a.ID, Model: "m", Parameters: new("[]")}, http.StatusBadRequest, "invalid_input"},
		{adminclient.ExplainRequestParams{AccountID: &a.ID, Model: "m", InputTokens: new(int64(-1))}, http.StatusBadRequest, "invalid_input"},
		{adminclient.ExplainRequestParams{AccountID: &a.ID, KeyID: &k.ID, Model: "m"}, http.StatusNotFound, "not_found"},
	} {
		r, err := servertest.Answered(b.API.ExplainRequest(t.Context(), &tt.params))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, tt.status, tt.kind)
	}
}
