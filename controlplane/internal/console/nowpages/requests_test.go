package nowpages_test

import (
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// Every figure of the receipt is the text of the API.
func TestRequestShowsItsReceipt(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	id := w.Request(k, event.Completed, price.Usage{Input: 1_200_001, Output: 300})
	got, err := w.API.GetUsage(t.Context(), id)
	servertest.Check(t, err)
	u := got.Value
	b := w.SignedIn(servertest.BootstrapToken)
	_, page := b.Get("/console/requests/" + id)
	wants := []string{u.Receipt.Cost, u.Receipt.ListCost, u.Receipt.Reservation, "310 ms", "4.2 s", "Example", "production", "those that the provider reported"}
	for _, line := range u.Receipt.Lines {
		wants = append(wants, line.Amount, line.UnitPrice)
	}
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	answer, page := b.Fill("/console/accounts/"+k.AccountID+"/book", "kind", "correction", "amount", u.Cost, "reference", "c1", "reason", "cut short", "request_id", id)
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the correction: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get("/console/requests/" + id); !strings.Contains(page, "cut short") || !strings.Contains(page, `After corrections, USD</th><td class="number"><span class="money" title="0.00">`) {
		t.Errorf("the corrected request: %s", page)
	}
}

// Requests are listed by when they began, so that is the time which the list shows.
func TestRequestsShowTheTimeThatTheyAreOrderedBy(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	id := w.Request(k, event.Completed, price.Usage{})
	u, err := w.API.GetUsage(t.Context(), id)
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	for _, path := range []string{"/console/requests", "/console/keys/" + k.ID} {
		_, page := b.Get(path)
		_, cell, _ := strings.Cut(page, `data-label="Started"`)
		if want := `datetime="` + u.Value.StartedAt.Format(time.RFC3339Nano); !strings.HasPrefix(strings.TrimPrefix(cell, "><time "), want) {
			t.Errorf("%s: got %.100s; want %s", path, cell, want)
		}
	}
}

func TestRequestsAreFiltered(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	done := w.Request(k, event.Completed, price.Usage{Input: 1000})
	failed := w.Request(k, event.Failed, price.Usage{})
	b := w.SignedIn(servertest.BootstrapToken)
	for path, want := range map[string][2]bool{
		"/console/requests": {true, true}, "/console/requests?status=failed": {false, true}, "/console/requests?account_id=" + k.AccountID: {true, true},
		"/console/requests?min_cost=0.00001": {true, false}, "/console/requests?model=other": {false, false}, "/console/requests?stream=true": {false, false},
		"/console/requests?request_id_prefix=" + done: {true, false}, "/console/keys/" + k.ID: {true, true},
	} {
		answer, page := b.Get(path)
		if got := [2]bool{strings.Contains(page, `href="/console/requests/`+done), strings.Contains(page, `href="/console/requests/`+failed)}; answer.StatusCode != http.StatusOK || got != want {
			t.Errorf("%s: got %d %v; want %v: %s", path, answer.StatusCode, got, want, page)
		}
	}
	// The page links to the export of what it shows.
	for filter, want := range map[string]int{
		"account_id=" + k.AccountID: 2, "status=failed": 1, "min_cost=0.00001": 1, "stream=true": 0, "format=chat": 2, "format=messages": 0, "credential=other": 0,
	} {
		link := "/console/requests/export?" + filter
		if _, page := b.Get("/console/requests?" + filter); want > 0 && !strings.Contains(page, `href="`+link+`"`) {
			t.Errorf("%s: the page has no link to its export: %s", filter, page)
		}
		answer, file := b.Get(link)
		if answer.StatusCode != http.StatusOK || strings.Count(file, "req_") != want || !strings.Contains(answer.Header.Get("Content-Disposition"), "requests.csv") {
			t.Errorf("the export of %s: got %d %s; want %d requests", filter, answer.StatusCode, file, want)
		}
	}
}

func TestUsageIsAPivot(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	w.Request(k, event.Completed, price.Usage{Input: 1_000_000})
	w.Request(k, event.Completed, price.Usage{Input: 2_000_000, Output: 7})
	b := w.SignedIn(servertest.BootstrapToken)
	for path, want := range map[string]string{
		"/console/usage": "0.3000028", "/console/usage?by=day": "Charged by provider",
		"/console/usage?by=service_tier": `<td data-label="Service tier">default</td>`, "/console/usage?by=account&by=key": "production", "/console/usage?by=model&model=example-small": "example-small",
		"/console/accounts/" + k.AccountID + "/usage?by=key": "0.3000028", "/console/usage?model=other": "No request of these days", "/console/accounts/" + k.AccountID: "0.3000028",
		"/console/accounts/" + k.AccountID + "/statement": "0.3000028", "/console/accounts/" + k.AccountID + "/ledger": "24.699997201",
	} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: got %d without %q: %s", path, answer.StatusCode, want, page)
		}
	}
	if answer, _ := b.Get("/console/usage?from=2026-01-01&to=soon"); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a wrong day: got %d", answer.StatusCode)
	}
}

// The page of a request that did not end well says why in words, with the class of the provider's failure, and why it is charged.
func TestRequestSaysWhyItEndedEarly(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	broken := event.Attempt{Route: "rte_0192f0c1d2e37a4b8c5d6e7f8091a2c1", Class: "truncated", MS: 310}
	for id, want := range map[string][]string{
		w.Request(k, event.Failed, price.Usage{Input: 10}, broken): {"<code>truncated</code>", "The stream broke off: the provider ended its answer", "charged by what the provider reported"},
		w.Request(k, event.ClientGone, price.Usage{Input: 10}):     {"The client closed the connection before the end"},
		w.Request(k, event.Revoked, price.Usage{Input: 10}):        {"The key was revoked, or its account suspended"},
	} {
		_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/requests/" + id)
		for _, text := range want {
			if !strings.Contains(html.UnescapeString(page), text) {
				t.Errorf("the page has no %q: %s", text, page)
			}
		}
	}
	done := w.Request(k, event.Completed, price.Usage{Input: 10})
	if _, page := w.SignedIn(servertest.BootstrapToken).Get("/console/requests/" + done); strings.Contains(page, "is charged by what") {
		t.Errorf("a complete answer has a reason: %s", page)
	}
}

// An error is an answer with bytes of its own: nothing of an answer was sent, so none has broken off.
func TestRequestThatGotAnErrorHasNoBrokenStream(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	attempt := event.Attempt{Route: "rte_0192f0c1d2e37a4b8c5d6e7f8091a2c1", Class: "rate_limit", MS: 3}
	id := w.Answered(http.StatusTooManyRequests, k, event.Failed, price.Usage{}, attempt)
	_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/requests/" + id)
	for text, want := range map[string]bool{"broke off": false, "No route served it. The last failure: the provider is overloaded, or limits the rate of calls.": true} {
		if strings.Contains(html.UnescapeString(page), text) != want {
			t.Errorf("the page has %q: %v; want %v: %s", text, !want, want, page)
		}
	}
}

// Refusals without something that was short say why in words, under the key as far as it is known.
func TestRefusalsSayWhy(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Suspended Ltd")
	known, session, routes, model := ident.Request.New(), ident.Request.New(), ident.Request.New(), ident.Request.New()
	for id, row := range map[string]string{
		known:   "'key_inactive', account_id, id, 'invalid_api_key', 401",
		session: "'no_session', account_id, id, 'service_unavailable', 503",
		routes:  "'no_route', account_id, id, '', 503",
		model:   "'', account_id, id, 'model_not_found', 404",
	} {
		_, err := w.DB.Pool().Exec(t.Context(), `insert into traffic_refusals (hour, reason, account_id, key_id, code, status, other, n, first_at, last_at, request_id, model)
			select date_trunc('hour', now()), `+row+`, false, 3, $2, $2, $1, '' from api_keys limit 1`, id, time.Now())
		servertest.Check(t, err)
	}
	_, err := w.API.UpdateAccount(t.Context(), k.AccountID, nil, adminclient.AccountPatch{Status: new(adminclient.AccountStatusSuspended)})
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	for path, wants := range map[string][]string{
		"/console/requests/" + known:       {"The account is suspended, or the key was revoked", `<span class="badge warn">suspended</span>`, `<span class="badge good">active</span>`},
		"/console/requests/" + session:     {"The session of the proxy had ended"},
		"/console/requests/" + routes:      {"No route of the model could be called"},
		"/console/requests/" + model:       {"it does not exist, is disabled, is not granted, or has no route for the format"},
		"/console/refusals?key_id=" + k.ID: {"The account is suspended, or the key was revoked", "it does not exist, is disabled, is not granted"},
	} {
		_, page := b.Get(path)
		for _, want := range wants {
			if !strings.Contains(html.UnescapeString(page), want) {
				t.Errorf("%s has no %q: %s", path, want, page)
			}
		}
	}
}

// A refused request has a page that says what it lacked.
func TestRefusedRequestSaysWhatWasShort(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	id := ident.Request.New()
	_, err := w.DB.Pool().Exec(t.Context(), `insert into traffic_refusals (hour, account_id, key_id, code, status, other, n, first_at, last_at, request_id, model, short)
		select date_trunc('hour', now()), account_id, id, 'insufficient_quota', 402, false, 3, $2, $2, $1, 'example-small',
		'{"pool":"balance","reason":"balance_insufficient","wanted":1300000,"free":200000,"reserved":0}' from api_keys limit 1`, id, time.Now())
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	got, page := b.Get("/console/requests/" + id)
	if got.StatusCode != http.StatusOK {
		t.Fatalf("got %d", got.StatusCode)
	}
	for _, want := range []string{
		"insufficient_quota", "0.0013", "0.0002", "balance insufficient", "Example", "key_id=" + k.ID,
		"The balance leaves less than the request may cost.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

// Of the refusals of an hour with one key and code, one has its id. The page of another leads to the refusals of its hour.
func TestUnknownRequestLeadsToTheRefusalsOfItsHour(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	id := ident.Request.Format(ident.NewAt(time.Date(2026, 3, 3, 9, 41, 7, 0, time.UTC)))
	got, page := b.Get("/console/requests/" + id)
	if got.StatusCode != http.StatusNotFound {
		t.Errorf("got %d; want 404", got.StatusCode)
	}
	for _, want := range []string{`href="/console/refusals?from=2026-03-03T09:00&amp;to=2026-03-03T10:00"`, "2026-03-03 09:41:07.000 UTC"} {
		if !strings.Contains(strings.ReplaceAll(page, "%3a", ":"), want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if got, page := b.Get("/console/requests/req_none"); got.StatusCode != http.StatusNotFound && got.StatusCode != http.StatusBadRequest || strings.Contains(page, "by its id") {
		t.Errorf("what is no id: got %d %s", got.StatusCode, page)
	}
}

// A refusal leads to the limit that was short, on its own page and in the list.
func TestRefusalLeadsToTheLimitThatWasShort(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	made, err := w.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{Name: new("a month"), Amount: "1", Window: adminclient.LimitPeriod{Period: "forever"}})
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	for _, limit := range []struct{ scope, id, link, text string }{
		{"account", made.Value.ID, "/console/limits/" + made.Value.ID, "limit a month of the account"},
		{"key", k.ID, "/console/keys/" + k.ID, "spend limit of the key"},
	} {
		id := ident.Request.New()
		_, err := w.DB.Pool().Exec(t.Context(), `insert into traffic_refusals (hour, account_id, key_id, code, status, other, n, first_at, last_at, request_id, model, short)
			select date_trunc('hour', now()), account_id, id, 'spend_limit_exceeded', 403, false, 3, $2, $2, $1, $3, jsonb_build_object('pool', 'limit', 'reason', 'limit_insufficient',
				'wanted', 1300000, 'free', 200000, 'reserved', 0, 'scope', $3::text, 'limit_id', $4::text) from api_keys limit 1
			on conflict (hour, account_id, key_id, code, status, other) do update set request_id = excluded.request_id, short = excluded.short`, id, time.Now(), limit.scope, limit.id)
		servertest.Check(t, err)
		for _, path := range []string{"/console/refusals", "/console/requests/" + id} {
			_, page := b.Get(path)
			if want := `href="` + limit.link + `">` + limit.text + "</a>"; !strings.Contains(page, want) {
				t.Errorf("%s has no %q: %s", path, want, page)
			}
		}
	}
}

func TestRequestShowsTheRoutesThatWereTried(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	id := w.Request(k, event.Completed, price.Usage{Input: 10, Output: 3}, event.Attempt{Route: "rte_a", Skipped: event.SkippedBreaker},
		event.Attempt{Route: "rte_b", Credential: "crd_b", Class: "timeout", MS: 84}, event.Attempt{Route: "rte_c", Credential: "crd_c", MS: 310})
	_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/requests/" + id)
	for _, want := range []string{"Routes tried", "rte_a", "its circuit breaker is open", "rte_b", "timeout", "84 ms", "rte_c", "served"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}

func TestExplanationOfARequestIsInWords(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	_, page := b.Get("/console/explain")
	if !strings.Contains(page, "State a key or an account") {
		t.Error("the empty form does not say what to state")
	}
	_, page = b.Get("/console/explain?key_id=" + k.ID + "&model=no-such-model&input_tokens=1200")
	for _, want := range []string{
		"The client would get 402 insufficient_quota", "The balance is exhausted.", "There is no model of this name.", "Not heard: proxy-3",
		"0.0013", "version 12 × 1.5", "try 1", "its circuit breaker is open", "--input-tokens", ">enough<", "https://backup.example/v4/chat",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}
