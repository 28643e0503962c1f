package accountapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/shared/apikey"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// Limits of an account and of a key are kept, changed one by one, announced to proxies, and in the record that they load.
func TestLimitsOfAnAccountAndAKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "5.00")
	create := func(body adminclient.LimitCreate) *adminclient.SpendLimit {
		t.Helper()
		made, err := servertest.Answered(b.API.CreateLimit(t.Context(), a.ID, nil, body))
		servertest.Check(t, err)
		return made.Value
	}
	monthly := create(adminclient.LimitCreate{
		Name: new("a month"), Amount: "100.00", Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodMonth, TimeZone: new("Europe/Moscow")},
	})
	hourly := create(adminclient.LimitCreate{
		KeyID: &k.ID, Amount: "1.00", Models: []string{"claude-*"},
		Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodFirstUse, LengthSeconds: new(int64(3600))},
	})
	got, err := servertest.Answered(b.API.GetLimit(t.Context(), monthly.ID))
	servertest.Check(t, err)
	want := adminclient.SpendLimit{
		ID: monthly.ID, AccountID: a.ID, Name: new("a month"), Amount: "100.00", Window: monthly.Window, Models: []string{},
		CreatedAt: monthly.CreatedAt, UpdatedAt: monthly.UpdatedAt,
	}
	if diff := cmp.Diff(&want, got.Value); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	listed, err := servertest.Answered(b.API.ListLimits(t.Context(), a.ID, &adminclient.ListLimitsParams{KeyID: &k.ID}))
	servertest.Check(t, err)
	if len(listed.Value.Data) != 1 || listed.Value.Data[0].ID != hourly.ID {
		t.Errorf("of the key: got %+v", listed.Value.Data)
	}
	for scope, want := range map[adminclient.LimitScope][]string{
		adminclient.LimitScopeAccount: {monthly.ID}, adminclient.LimitScopeKey: {hourly.ID}, adminclient.LimitScopeProject: {},
	} {
		listed, err := servertest.Answered(b.API.ListLimits(t.Context(), a.ID, &adminclient.ListLimitsParams{Scope: &scope}))
		servertest.Check(t, err)
		ids := []string{}
		for _, l := range listed.Value.Data {
			ids = append(ids, l.ID)
		}
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("of the scope %s (-want +got):\n%s", scope, diff)
		}
	}

	load := func() []limit.Limit {
		t.Helper()
		hash := b.Hasher.Hash(k.Secret)
		loaded, err := leasestore.NewLeases(b.DB).LoadKeys(t.Context(), []apikey.Hash{hash})
		servertest.Check(t, err)
		return loaded[hash].Record.Limits
	}
	names := []string{}
	for _, l := range load() {
		names = append(names, l.Name+" of the "+string(l.Scope)+" for "+string(l.Window.Period))
	}
	if diff := cmp.Diff([]string{hourly.ID + " of the key for first_use", monthly.ID + " of the account for month"}, names); diff != "" {
		t.Errorf("in the record (-want +got):\n%s", diff)
	}

	stale := `"1"`
	servertest.Problem(t, problemOf(b.API.UpdateLimit(t.Context(), monthly.ID, &adminclient.UpdateLimitParams{IfMatch: &stale}, adminclient.LimitPatch{})), http.StatusPreconditionFailed, "precondition_failed")
	changed, err := servertest.Answered(b.API.UpdateLimit(t.Context(), monthly.ID, nil, adminclient.LimitPatch{Amount: new("7.00"), Models: optional.Of([]string{"m"})}))
	servertest.Check(t, err)
	if changed.Value.Amount != "7.00" || changed.Value.Models[0] != "m" || *changed.Value.Name != "a month" {
		t.Errorf("changed: got %+v", changed.Value)
	}
	changed, err = servertest.Answered(b.API.UpdateLimit(t.Context(), monthly.ID, nil, adminclient.LimitPatch{Models: optional.Of([]string{})}))
	servertest.Check(t, err)
	if len(changed.Value.Models) != 0 || changed.Value.Amount != "7.00" {
		t.Errorf("for all models again: got %+v", changed.Value)
	}
	servertest.Problem(t, problemOf(b.API.ResetLimit(t.Context(), monthly.ID, nil)), http.StatusConflict, "no_window")

	_, err = servertest.Answered(b.API.DeleteLimit(t.Context(), monthly.ID, nil))
	servertest.Check(t, err)
	if left := load(); len(left) != 1 {
		t.Errorf("after the removal: got %+v", left)
	}
	servertest.Problem(t, problemOf(b.API.DeleteLimit(t.Context(), monthly.ID, nil)), http.StatusNotFound, "not_found")
	if got, err := b.API.GetLimit(t.Context(), monthly.ID); err != nil || got.Value.RemovedAt == nil {
		t.Errorf("the removed limit: got %+v, %v", got, err)
	}
}

// The figures of windows follow what requests cost and changes of the amount; a reset leaves what is reserved.
func TestWindowsOfALimit(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	made, err := servertest.Answered(b.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{
		Amount: "1.00", Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever},
	}))
	servertest.Check(t, err)
	_, err = b.DB.Pool().Exec(t.Context(), `insert into pools (id, account_id, kind, limit_number, total, free, settled, starts_at)
		overriding system value
		select (1::bigint << 58) | (l.number << 24), l.account_id, 2, l.number, l.amount, 500000000, 400000000, now() from limits l`)
	servertest.Check(t, err)

	figures := func() adminclient.LimitWindow {
		t.Helper()
		got, err := servertest.Answered(b.API.GetLimit(t.Context(), made.Value.ID))
		servertest.Check(t, err)
		w := *got.Value.Current
		history, err := servertest.Answered(b.API.ListLimitWindows(t.Context(), made.Value.ID, nil))
		servertest.Check(t, err)
		if diff := cmp.Diff([]adminclient.LimitWindow{w}, history.Value.Data); diff != "" {
			t.Errorf("the history differs:\n%s", diff)
		}
		return w
	}
	want := adminclient.LimitWindow{StartsAt: figures().StartsAt, Amount: "1.00", Spent: "0.40", Reserved: "0.10", Left: "0.50"}
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}

	_, err = servertest.Answered(b.API.ResetLimit(t.Context(), made.Value.ID, nil))
	servertest.Check(t, err)
	want.Spent, want.Left = "0.00", "0.90"
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("after the reset (-want +got):\n%s", diff)
	}

	// The response of a reset was lost in a crash. Repeated, also after a further reset, it forgives nothing that was spent since.
	reset := func(key string) {
		t.Helper()
		_, err := servertest.Answered(b.API.ResetLimit(t.Context(), made.Value.ID, &adminclient.ResetLimitParams{IdempotencyKey: &key}))
		servertest.Check(t, err)
	}
	reset("lost")
	reset("other")
	_, err = b.DB.Pool().Exec(t.Context(), "update idempotency_keys set status = null, content_type = null, body = null, cipher_key_id = null")
	servertest.Check(t, err)
	_, err = b.DB.Pool().Exec(t.Context(), "update pools set settled = settled + 50000000, free = free - 50000000 where limit_number is not null")
	servertest.Check(t, err)
	reset("lost")
	want.Spent, want.Left = "0.05", "0.85"
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("after the repeated reset (-want +got):\n%s", diff)
	}
	reset("new")
	want.Spent, want.Left = "0.00", "0.90"
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("after a new reset (-want +got):\n%s", diff)
	}

	_, err = servertest.Answered(b.API.UpdateLimit(t.Context(), made.Value.ID, nil, adminclient.LimitPatch{Amount: new("0.30")}))
	servertest.Check(t, err)
	want.Amount, want.Left = "0.30", "0.20"
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("after the change (-want +got):\n%s", diff)
	}

	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	raise := adminclient.LimitPatch{RaisedTo: optional.Of("1.00"), RaisedUntil: optional.Of(until)}
	raised, err := servertest.Answered(b.API.UpdateLimit(t.Context(), made.Value.ID, nil, raise))
	servertest.Check(t, err)
	if l := raised.Value; l.Amount != "0.30" || l.RaisedTo == nil || *l.RaisedTo != "1.00" || l.RaisedUntil == nil || !l.RaisedUntil.Equal(until) {
		t.Errorf("raised: got %+v", raised.Value)
	}
	want.Amount, want.Left = "1.00", "0.90"
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("raised (-want +got):\n%s", diff)
	}
	ended, err := servertest.Answered(b.API.UpdateLimit(t.Context(), made.Value.ID, nil, adminclient.LimitPatch{
		RaisedTo: optional.Null[string](), RaisedUntil: optional.Null[time.Time](),
	}))
	servertest.Check(t, err)
	want.Amount, want.Left = "0.30", "0.20"
	if diff := cmp.Diff(want, figures()); diff != "" || ended.Value.RaisedTo != nil {
		t.Errorf("the raise was ended (-want +got):\n%s", diff)
	}
	for wrong, invalid := range map[string]adminclient.LimitPatch{
		"raised_to":    {RaisedTo: optional.Of("0.30"), RaisedUntil: optional.Of(until)},
		"raised_until": {RaisedTo: optional.Of("1.00"), RaisedUntil: optional.Of(until.Add(-2 * time.Hour))},
	} {
		p := problemOf(b.API.UpdateLimit(t.Context(), made.Value.ID, nil, invalid))
		if p == nil || len(p.Errors) != 1 || p.Errors[0].Field != wrong {
			t.Errorf("%s: got %+v", wrong, p)
		}
	}
	// In UTC it is the year 10000, which has no text: no list with the limit could be written.
	never := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -12*60*60))
	p := problemOf(b.API.UpdateLimit(t.Context(), made.Value.ID, nil, adminclient.LimitPatch{RaisedTo: optional.Of("1.00"), RaisedUntil: optional.Of(never)}))
	if p == nil || p.Status != http.StatusBadRequest || len(p.Errors) != 1 || p.Errors[0].Field != "raised_until" {
		t.Errorf("until %s: got %+v", never, p)
	}
	figures()
}

func TestInvalidLimitsAreRefusedWithEveryFault(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, other := b.Account(1), b.Account(1)
	foreign := b.Key(other.ID, "5.00")
	for name, tt := range map[string]struct {
		body adminclient.LimitCreate
		want []string
	}{
		"all at once": {
			adminclient.LimitCreate{
				Amount: "-1", Models: []string{"a*b"},
				Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodDay, TimeZone: new("Mars/Olympus"), LengthSeconds: new(int64(7200))},
			},
			[]string{"amount", "models[0]", "window.time_zone", "window.length_seconds"},
		},
	} {
		p := problemOf(b.API.CreateLimit(t.Context(), a.ID, nil, tt.body))
		servertest.Problem(t, p, http.StatusBadRequest, "invalid_input")
		var fields []string
		for _, e := range p.Errors {
			fields = append(fields, e.Field)
		}
		if diff := cmp.Diff(tt.want, fields); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	forever := adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever}
	servertest.Problem(t, problemOf(b.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{KeyID: &foreign.ID, Amount: "1", Window: forever})), http.StatusNotFound, "not_found")

	k := b.Key(a.ID, "5.00")
	for i := range 7 {
		body := adminclient.LimitCreate{Amount: "1", Window: forever}
		if i%2 == 0 {
			body.KeyID = &k.ID
		}
		_, err := servertest.Answered(b.API.CreateLimit(t.Context(), a.ID, nil, body))
		servertest.Check(t, err)
	}
	for _, of := range []*string{nil, &k.ID} {
		servertest.Problem(t, problemOf(b.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{KeyID: of, Amount: "1", Window: forever})), http.StatusConflict, "too_many_limits")
	}
}

func problemOf[T any](r *adminclient.Response[T], err error) *adminclient.Problem {
	answer, err := servertest.Answered(r, err)
	if err != nil {
		return nil
	}
	return answer.Problem
}

// A limit of a project is in the records of the keys that are in it, between those of the key and of the account, and in no other. A
// change of it is told as one of the account. All limits of a key, wherever it moves, are at most seven.
func TestLimitsOfAProject(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, stranger := b.Account(1), b.Account(1)
	p := createProject(t, b, a.ID, adminclient.ProjectCreate{Name: "shop"})
	in, out := b.Key(a.ID, "5.00"), b.Key(a.ID, "5.00")
	_, err := servertest.Answered(moveKey(b, in.ID, p.ID))
	servertest.Check(t, err)
	forever := adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever}
	create := func(body adminclient.LimitCreate) *adminclient.SpendLimit {
		t.Helper()
		body.Amount, body.Window = "1.00", forever
		made, err := servertest.Answered(b.API.CreateLimit(t.Context(), a.ID, nil, body))
		servertest.Check(t, err)
		return made.Value
	}
	create(adminclient.LimitCreate{})
	told := len(b.Announcer.Told)
	ofProject := create(adminclient.LimitCreate{ProjectID: &p.ID})
	if changes := b.Announcer.Told[told:]; len(changes) != 1 || changes[0].Kind != wire.AccountUpdated {
		t.Errorf("the new limit: told %+v; want a change of the account", changes)
	}
	create(adminclient.LimitCreate{KeyID: &in.ID})

	scopes := func(k *adminclient.IssuedKey) (scopes []limit.Scope) {
		t.Helper()
		hash := b.Hasher.Hash(k.Secret)
		loaded, err := leasestore.NewLeases(b.DB).LoadKeys(t.Context(), []apikey.Hash{hash})
		servertest.Check(t, err)
		for _, l := range loaded[hash].Record.Limits {
			scopes = append(scopes, l.Scope)
		}
		return scopes
	}
	if diff := cmp.Diff([]limit.Scope{limit.Key, limit.Project, limit.Account}, scopes(in)); diff != "" {
		t.Errorf("of the key in the project (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]limit.Scope{limit.Account}, scopes(out)); diff != "" {
		t.Errorf("of the key outside (-want +got):\n%s", diff)
	}
	listed, err := servertest.Answered(b.API.ListLimits(t.Context(), a.ID, &adminclient.ListLimitsParams{ProjectID: &p.ID}))
	servertest.Check(t, err)
	if len(listed.Value.Data) != 1 || listed.Value.Data[0].ID != ofProject.ID || *listed.Value.Data[0].ProjectID != p.ID {
		t.Errorf("of the project: got %+v", listed.Value.Data)
	}

	servertest.Problem(t, problemOf(b.API.CreateLimit(t.Context(), stranger.ID, nil, adminclient.LimitCreate{
		ProjectID: &p.ID, Amount: "1", Window: forever,
	})), http.StatusNotFound, "not_found")
	servertest.Problem(t, problemOf(b.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{
		ProjectID: &p.ID, KeyID: &in.ID, Amount: "1", Window: forever,
	})), http.StatusBadRequest, "invalid_input")

	// One limit of the account, two of the project and four of the key are seven.
	create(adminclient.LimitCreate{ProjectID: &p.ID})
	for range 3 {
		create(adminclient.LimitCreate{KeyID: &in.ID})
	}
	for range 5 {
		create(adminclient.LimitCreate{KeyID: &out.ID})
	}
	for _, body := range []adminclient.LimitCreate{{}, {ProjectID: &p.ID}, {KeyID: &in.ID}} {
		body.Amount, body.Window = "1.00", forever
		servertest.Problem(t, problemOf(b.API.CreateLimit(t.Context(), a.ID, nil, body)), http.StatusConflict, "too_many_limits")
	}
	servertest.Problem(t, problemOf(moveKey(b, out.ID, p.ID)), http.StatusConflict, "too_many_limits")

	_, err = servertest.Answered(moveKey(b, in.ID, ""))
	servertest.Check(t, err)
	if diff := cmp.Diff([]limit.Scope{limit.Key, limit.Key, limit.Key, limit.Key, limit.Account}, scopes(in)); diff != "" {
		t.Errorf("after it was taken out (-want +got):\n%s", diff)
	}
	_, err = servertest.Answered(b.API.DeleteProject(t.Context(), p.ID, nil))
	servertest.Check(t, err)
	servertest.Problem(t, problemOf(b.API.DeleteLimit(t.Context(), ofProject.ID, nil)), http.StatusNotFound, "not_found")
}
