package accountapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

func TestCreateAndGetAccount(t *testing.T) {
	t.Parallel()
	b := start(t)
	made, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Example", ExternalID: new("customer-1")}))
	servertest.Check(t, err)
	a := made.Value
	want := adminclient.Account{
		ID: a.ID, ExternalID: new("customer-1"), Name: "Example", Status: adminclient.AccountStatusActive, MaxConcurrentRequests: 100,
		PriceMultiplier: "1", ModelMultipliers: adminclient.ModelMultipliers{},
		Balance:  adminclient.Balance{Currency: "USD", Balance: "0.00", Reserved: "0.00", Available: "0.00"},
		Metadata: adminclient.Metadata{}, CostToday: "0.00", Cost7D: "0.00",
		CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt,
	}
	if diff := cmp.Diff(&want, a); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}

	got, err := servertest.Answered(b.API.GetAccount(t.Context(), a.ID))
	servertest.Check(t, err)
	if diff := cmp.Diff(a, got.Value); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}

	again, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Other", ExternalID: new("customer-1")}))
	servertest.Check(t, err)
	servertest.Problem(t, again.Problem, http.StatusConflict, "external_id_taken")

	for _, id := range []string{"acc_00000000000070008000000000000000", "acc_1", "key_00000000000070008000000000000000"} {
		missing, err := servertest.Answered(b.API.GetAccount(t.Context(), id))
		servertest.Check(t, err)
		servertest.Problem(t, missing.Problem, http.StatusNotFound, "not_found")
	}
	b.CheckLedger()
}

func TestAccountPatchIsAnnounced(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(3)

	renamed, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Name: new("New name")}))
	servertest.Check(t, err)
	if renamed.Value.Name != "New name" || renamed.Value.MaxConcurrentRequests != 3 {
		t.Errorf("renamed to %+v", renamed.Value)
	}
	if len(b.Announcer.Told) != 0 {
		t.Errorf("a new name was announced: %+v", b.Announcer.Told)
	}

	suspended, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{
		Status: new(adminclient.AccountStatusSuspended), MaxConcurrentRequests: new(1),
	}))
	servertest.Check(t, err)
	if suspended.Value.Status != adminclient.AccountStatusSuspended || suspended.Value.MaxConcurrentRequests != 1 {
		t.Errorf("suspended to %+v", suspended.Value)
	}
	want := []wire.KeyChange{{V: wire.Version, Kind: wire.AccountUpdated, Account: a.ID}}
	if diff := cmp.Diff(want, b.Announcer.Told, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Revision" }, cmp.Ignore())); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}

	refused, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{
		Name: new(""), Status: new(adminclient.AccountStatus("gone")), MaxConcurrentRequests: new(-1),
	}))
	servertest.Check(t, err)
	servertest.Problem(t, refused.Problem, http.StatusBadRequest, "invalid_input")
	var fields []string
	for _, e := range refused.Problem.Errors {
		fields = append(fields, e.Field)
	}
	if diff := cmp.Diff([]string{"name", "status", "max_concurrent_requests"}, fields); diff != "" {
		t.Errorf("wrong fields (-want +got):\n%s", diff)
	}
	b.CheckLedger()
}

// The limit of open video jobs stays as it is unless a change names it, and null removes it. Proxies need not know it.
func TestAccountLimitOfOpenVideoJobsIsSetAndRemoved(t *testing.T) {
	t.Parallel()
	b := start(t)
	made, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Example", MaxOpenVideoJobs: new(2)}))
	servertest.Check(t, err)
	id := made.Value.ID
	for _, step := range []struct {
		name  string
		patch adminclient.AccountPatch
		want  *int
	}{
		{"not named", adminclient.AccountPatch{Name: new("New name")}, new(2)},
		{"changed", adminclient.AccountPatch{MaxOpenVideoJobs: optional.Of(0)}, new(0)},
		{"removed", adminclient.AccountPatch{MaxOpenVideoJobs: optional.Null[int]()}, nil},
		{"set", adminclient.AccountPatch{MaxOpenVideoJobs: optional.Of(7)}, new(7)},
	} {
		patched, err := servertest.Answered(b.API.UpdateAccount(t.Context(), id, nil, step.patch))
		servertest.Check(t, err)
		read, err := servertest.Answered(b.API.GetAccount(t.Context(), id))
		servertest.Check(t, err)
		for _, got := range []*adminclient.Account{patched.Value, read.Value} {
			if diff := cmp.Diff(step.want, got.MaxOpenVideoJobs); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
	}
	if len(b.Announcer.Told) != 0 {
		t.Errorf("the limit was announced: %+v", b.Announcer.Told)
	}
	for _, bad := range []int{-1, 1_000_001} {
		refused, err := servertest.Answered(b.API.UpdateAccount(t.Context(), id, nil, adminclient.AccountPatch{MaxOpenVideoJobs: optional.Of(bad)}))
		servertest.Check(t, err)
		servertest.Problem(t, refused.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestAccountListIsPaged(t *testing.T) {
	t.Parallel()
	b := start(t)
	var want []string
	for i := range 5 {
		r, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: fmt.Sprint("Account ", i)}))
		servertest.Check(t, err)
		want = append(want, r.Value.ID)
	}
	var got []string
	params := adminclient.ListAccountsParams{Limit: new(2)}
	for pages := 0; ; pages++ {
		r, err := servertest.Answered(b.API.ListAccounts(t.Context(), &params))
		servertest.Check(t, err)
		for _, a := range r.Value.Data {
			got = append(got, a.ID)
		}
		if params.Cursor = r.Value.NextCursor; params.Cursor == nil {
			if pages != 2 {
				t.Errorf("got %d pages; want 3", pages+1)
			}
			break
		}
	}
	// Accounts that were created within one millisecond have no order.
	if diff := cmp.Diff(servertest.Sorted(want), servertest.Sorted(got)); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
	for _, params := range []adminclient.ListAccountsParams{{Limit: new(0)}, {Limit: new(501)}, {Cursor: new("?")}, {Cursor: new("AAAA")}} {
		r, err := servertest.Answered(b.API.ListAccounts(t.Context(), &params))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}

// used books a charge of an account on a day before today, by its roll-up and its pool.
func (b *server) used(account string, daysAgo int, cost int64) {
	b.T.Helper()
	id, err := ident.Account.Parse(account)
	servertest.Check(b.T, err)
	b.Exec(`insert into usage_daily select $1, d as booked_on, d as used_on, gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'm', '', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, $3
		from (select (now() at time zone 'utc')::date - $2::integer) as x(d)`, id, daysAgo, cost)
	b.Exec("update pools set settled = settled + $2 where account_id = $1 and kind = 1", id, cost)
}

func TestAccountFiguresAndOrders(t *testing.T) {
	t.Parallel()
	b := start(t)
	ids, names := map[string]string{}, []string{"idle", "rich", "heavy", "short", "old"}
	for i, name := range names {
		r, err := servertest.Answered(b.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{
			Name: "The " + name + " 10%_account", ExternalID: new("ext-" + name), Metadata: &adminclient.Metadata{"n": name},
		}))
		servertest.Check(t, err)
		ids[name] = r.Value.ID
		b.Credit(r.Value.ID, []string{"5.00", "1000.00", "100.00", "2.00", "3.00"}[i], name)
	}
	b.used(ids["rich"], 0, 1_000_000_000)
	b.used(ids["heavy"], 0, 10_000_000_000)
	b.used(ids["heavy"], 6, 60_000_000_000)
	b.used(ids["heavy"], 7, 7_000_000_000)
	b.used(ids["short"], 1, 1_900_000_000)
	b.used(ids["old"], 30, 1_000_000_000)
	got, err := servertest.Answered(b.API.GetAccount(t.Context(), ids["heavy"]))
	servertest.Check(t, err)
	if a := got.Value; a.CostToday != "10.00" || a.Cost7D != "70.00" || a.HoursLeft == nil || *a.HoursLeft < 47 || *a.HoursLeft > 55 || a.Metadata["n"] != "heavy" {
		t.Errorf("heavy: %s", got.Body)
	}
	idle, err := servertest.Answered(b.API.GetAccount(t.Context(), ids["idle"]))
	servertest.Check(t, err)
	if a := idle.Value; a.CostToday != "0.00" || a.Cost7D != "0.00" || a.HoursLeft != nil {
		t.Errorf("idle: %s", idle.Body)
	}
	_, err = servertest.Answered(b.API.UpdateAccount(t.Context(), ids["old"], nil, adminclient.AccountPatch{Status: new(adminclient.AccountStatusSuspended)}))
	servertest.Check(t, err)
	for _, test := range []struct {
		name   string
		params adminclient.ListAccountsParams
		want   []string
	}{
		{"created", adminclient.ListAccountsParams{Sort: new(adminclient.AccountSortCreated)}, names},
		{"balance", adminclient.ListAccountsParams{Sort: new(adminclient.AccountSortBalance)}, []string{"short", "old", "idle", "heavy", "rich"}},
		{"cost", adminclient.ListAccountsParams{Sort: new(adminclient.AccountSortCost7D)}, []string{"heavy", "short", "rich", "idle", "old"}},
		{"hours left", adminclient.ListAccountsParams{Sort: new(adminclient.AccountSortHoursLeft)}, []string{"short", "heavy", "rich", "idle", "old"}},
		{"status", adminclient.ListAccountsParams{Status: new(adminclient.AccountStatusActive), Sort: new(adminclient.AccountSortHoursLeft)}, []string{"short", "heavy", "rich", "idle"}},
		{"status, oldest first", adminclient.ListAccountsParams{Status: new(adminclient.AccountStatusSuspended)}, []string{"old"}},
		{"part of a name", adminclient.ListAccountsParams{Query: new("THE HEA")}, []string{"heavy"}},
		{"part of an external id", adminclient.ListAccountsParams{Query: new("t-short"), Sort: new(adminclient.AccountSortBalance)}, []string{"short"}},
		{"the text of a pattern", adminclient.ListAccountsParams{Query: new("10%_a")}, names},
		{"no pattern", adminclient.ListAccountsParams{Query: new("T%e")}, nil},
	} {
		list := func(limit *int, cursor *string) ([]string, *string) {
			test.params.Limit, test.params.Cursor = limit, cursor
			r, err := servertest.Answered(b.API.ListAccounts(t.Context(), &test.params))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(a adminclient.Account) string { return strings.TrimPrefix(*a.ExternalID, "ext-") }), r.Value.NextCursor
		}
		if got := servertest.Walk(t, list, func() {}); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v; want %v", test.name, got, test.want)
		}
	}
	for _, params := range []adminclient.ListAccountsParams{
		{Sort: new(adminclient.AccountSort("name"))}, {Status: new(adminclient.AccountStatus("gone"))}, {Sort: new(adminclient.AccountSortBalance), Cursor: new("AAAA")},
	} {
		r, err := servertest.Answered(b.API.ListAccounts(t.Context(), &params))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestMetadataIsReplaced(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	if len(a.Metadata) != 0 {
		t.Errorf("a new account has %v", a.Metadata)
	}
	for _, metadata := range []adminclient.Metadata{{"plan": "business", "city": "Łódź"}, {"plan": "free"}, {}} {
		r, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Metadata: &metadata}))
		servertest.Check(t, err)
		if !maps.Equal(r.Value.Metadata, metadata) {
			t.Errorf("got %v; want %v", r.Value.Metadata, metadata)
		}
	}
	r, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{
		Metadata: &adminclient.Metadata{"": "x", "long": strings.Repeat("x", 501)},
	}))
	servertest.Check(t, err)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	if p := r.Problem; p != nil && len(p.Errors) != 2 {
		t.Errorf("got %+v; want the name and the value refused", p.Errors)
	}
}
