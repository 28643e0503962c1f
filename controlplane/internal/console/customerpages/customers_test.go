package customerpages_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestEveryPageOfAnAccountIsShown(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	at := "/console/accounts/" + a.ID
	for path, want := range map[string]string{
		at: "25.000000001", at + "/keys": "production", at + "/usage": "No request of these days", at + "/ledger": "25.000000001", at + "/credits": "invoice of Example", at + "/statement": "Closing balance",
		at + "/alerts": "Thresholds", at + "/models": "Granted to this account", at + "/changes": "ledger.payment", at + "/money": "Slots for requests", "/console/keys/" + k.ID: "<dt>Last use</dt><dd>never",
		"/console/usage": "No request of these days", "/console/usage?by=day&by=account&by=key&by=model": "No request of these days",
		at + "/edit": "Save", at + "/suspend": "refused with 401 invalid_api_key", at + "/book": "Review", at + "/alerts/edit": "Save", at + "/models/grant": "no model", at + "/keys/new": "Issue key",
		at + "/keys/import": "Import", "/console/keys/" + k.ID + "/edit": "Save", "/console/keys/" + k.ID + "/revoke": "confirm", "/console/keys/" + k.ID + "/rotate": "Overlap", "/console/keys/" + k.ID + "/reveal": "Reveal",
	} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: got %d without %q: %s", path, answer.StatusCode, want, page)
		}
	}
	answer, page := b.Get(at + "/statement?format=csv")
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "25.000000001") || !strings.Contains(answer.Header.Get("Content-Disposition"), ".csv") {
		t.Errorf("the statement as CSV: got %d %s", answer.StatusCode, page)
	}
}

// What support does most is one press away from the page on which it begins.
func TestAccountLeadsToItsFailedRequestsAndRevokesKeysFromTheList(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	_, reader := w.NewToken(adminclient.ScopeRead)
	at, revoke := "/console/accounts/"+a.ID, `href="/console/keys/`+k.ID+`/revoke" data-dialog`
	for _, c := range []struct {
		token, path, link string
		want              bool
	}{
		{servertest.BootstrapToken, at, `href="/console/requests?account_id=` + a.ID + `&amp;status=failed"`, true},
		{servertest.BootstrapToken, at, `href="/console/refusals?account_id=` + a.ID + `"`, true},
		{servertest.BootstrapToken, at + "/keys", revoke, true},
		{reader, at + "/keys", revoke, false},
	} {
		if _, page := w.SignedIn(c.token).Get(c.path); strings.Contains(page, c.link) != c.want {
			t.Errorf("%s has %s: %v; want %v: %s", c.path, c.link, !c.want, c.want, page)
		}
	}
	_, err := w.API.RevokeKey(t.Context(), k.ID, nil)
	servertest.Check(t, err)
	if _, page := w.SignedIn(servertest.BootstrapToken).Get(at + "/keys"); strings.Contains(page, revoke) {
		t.Errorf("a revoked key can be revoked: %s", page)
	}
}

func TestLedgerShowsTheBalanceAfterEachTransaction(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	for reference, amount := range map[string]string{"second": "0.1", "third": "-5.000000003"} {
		_, err := w.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{Amount: amount, Kind: adminclient.CreditKindPayment, Reference: reference})
		if reference == "third" {
			_, err = w.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{Amount: amount, Kind: adminclient.CreditKindCorrection, Reference: reference, Reason: new("wrong")})
		}
		servertest.Check(t, err)
	}
	_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/accounts/" + a.ID + "/ledger")
	for _, want := range []string{"20.099999998", "25.000000001"} {
		if !strings.Contains(page, want) {
			t.Errorf("the ledger has no %s: %s", want, page)
		}
	}
}

// A pool begins as a central one, whose units are given for each request; that is no shortage.
func TestLittleIsLeftOnlyOfAPoolThatIsNearlyUsed(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	if _, page := b.Get("/console/accounts/" + a.ID + "/money"); strings.Contains(page, "little left") || !strings.Contains(page, "25.000000001") {
		t.Errorf("nothing is used, and the page says: %s", page)
	}
	_, err := w.DB.Pool().Exec(t.Context(), "update pools set free = 0, central = true where kind = 1")
	servertest.Check(t, err)
	if _, page := b.Get("/console/accounts/" + a.ID + "/money"); strings.Count(page, "little left") != 1 {
		t.Errorf("nothing of the balance is free, and the page says: %s", page)
	}
}

func TestBookingIsReviewedAndBookedOnce(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/accounts/" + a.ID + "/book"
	_, page := b.Get(path)
	values := []string{"kind", "correction", "amount", "-0.000000001", "reference", "ticket-1", "reason", "too much", "idempotency_key", consoletest.Hidden(t, page, "idempotency_key")}
	answer, page := b.Post(path, append(values, "step", "review")...)
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "from 25.000000001 to 25.00 USD") {
		t.Fatalf("the review: got %d %s", answer.StatusCode, page)
	}
	for range 2 {
		if answer, page = b.Post(path, append(values, "step", "do")...); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("got %d %s", answer.StatusCode, page)
		}
	}
	balance, err := w.API.GetBalance(t.Context(), a.ID)
	servertest.Check(t, err)
	if balance.Value.Balance != "25.00" {
		t.Errorf("got a balance of %s; want 25.00", balance.Value.Balance)
	}
	listed, err := w.API.ListCredits(t.Context(), a.ID, nil)
	servertest.Check(t, err)
	credit := listed.Value.Data[0].ID
	if _, page := b.Get(path + "?credit_id=" + credit); !strings.Contains(page, credit) {
		t.Errorf("the form does not name the credit that is paid back: %s", page)
	}
	for _, kind := range []string{"refund", "correction"} {
		values := []string{"kind", kind, "amount", "-25.1", "reference", "paid-back", "reason", "paid back", "step", "review"}
		if kind == "refund" {
			values = append(values, "credit_id", credit)
		}
		if answer, page = b.Post(path, values...); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "check the box if that is meant") {
			t.Errorf("a %s below zero: got %d %s", kind, answer.StatusCode, page)
		}
		if answer, page = b.Post(path, append(values, "allow_negative_balance", "yes")...); answer.StatusCode != http.StatusOK || !strings.Contains(page, "to -0.10 USD") {
			t.Errorf("a %s below zero that is meant: got %d %s", kind, answer.StatusCode, page)
		}
	}
	answer, page = b.Post(path, "kind", "correction", "amount", "1e9", "reference", "x", "step", "review")
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "must be a decimal") {
		t.Errorf("a wrong amount: got %d %s", answer.StatusCode, page)
	}
}

// The reason is told to the customer, so a correction has one: it is asked for in place, and stands in the ledger.
func TestCorrectionNeedsAReason(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/accounts/" + a.ID + "/book"
	values := []string{"kind", "correction", "amount", "-1", "reference", "ticket-1", "idempotency_key", "k1"}
	for _, step := range []string{"review", "do"} {
		answer, page := b.Post(path, append(values, "step", step)...)
		_, field, _ := strings.Cut(page, `name="reason"`)
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(field, "field-error") {
			t.Errorf("%s without a reason: got %d %s", step, answer.StatusCode, page)
		}
	}
	if answer, page := b.Post(path, append(values, "reason", "charged twice", "step", "do")...); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get("/console/accounts/" + a.ID + "/ledger"); !strings.Contains(page, "charged twice") {
		t.Errorf("the ledger does not tell the reason: %s", page)
	}
	if answer, page := b.Post(path, "kind", "payment", "amount", "1", "reference", "invoice-2", "idempotency_key", "k2", "step", "do"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("a payment without a reason: got %d %s", answer.StatusCode, page)
	}
}

// Money is booked by somebody who has just signed in. What was typed is not lost.
func TestBookingNeedsAFreshSignIn(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	_, err := w.DB.Pool().Exec(t.Context(), "update console_sessions set created_at = now() - interval '16 minutes'")
	servertest.Check(t, err)
	path := "/console/accounts/" + a.ID + "/book"
	if answer, _ := b.Get(path + "?amount=3"); answer.Header.Get("Location") != "/console/sign-in?again=1&return_to=%2Fconsole%2Faccounts%2F"+a.ID+"%2Fbook%3Famount%3D3" {
		t.Errorf("opening the form leads to %q", answer.Header.Get("Location"))
	}
	values := []string{"kind", "payment", "amount", "3.25", "reference", "invoice-9", "idempotency_key", "k1", "step", "do"}
	answer, page := b.Post(path, values...)
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(page, `value="3.25"`) || !strings.Contains(page, "Sign in again") {
		t.Fatalf("got %d %s; want the form with its values", answer.StatusCode, page)
	}
	if answer, _ := b.Post("/console/sign-in", "token", servertest.BootstrapToken); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("sign in: got %d", answer.StatusCode)
	}
	if answer, page := b.Post(path, values...); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("after signing in: got %d %s", answer.StatusCode, page)
	}
}

func TestKeyIsShownOnceAndRevokedByItsName(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	_, page := b.Get("/console/accounts/" + a.ID + "/keys/new")
	values := []string{"name", "staging", "spend_limit", "2.5", "idempotency_key", consoletest.Hidden(t, page, "idempotency_key"), "step", "do"}
	answer, page := b.Post("/console/accounts/"+a.ID+"/keys/new", values...)
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "mgw_") {
		t.Fatalf("got %d %s; want the secret", answer.StatusCode, page)
	}
	answer, page = b.Post("/console/accounts/"+a.ID+"/keys/new", values...)
	if answer.StatusCode != http.StatusSeeOther || strings.Contains(page, "mgw_") {
		t.Fatalf("the form sent again: got %d %s; want the page of the key without the secret", answer.StatusCode, page)
	}
	at := answer.Header.Get("Location")
	if answer, page := b.Fill(at+"/reveal", "name", ""); answer.StatusCode != http.StatusOK || !strings.Contains(page, "mgw_") {
		t.Errorf("reveal: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Fill(at+"/revoke", "confirmation", "production"); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "Type staging to confirm") {
		t.Errorf("with another name: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Fill(at+"/revoke", "confirmation", "staging"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(at); !strings.Contains(page, "no proxy accepts it any more") || !strings.Contains(page, "Applied by all 2 proxies: proxy-1, proxy-2.") || !strings.Contains(page, "revoked") {
		t.Errorf("after the revocation: %s", page)
	}
}

// The limit in the list of keys leads to the form that changes it, for those who may.
func TestLimitOfAKeyIsChangedFromTheListOfKeys(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	_, observer := w.NewToken(adminclient.ScopeRead)
	link := `<a href="/console/keys/` + k.ID + `/edit" data-dialog>`
	for text, want := range map[string]bool{servertest.BootstrapToken: true, observer: false} {
		if _, page := w.SignedIn(text).Get("/console/accounts/" + a.ID + "/keys"); strings.Contains(page, link) != want || !strings.Contains(page, k.Name) {
			t.Errorf("the list has the link: %t; want %t: %s", !want, want, page)
		}
	}
	_, err := w.API.RevokeKey(t.Context(), k.ID, nil)
	servertest.Check(t, err)
	if _, page := w.SignedIn(servertest.BootstrapToken).Get("/console/accounts/" + a.ID + "/keys"); strings.Contains(page, link) {
		t.Error("the limit of a revoked key can be changed")
	}
}

func TestKeysAreImportedByTheirHashes(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/accounts/" + a.ID + "/keys/import"
	if answer, page := b.Fill(path, "keys", "old, "+strings.Repeat("ab", 32)+", x9Kd\n\nother, zz"); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "line 2") {
		t.Errorf("a wrong hash: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Fill(path, "keys", "old, "+strings.Repeat("ab", 32)+", x9Kd"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get("/console/accounts/" + a.ID + "/keys"); !strings.Contains(page, "x9Kd") {
		t.Error("the key is not in the list")
	}
}

func TestAccountIsSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/accounts/" + a.ID + "/suspend"
	// Support looks for the answer that the form names.
	if _, page := b.Get(path); !strings.Contains(page, "Every request of its keys is refused with 401 invalid_api_key until the account is resumed") {
		t.Errorf("the form does not say what clients get: %s", page)
	}
	for i, want := range []adminclient.AccountStatus{"suspended", "active"} {
		if answer, page := b.Fill(path, []string{"confirmation", "x"}[i], "Example"); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("got %d %s", answer.StatusCode, page)
		}
		now, err := w.API.GetAccount(t.Context(), a.ID)
		servertest.Check(t, err)
		if now.Value.Status != want {
			t.Errorf("got %s; want %s", now.Value.Status, want)
		}
	}
}

// A project is created, has keys, limits and usage on its page, and is deleted when no key that works is in it.
func TestProjectOfAnAccount(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	at := "/console/accounts/" + a.ID + "/projects"
	if _, page := b.Get(at); !strings.Contains(page, "has no projects") {
		t.Errorf("without projects: %s", page)
	}
	answer, page := b.Post(at+"/new", "name", "Web shop", "description", "The search")
	project := answer.Header.Get("Location")
	if answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(project, "/console/projects/prj_") {
		t.Fatalf("got %d %q %s", answer.StatusCode, project, page)
	}
	project, _, _ = strings.Cut(project, "?")
	id := strings.TrimPrefix(project, "/console/projects/")
	_, err := w.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{
		ProjectID: &id, Name: new("of a month"), Amount: "12.5", Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodMonth, TimeZone: new("UTC")},
	})
	servertest.Check(t, err)
	if _, page := b.Get("/console/keys/" + k.ID + "/edit"); !strings.Contains(page, "Web shop") {
		t.Errorf("the form of the key does not offer the project: %s", page)
	}
	if answer, page := b.Post("/console/keys/"+k.ID+"/edit", "name", "production", "project_id", id); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the move of the key: got %d %s", answer.StatusCode, page)
	}
	for path, want := range map[string]string{
		at: "The search", project: "production", "/console/keys/" + k.ID: "Web shop", project + "/edit": "Save", project + "/delete": "are removed with it",
		"/console/usage?by=project&project_id=" + id: "No request of these days", "/console/accounts/" + a.ID + "/keys/new?project_id=" + id: "Web shop",
	} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: got %d without %q: %s", path, answer.StatusCode, want, page)
		}
	}
	if _, page := b.Get(project); !strings.Contains(page, "of a month") || !strings.Contains(page, "project.create") {
		t.Errorf("the page has no limit or no change: %s", page)
	}
	if answer, page := b.Post(project+"/delete", "confirmation", "Web shop"); answer.StatusCode == http.StatusSeeOther || !strings.Contains(page, "not revoked is in the project") {
		t.Errorf("deleted with a key: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Post("/console/keys/"+k.ID+"/edit", "name", "production", "project_id", ""); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the key leaves: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Post(project+"/delete", "confirmation", "Web shop"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("deleted: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(project); !strings.Contains(page, "deleted") {
		t.Errorf("the page of the deleted project: %s", page)
	}
}

// The settings of a key that has expired can be changed: its expiry, which the form repeats, stays as it is.
func TestExpiredKeyIsEdited(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	_, err := w.DB.Pool().Exec(t.Context(), `update api_keys set expires_at = '2026-01-31T14:00:00.25Z'`)
	servertest.Check(t, err)
	answer, page := b.Post("/console/keys/"+k.ID+"/edit", "name", "production", "description", "of the shop", "expires_at", "2026-01-31T14:00:00Z")
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	now, err := w.API.GetKey(t.Context(), k.ID)
	servertest.Check(t, err)
	if *now.Value.Description != "of the shop" || now.Value.ExpiresAt == nil || now.Value.ExpiresAt.UnixMilli() != 1769868000250 {
		t.Errorf("got %v, which expires at %v", *now.Value.Description, now.Value.ExpiresAt)
	}
}

// The form of a key has all that is kept with it, shows it on the key's page, and loses nothing that its text cannot have.
func TestSettingsOfAKeyAreKept(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/keys/" + k.ID
	save := func(values ...string) {
		t.Helper()
		if answer, page := b.Fill(path+"/edit", append([]string{"name", "production"}, values...)...); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("got %d %s", answer.StatusCode, page)
		}
	}
	save("max_concurrent_requests", "7", "description", "The checkout", "metadata", "team=shop\r\nplan=a=b")
	got, err := w.API.GetKey(t.Context(), k.ID)
	servertest.Check(t, err)
	if got.Value.MaxConcurrentRequests == nil || *got.Value.MaxConcurrentRequests != 7 || *got.Value.Description != "The checkout" || got.Value.Metadata == nil ||
		len(*got.Value.Metadata) != 2 || (*got.Value.Metadata)["plan"] != "a=b" {
		t.Errorf("got %+v", got.Value)
	}
	if _, page := b.Get(path); !strings.Contains(page, "<code>team</code> shop") || !strings.Contains(page, "The checkout") || !strings.Contains(page, "<dt>Concurrent requests</dt><dd>7") {
		t.Errorf("the page of the key: %s", page)
	}
	if answer, page := b.Fill(path+"/edit", "name", "production", "metadata", "team"); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "each line is a name and a value") {
		t.Errorf("a line without a value: got %d %s", answer.StatusCode, page)
	}
	save("metadata", "")
	if got, err := w.API.GetKey(t.Context(), k.ID); err != nil || got.Value.Metadata != nil && len(*got.Value.Metadata) != 0 {
		t.Errorf("without metadata: got %+v, %v", got.Value, err)
	}

	odd := adminclient.Metadata{"two lines": " one\ntwo "}
	_, err = w.API.UpdateKey(t.Context(), k.ID, nil, adminclient.KeyPatch{Metadata: &odd})
	servertest.Check(t, err)
	_, err = w.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Metadata: &odd})
	servertest.Check(t, err)
	save("metadata", "two lines= one\r\ntwo ") // as a browser sends what the page has
	if answer, page := b.Fill("/console/accounts/"+a.ID+"/edit", "name", "Example", "metadata", "two lines= one\r\ntwo "); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	got, err = w.API.GetKey(t.Context(), k.ID)
	servertest.Check(t, err)
	owner, err := w.API.GetAccount(t.Context(), a.ID)
	servertest.Check(t, err)
	if (*got.Value.Metadata)["two lines"] != " one\ntwo " || owner.Value.Metadata["two lines"] != " one\ntwo " {
		t.Errorf("got %q and %q", *got.Value.Metadata, owner.Value.Metadata)
	}
}
