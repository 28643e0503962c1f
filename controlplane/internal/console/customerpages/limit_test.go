package customerpages_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// window makes the first window of each limit, in which 40 % of the amount are spent and 10 % are reserved.
func window(w *consoletest.World) {
	w.T.Helper()
	_, err := w.DB.Pool().Exec(w.T.Context(), `insert into pools (id, account_id, kind, limit_number, total, free, settled, starts_at)
		overriding system value
		select (1::bigint << 58) | (l.number << 24), l.account_id, 2, l.number, l.amount, l.amount / 2, l.amount / 10 * 4, now() from limits l`)
	servertest.Check(w.T, err)
}

// A limit is added from the page of its owner, shown there and on the pages of the keys that it applies to, changed, raised, reset and
// removed, each by the rules of the API.
func TestLimitFromTheFirstToTheLast(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	p, err := w.API.CreateProject(t.Context(), a.ID, nil, adminclient.ProjectCreate{Name: "Web shop"})
	servertest.Check(t, err)
	b.Post("/console/keys/"+k.ID+"/edit", "name", "production", "project_id", p.Value.ID)

	key, project, account := "/console/keys/"+k.ID, "/console/projects/"+p.Value.ID, "/console/accounts/"+a.ID
	for path, none := range map[string]string{
		key: "No limit that renews applies", project: "Neither the project nor", account: "no limit that renews of its own", account + "/limits": "have no limit that renews",
	} {
		if _, page := b.Get(path); !strings.Contains(page, none) || !strings.Contains(page, "/limits/new") {
			t.Errorf("%s without limits: %s", path, page)
		}
	}

	add := func(query string, values ...string) string {
		t.Helper()
		answer, page := b.Fill(account+"/limits/new"+query, values...)
		at, _, _ := strings.Cut(answer.Header.Get("Location"), "?")
		if answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(at, "/console/limits/lim_") {
			t.Fatalf("got %d %q: %s", answer.StatusCode, at, page)
		}
		return at
	}
	ofAccount := add("", "name", "a month", "amount", "100", "window.period", "month", "window.time_zone", "Europe/Moscow", "window.length_seconds", "")
	ofProject := add("?project_id="+p.Value.ID, "amount", "50", "window.period", "fixed", "window.time_zone", "UTC", "window.length_seconds", "6", "window.anchor", "2026-01-01T03:00")
	ofKey := add("?key_id="+k.ID, "name", "of the key", "amount", "10", "window.period", "forever", "window.time_zone", "UTC", "models", "example-* other")
	window(w)

	rows := regexp.MustCompile(`class="row" href="/console/limits/`)
	for path, want := range map[string]int{account: 1, account + "/limits": 3, project: 2, key: 3} {
		if _, page := b.Get(path); len(rows.FindAllString(page, -1)) != want {
			t.Errorf("%s: want %d limits: %s", path, want, page)
		}
	}
	if _, page := b.Get(key); !strings.Contains(page, "month, Europe/Moscow") || !strings.Contains(page, "each 6 hours") || !strings.Contains(page, "<code>example-*</code>") ||
		!strings.Contains(page, "project Web shop") || !strings.Contains(page, "account Example") {
		t.Errorf("the page of the key: %s", page)
	}
	if _, page := b.Get(ofKey); !strings.Contains(page, `title="4.00"`) || !strings.Contains(page, `title="1.00"`) || !strings.Contains(page, `title="5.00"`) || !strings.Contains(page, "limit.create") {
		t.Errorf("the page of the limit has not its figures: %s", page)
	}
	if _, page := b.Get(ofProject); !strings.Contains(page, "one began at") {
		t.Errorf("the limit of the project: %s", page)
	}

	if answer, page := b.Fill(ofKey+"/edit", "name", "of the key", "amount", "20", "models", ""); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the change: got %d %s", answer.StatusCode, page)
	}
	got, err := w.API.GetLimit(t.Context(), strings.TrimPrefix(ofKey, "/console/limits/"))
	servertest.Check(t, err)
	if got.Value.Amount != "20.00" || len(got.Value.Models) != 0 {
		t.Errorf("after the change: %+v", got.Value)
	}

	until := time.Now().UTC().AddDate(0, 0, 1).Format("2006-01-02T15:04")
	if answer, page := b.Fill(ofKey+"/raise", "raised_to", "30.5", "raised_until", until); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the raise: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(ofKey); !strings.Contains(page, "The limit is raised.") || !strings.Contains(page, "Raised to") || !strings.Contains(page, "limit.update") {
		t.Errorf("the raised limit: %s", page)
	}
	if _, page := b.Get(key); !strings.Contains(page, "raised, until") || !strings.Contains(page, `title="30.50"`) {
		t.Errorf("the key with the raised limit: %s", page)
	}
	if answer, page := b.Fill(ofKey + "/lower"); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the end of the raise: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(ofKey); strings.Contains(page, "Raised to") {
		t.Errorf("the raise has ended: %s", page)
	}

	if answer, page := b.Fill(ofKey+"/remove", "confirmation", "of the key"); answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != key {
		t.Fatalf("the removal: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get(ofKey); !strings.Contains(page, "<dt>Removed</dt>") || strings.Contains(page, ofKey+"/raise") {
		t.Errorf("the removed limit: %s", page)
	}
	if _, page := b.Get(ofAccount); !strings.Contains(page, "a month") {
		t.Errorf("the limit of the account: %s", page)
	}
}

// A reset is made once, however often its form is sent, and only by somebody who confirms it.
func TestWindowIsResetOnce(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	made, err := w.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{Amount: "10", Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever}})
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/limits/" + made.Value.ID + "/reset"
	if answer, page := b.Fill(path, "confirmation", "reset"); answer.StatusCode != http.StatusConflict || !strings.Contains(page, "has needed the current window") {
		t.Errorf("without a window: got %d %s", answer.StatusCode, page)
	}
	window(w)
	if answer, page := b.Fill(path); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "Type reset to confirm.") {
		t.Errorf("without a confirmation: got %d %s", answer.StatusCode, page)
	}

	_, page := b.Get(path)
	values := []string{"confirmation", "reset", "step", "do", "idempotency_key", consoletest.Hidden(t, page, "idempotency_key")}
	for range 2 {
		if answer, page := b.Post(path, values...); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("got %d %s", answer.StatusCode, page)
		}
		_, err := w.DB.Pool().Exec(t.Context(), "update pools set settled = settled + 1000000000, free = free - 1000000000 where limit_number is not null")
		servertest.Check(t, err)
	}
	got, err := w.API.GetLimit(t.Context(), made.Value.ID)
	servertest.Check(t, err)
	if got.Value.Current.Spent != "2.00" {
		t.Errorf("got %s spent; want 2.00, which was spent after the reset", got.Value.Current.Spent)
	}
}

func TestProblemsOfALimitAreShownAtTheirFields(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/accounts/" + a.ID + "/limits/new"
	refused := func(page, field string) bool {
		return regexp.MustCompile(`name="` + regexp.QuoteMeta(field) + `"(?s:[^>]*aria-invalid.*?)class="field-error"`).MatchString(page)
	}
	for _, tt := range []struct {
		field  string
		values []string
	}{
		{"amount", []string{"amount", "1.0000000001", "window.period", "day", "window.time_zone", "UTC"}},
		{"window.time_zone", []string{"amount", "1", "window.period", "day", "window.time_zone", "Mars/Olympus"}},
		{"window.length_seconds", []string{"amount", "1", "window.period", "fixed", "window.length_seconds", "745"}},
		{"window.length_seconds", []string{"amount", "1", "window.period", "first_use", "window.length_seconds", "an hour"}},
		{"window.length_seconds", []string{"amount", "1", "window.period", "first_use", "window.length_seconds", "9223372036854775807"}},
		{"window.anchor", []string{"amount", "1", "window.period", "fixed", "window.length_seconds", "1", "window.anchor", "noon"}},
		{"models", []string{"amount", "1", "window.period", "forever", "models", "a*b"}},
	} {
		if answer, page := b.Fill(path, tt.values...); answer.StatusCode != http.StatusBadRequest || !refused(page, tt.field) {
			t.Errorf("%v: got %d %s", tt.values, answer.StatusCode, page)
		}
	}

	made, err := w.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{Amount: "10", Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever}})
	servertest.Check(t, err)
	path = "/console/limits/" + made.Value.ID + "/raise"
	for field, values := range map[string][]string{
		"raised_to":    {"raised_to", "9", "raised_until", "2100-01-01T00:00"},
		"raised_until": {"raised_to", "11", "raised_until", "2001-01-01T00:00"},
	} {
		if answer, page := b.Fill(path, values...); answer.StatusCode != http.StatusBadRequest || !refused(page, field) {
			t.Errorf("%v: got %d %s", values, answer.StatusCode, page)
		}
	}

	edit := "/console/limits/" + made.Value.ID + "/edit"
	_, page := b.Get(edit)
	_, err = w.API.UpdateLimit(t.Context(), made.Value.ID, nil, adminclient.LimitPatch{Amount: new("12")})
	servertest.Check(t, err)
	if answer, page := b.Post(edit, "amount", "11", "step", "do", "if_match", consoletest.Hidden(t, page, "if_match")); answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, "now: <b>12.00</b>") {
		t.Errorf("a change in the meantime: got %d %s", answer.StatusCode, page)
	}
}

func TestLimitsAreOnlyChangedByThoseWhoMay(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	made, err := w.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{Amount: "10", Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever}})
	servertest.Check(t, err)
	_, token := w.NewToken(adminclient.ScopeObserve)
	b := w.SignedIn(token)
	limit := "/console/limits/" + made.Value.ID
	for _, path := range []string{limit, "/console/keys/" + k.ID, "/console/accounts/" + a.ID, "/console/accounts/" + a.ID + "/limits"} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK || strings.Contains(page, limit+"/raise") || strings.Contains(page, "/limits/new") {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, page)
		}
	}
	if answer, _ := b.Post(limit+"/reset", "confirmation", "reset", "step", "do"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a form sent by hand: got %d; want 403", answer.StatusCode)
	}
}
