package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/shared/wire"
)

func TestCreateAndGetAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := answered(b.api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Example", ExternalID: new("customer-1")}))
	check(t, err)
	a := made.Value
	want := adminclient.Account{
		ID: a.ID, ExternalID: new("customer-1"), Name: "Example", Status: adminclient.AccountStatusActive, MaxConcurrentRequests: 100,
		PriceMultiplier: "1", ModelMultipliers: adminclient.ModelMultipliers{},
		Balance:   adminclient.Balance{Currency: "USD", Balance: "0.00", Reserved: "0.00", Available: "0.00"},
		CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt,
	}
	if diff := cmp.Diff(&want, a); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}

	got, err := answered(b.api.GetAccount(t.Context(), a.ID))
	check(t, err)
	if diff := cmp.Diff(a, got.Value); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}

	again, err := answered(b.api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Other", ExternalID: new("customer-1")}))
	check(t, err)
	problem(t, again.Problem, http.StatusConflict, "external_id_taken")

	for _, id := range []string{"acc_00000000000070008000000000000000", "acc_1", "key_00000000000070008000000000000000"} {
		missing, err := answered(b.api.GetAccount(t.Context(), id))
		check(t, err)
		problem(t, missing.Problem, http.StatusNotFound, "not_found")
	}
	b.checkLedger()
}

func TestAccountPatchIsAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(3)

	renamed, err := answered(b.api.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Name: new("New name")}))
	check(t, err)
	if renamed.Value.Name != "New name" || renamed.Value.MaxConcurrentRequests != 3 {
		t.Errorf("renamed to %+v", renamed.Value)
	}
	if len(b.announcer.told) != 0 {
		t.Errorf("a new name was announced: %+v", b.announcer.told)
	}

	suspended, err := answered(b.api.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{
		Status: new(adminclient.AccountStatusSuspended), MaxConcurrentRequests: new(1),
	}))
	check(t, err)
	if suspended.Value.Status != adminclient.AccountStatusSuspended || suspended.Value.MaxConcurrentRequests != 1 {
		t.Errorf("suspended to %+v", suspended.Value)
	}
	want := []wire.KeyChange{{V: wire.Version, Kind: wire.AccountUpdated, Account: a.ID}}
	if diff := cmp.Diff(want, b.announcer.told, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Revision" }, cmp.Ignore())); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}

	refused, err := answered(b.api.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{
		Name: new(""), Status: new(adminclient.AccountStatus("gone")), MaxConcurrentRequests: new(-1),
	}))
	check(t, err)
	problem(t, refused.Problem, http.StatusBadRequest, "invalid_input")
	var fields []string
	for _, e := range refused.Problem.Errors {
		fields = append(fields, e.Field)
	}
	if diff := cmp.Diff([]string{"name", "status", "max_concurrent_requests"}, fields); diff != "" {
		t.Errorf("wrong fields (-want +got):\n%s", diff)
	}
	b.checkLedger()
}

// The limit of open video jobs stays as it is unless a change names it, and null removes it. Proxies need not know it.
func TestAccountLimitOfOpenVideoJobsIsSetAndRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := answered(b.api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Example", MaxOpenVideoJobs: new(2)}))
	check(t, err)
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
		patched, err := answered(b.api.UpdateAccount(t.Context(), id, nil, step.patch))
		check(t, err)
		read, err := answered(b.api.GetAccount(t.Context(), id))
		check(t, err)
		for _, got := range []*adminclient.Account{patched.Value, read.Value} {
			if diff := cmp.Diff(step.want, got.MaxOpenVideoJobs); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
	}
	if len(b.announcer.told) != 0 {
		t.Errorf("the limit was announced: %+v", b.announcer.told)
	}
	for _, bad := range []int{-1, 1_000_001} {
		refused, err := answered(b.api.UpdateAccount(t.Context(), id, nil, adminclient.AccountPatch{MaxOpenVideoJobs: optional.Of(bad)}))
		check(t, err)
		problem(t, refused.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestAccountListIsPaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	for i := range 5 {
		r, err := answered(b.api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: fmt.Sprint("Account ", i)}))
		check(t, err)
		want = append(want, r.Value.ID)
	}
	var got []string
	params := adminclient.ListAccountsParams{Limit: new(2)}
	for pages := 0; ; pages++ {
		r, err := answered(b.api.ListAccounts(t.Context(), &params))
		check(t, err)
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
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
	for _, params := range []adminclient.ListAccountsParams{{Limit: new(0)}, {Limit: new(501)}, {Cursor: new("?")}, {Cursor: new("AAAA")}} {
		r, err := answered(b.api.ListAccounts(t.Context(), &params))
		check(t, err)
		problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}
