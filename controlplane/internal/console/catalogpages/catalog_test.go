package catalogpages_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/console/view"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
	"modelgateway/shared/pulse"
)

func TestEveryPageOfTheCatalogIsShown(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	for path, want := range map[string]string{
		"/console/models": "0.40", "/console/models/example-small": "small-main", "/console/providers": "https://api.example.com",
		"/console/providers/acme": "small-2026", "/console/catalog": "example-small", "/console/catalog/file": "example-small", "/console/maintenance": "Nothing is closed",
		"/console/models/example-small/edit": "Review", "/console/models/example-small/price": "0.40", "/console/models/example-small/routes/small-main/edit": "small-2026",
		"/console/providers/acme/edit": "https://api.example.com", "/console/providers/acme/credentials/new": "never shown again",
		"/console/providers/acme/credentials/main/replace": "takes the place of all that is stored", "/console/providers/acme/credentials/main/enable": "Disable main",
		"/console/catalog/new-model": "The name that clients send", "/console/catalog/new-provider": "never shown again", "/console/models/example-small/new-route": "what the model has: 1 route",
		"/console/models/example-small/delete": "Nobody has used it", "/console/models/example-small/routes/small-main/delete": "No enabled route is left",
		"/console/providers/acme/delete": "2 credentials", "/console/providers/acme/credentials/main/delete": "1 enabled credential",
		"/console/maintenance/close?scope=system": "the whole system", "/console/maintenance/close?scope=model&id=example-small": "refused with 503",
	} {
		answer, page := b.Get(path)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: got %d without %q: %s", path, answer.StatusCode, want, page)
		}
		if strings.Contains(page, "sk-acme") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if answer, _ := b.Get("/console/maintenance/close?scope=model&id=unknown"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("the form of an unknown model: got %d", answer.StatusCode)
	}
}

// A price is changed and a model closed from the list, and a provider's page leads to the form of a model of it.
func TestListOfModelsHasWhatIsDoneOften(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	has := func(path, link string) {
		t.Helper()
		if _, page := b.Get(path); !strings.Contains(page, `href="`+link+`" data-dialog`) {
			t.Errorf("%s has no link to %s: %s", path, link, page)
		}
	}
	const of, another = "scope=model&amp;id=example-small", "/console/catalog/new-model?routes%5B0%5D.provider=acme"
	has("/console/models", "/console/models/example-small/price")
	has("/console/models", "/console/maintenance/close?"+of)
	has("/console/providers/acme", another)
	if _, page := b.Get(another); !strings.Contains(page, `<option value="acme" selected>`) {
		t.Errorf("the form of a model of the provider has another one: %s", page)
	}
	_, err := w.API.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{})
	servertest.Check(t, err)
	has("/console/models", "/console/maintenance/open?"+of)
}

func TestModelTellsWhatIsReservedWithoutALimit(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	want := view.Count(catalogkv.DefaultOutputReserve) + ", as the model has no limit"
	for _, limit := range []int64{0, 8000} {
		if limit > 0 {
			_, err := w.API.UpdateModel(t.Context(), "example-small", nil, adminclient.CatalogModelPatch{MaxOutputTokens: &limit})
			servertest.Check(t, err)
		}
		_, page := b.Get("/console/models/example-small")
		if strings.Contains(page, want) != (limit == 0) || strings.Contains(page, "the most output tokens") == (limit == 0) {
			t.Errorf("with the limit %d: got %s", limit, page)
		}
	}
}

func TestCatalogPagesHideControlsFromThoseWhoMayOnlyRead(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	_, token := w.NewToken(adminclient.ScopeObserve)
	b := w.SignedIn(token)
	for _, path := range []string{"/console/models", "/console/models/example-small", "/console/providers", "/console/providers/acme", "/console/maintenance"} {
		answer, page := b.Get(path)
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d", path, answer.StatusCode)
		}
		for _, control := range []string{"data-dialog", "/console/catalog", "scope=system"} {
			if strings.Contains(page, control) {
				t.Errorf("%s has %s", path, control)
			}
		}
	}
	for _, path := range []string{"/console/catalog", "/console/models/example-small/price", "/console/maintenance/close?scope=system"} {
		if answer, _ := b.Post(path); answer.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s: got %d", path, answer.StatusCode)
		}
	}
}

func TestApplyingTheCatalogDoesWhatTheReviewShowed(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	_, document := b.Get("/console/catalog/file")
	edited := strings.Replace(document, "0.10", "0.12", 1)
	if edited == document {
		t.Fatalf("the document has no price 0.10: %s", document)
	}
	answer, review := b.Post("/console/catalog", "document", edited, "step", "review")
	if answer.StatusCode != http.StatusOK || !strings.Contains(review, "Apply this change") {
		t.Fatalf("review: got %d %s", answer.StatusCode, review)
	}
	price := func() string {
		m, err := w.API.GetModel(t.Context(), "example-small")
		servertest.Check(t, err)
		return *m.Value.Price.Input
	}
	if got := price(); got != "0.1" && got != "0.10" {
		t.Fatalf("the review changed the price to %s", got)
	}
	answer, page := b.Post("/console/catalog", append(consoletest.HiddenFields(review), "document", edited, "step", "do")...)
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("apply: got %d %s", answer.StatusCode, page)
	}
	if got := price(); got != "0.12" {
		t.Errorf("the price after applying: got %s", got)
	}
	if _, page := b.Get("/console/catalog"); !strings.Contains(page, "One change was applied.") {
		t.Errorf("the page does not tell what was applied: %s", page)
	}
}

func TestApplyingAnOlderReviewShowsTheNewChangesInstead(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	_, document := b.Get("/console/catalog/file")
	edited := strings.Replace(document, "0.10", "0.12", 1)
	_, review := b.Post("/console/catalog", "document", edited, "step", "review")
	_, err := w.API.UpdateProvider(t.Context(), "acme", nil, adminclient.CatalogProviderPatch{Name: new("Acme of another tab")})
	servertest.Check(t, err)
	answer, page := b.Post("/console/catalog", append(consoletest.HiddenFields(review), "document", edited, "step", "do")...)
	if answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, "Acme of another tab") || !strings.Contains(page, "Apply these 2 changes") {
		t.Fatalf("an older review: got %d %s", answer.StatusCode, page)
	}
	if m, err := w.API.GetModel(t.Context(), "example-small"); err != nil || *m.Value.Price.Input == "0.12" {
		t.Errorf("the older review was applied: %v", err)
	}
}

func TestCatalogPageDoesNotEchoSecretsAndShowsProblems(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	for _, document := range []string{
		"currency: USD\nproviders: [{id: acme, base_url: \"https://api.example.com\", credentials: [{name: main, secret: hush-hush}]}]",
		`{"currency": "USD", "providers": [{"id": "acme", "credentials": [{"name": "main", "secret": "hush-hush"}]}]}`,
	} {
		answer, page := b.Post("/console/catalog", "document", document, "step", "review")
		if answer.StatusCode != http.StatusSeeOther || strings.Contains(page, "hush-hush") {
			t.Errorf("a document with a secret: got %d %s", answer.StatusCode, page)
		}
	}
	answer, page := b.Post("/console/catalog", "document", "currency: USD\nmodels: [{id: x, type: text, price: {input: much}}]", "step", "review")
	if answer.StatusCode < 400 || answer.StatusCode > 499 || !strings.Contains(page, "input: much") {
		t.Errorf("an invalid document: got %d %s", answer.StatusCode, page)
	}
}

func TestPriceIsReviewedAndSet(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	const path = "/console/models/example-small/price"
	from := time.Now().UTC().AddDate(1, 0, 0)
	_, form := b.Get(path)
	values := append(consoletest.HiddenFields(form), "price.input", "0.10", "price.output", "0.55", "effective_from", from.Format("2006-01-02T15:04"), "days", "7")
	_, page := b.Post(path, append(values, "step", "review")...)
	if !strings.Contains(page, "0.55 per 1M tokens") || !strings.Contains(page, from.Format("2006-01-02 15:04 UTC")) {
		t.Errorf("the review does not tell the change: %s", page)
	}
	if !strings.Contains(page, "<dd>in the last 7 days </dd>") {
		t.Errorf("the review does not show the choice as the form does: %s", page)
	}
	if !strings.Contains(page, "there were no requests for the model") {
		t.Errorf("the review does not tell what the price would have charged: %s", page)
	}
	if answer, page := b.Post(path, append(values, "step", "do")...); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("set: got %d %s", answer.StatusCode, page)
	}
	_, page = b.Get("/console/models/example-small")
	const amount = `<span class="money" title="0.55">` // times have such digits, too
	if !strings.Contains(page, "scheduled") || !strings.Contains(page, amount) {
		t.Errorf("the model does not show the scheduled price: %s", page)
	}
	cancel := regexp.MustCompile(`/console/models/example-small/prices/[^"]+/cancel`).FindString(page)
	if answer, page := b.Post(cancel, "step", "do"); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("cancel %q: got %d %s", cancel, answer.StatusCode, page)
	}
	if _, page := b.Get("/console/models/example-small"); strings.Contains(page, amount) {
		t.Errorf("the cancelled price is still shown: %s", page)
	}
	if answer, page := b.Post(path, "price.input", "{", "price.output", "1.00", "step", "do"); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "field-error") {
		t.Errorf("an invalid price: got %d %s", answer.StatusCode, page)
	}
}

func TestPriceFormShowsThePriceThatSomebodyElseHasSet(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	const path = "/console/models/example-small/price"
	_, form := b.Get(path)
	match := consoletest.Hidden(t, form, "if_match")
	_, err := w.API.UpdateModel(t.Context(), "example-small", nil, adminclient.CatalogModelPatch{Price: &adminclient.CatalogPrice{Input: new("0.77"), CachedInput: new("0.07"), Output: new("0.40")}})
	servertest.Check(t, err)
	send := func(match string) (*http.Response, string) {
		return b.Post(path, "step", "do", "idempotency_key", "of the form "+match, "if_match", match, "days", "0", "price.input", "0.12", "price.output", "0.40")
	}
	answer, page := send(match)
	if answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, "changed after you opened this form") || !strings.Contains(page, "0.77") {
		t.Fatalf("an older form: got %d: %s", answer.StatusCode, page)
	}
	_, fresh := b.Get(path)
	if input, cached := strings.Index(fresh, `name="price.input"`), strings.Index(fresh, `name="price.cached_input"`); input < 0 || cached < input {
		t.Errorf("the price is not in the order of a receipt: %s", fresh)
	}
	if answer, page := send(consoletest.Hidden(t, page, "if_match")); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("the form again: got %d: %s", answer.StatusCode, page)
	}
}

func TestTimeLineHasPastPresentAndScheduledPricesInOrder(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	const path, line, step = "/console/models/example-small", `(?s)<ol class="timeline".*?</ol>`, `(?s)<li .*?</li>`
	if _, page := b.Get(path); len(consoletest.Texts(page, line)) != 0 {
		t.Errorf("a model with one price has a time line: %s", page)
	}
	set := func(output string, from *time.Time) {
		_, err := w.API.CreatePrice(t.Context(), "example-small", nil, adminclient.PriceCreate{
			EffectiveFrom: from, Price: adminclient.CatalogPrice{Input: new("0.10"), CachedInput: new("0.05"), Output: &output},
		})
		servertest.Check(t, err)
	}
	for _, output := range []string{"0.41", "0.42", "0.43"} {
		set(output, nil)
	}
	later := time.Now().UTC().AddDate(1, 0, 0).Truncate(time.Hour)
	set("0.61", new(later.AddDate(1, 0, 0)))
	set("0.51", &later)
	_, page := b.Get(path)
	steps := consoletest.Texts(regexp.MustCompile(line).FindString(page), step)
	if len(steps) != 5 {
		t.Fatalf("got %q; want two past prices, that in force and two scheduled ones", steps)
	}
	for i, want := range [][]string{
		{"past", "output 0.41"}, {"past", "output 0.42"}, {"in force", "output 0.43"}, {"scheduled", "output 0.51", later.Format(time.DateOnly)}, {"scheduled", "output 0.61"},
	} {
		for _, text := range append(want, "input 0.1") {
			if !strings.Contains(steps[i], text) {
				t.Errorf("step %d is %q; want %q", i+1, steps[i], text)
			}
		}
	}
	if !strings.Contains(page, "1 older price") || strings.Count(page, `aria-current="true"`) != 1 {
		t.Errorf("the page does not tell of the older price, or which price is in force: %s", page)
	}
}

func TestModelShowsTheParametersThatDifferFromThePolicy(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	forced := adminclient.CatalogParams{
		"chat": {"logprobs": {Policy: adminclient.CatalogParamPolicyForce, Value: new(any(false))}},
		"messages": {"tools": {
			Policy: adminclient.CatalogParamPolicyReject, Allow: []any{"web_search_*"}, Otherwise: new(adminclient.CatalogParamOtherwiseReject),
		}},
	}
	_, err := w.API.UpdateRoute(t.Context(), "example-small", "small-main", nil, adminclient.CatalogRoutePatch{Params: &forced})
	servertest.Check(t, err)
	_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/models/example-small")
	section := regexp.MustCompile(`(?s)Parameters that differ from the policy</h2>.*?</table>`).FindString(page)
	rows := consoletest.Texts(section, `(?s)<tr><td.*?</tr>`)
	want := []string{
		"seed model chat drop", "logprobs small-main chat force false",
		"tools small-main messages reject allowed: web_search_* ; others that are offered are refused",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got %q; want %q", rows, want)
	}
}

// The 31 days before now always begin in another month.
func TestPriceReviewTellsChargesOfPastRequestsAndMissingMonths(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	w.Request(k, event.Completed, price.Usage{Input: 1_200_001, Output: 300})
	b := w.SignedIn(servertest.BootstrapToken)
	const path = "/console/models/example-small/price"
	_, form := b.Get(path)
	values := append(consoletest.HiddenFields(form), "price.input", "0.20", "price.output", "0.50", "days", "31", "step", "review")
	_, page := b.Post(path, values...)
	for _, want := range []string{
		"1 request of 1 account was charged 0.1201201 USD. By this price it would have been charged 0.2401502 USD (&#43;0.1200301)",
		"Example: 0.1201201 → 0.2401502 USD",
		"Providers charge 0.00 USD for the calls whose cost is known: the margin was 0.00, by this price it would have been 0.00. " +
			"Left out: 1 call of unknown cost, with 0.1201201 of the charges.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the review does not have %q: %s", want, page)
		}
	}
	if strings.Contains(page, "not counted") {
		t.Errorf("the review tells of requests that are missing: %s", page)
	}
	begin := time.Now().UTC().AddDate(0, 0, -31)
	first := time.Date(begin.Year(), begin.Month(), 1, 0, 0, 0, 0, time.UTC)
	for _, month := range []time.Time{first.AddDate(0, -1, 0), first} {
		_, err := w.DB.Pool().Exec(t.Context(), `insert into usage_months (month, records, cost, exported_at, exported_by, dropped_at)
			values ($1, 3, 0, now(), 'system', now())`, month)
		servertest.Check(t, err)
	}
	_, page = b.Post(path, values...)
	if want := "The requests of " + first.Format("2006-01") + " are not counted"; !strings.Contains(page, want) || strings.Count(page, "are not counted") != 1 {
		t.Errorf("the review does not have %q alone: %s", want, page)
	}
}

func TestCredentialsAreAddedReplacedAndDisabledFromThePage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	const at = "/console/providers/acme/credentials/"
	for _, step := range [][]string{
		{at + "new", "name", "third", "secret", "hush"}, {at + "main/replace", "secret", "hush"}, {at + "main/enable"}, {at + "third/enable"},
	} {
		_, form := b.Get(step[0])
		if answer, page := b.Post(step[0], append(append(consoletest.HiddenFields(form), "step", "do"), step[1:]...)...); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("%v: got %d %s", step, answer.StatusCode, page)
		}
	}
	if answer, page := b.Post(at+"new", "step", "do", "name", "third", "secret", "hush"); answer.StatusCode != http.StatusBadRequest || strings.Contains(page, "hush") {
		t.Errorf("a second credential of the name: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Post(at+"backup/enable", "step", "do"); answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "last enabled credential") {
		t.Errorf("the last credential without its name: got %d %s", answer.StatusCode, page)
	}
}

func TestMaintenanceIsSetAndEndedFromThePage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	// What one opens again does not look like what is gone for good.
	for _, path := range []string{"/console/models/example-small", "/console/providers/acme"} {
		_, page := b.Get(path)
		if !strings.Contains(page, `"button" href="/console/maintenance/close?`) || !strings.Contains(page, `"button danger" href="`+path+`/delete"`) {
			t.Errorf("%s: got %s; want only the deletion in red", path, page)
		}
	}
	for _, query := range []string{"scope=model&id=example-small", "scope=provider&id=acme", "scope=system"} {
		form := []string{"step", "do", "message", "back at noon"}
		if query == "scope=system" {
			form = append(form, "confirmation", "the whole system")
		}
		if answer, page := b.Post("/console/maintenance/close?"+query, form...); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("close %s: got %d %s", query, answer.StatusCode, page)
		}
	}
	if _, page := b.Get("/console/maintenance"); strings.Count(page, "back at noon") != 4 {
		t.Errorf("the page does not show three closed objects and the notice of the system: %s", page)
	}
	for _, query := range []string{"scope=model&id=example-small", "scope=provider&id=" + url.QueryEscape("acme"), "scope=system"} {
		if answer, page := b.Post("/console/maintenance/open?"+query, "step", "do"); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("open %s: got %d %s", query, answer.StatusCode, page)
		}
	}
	if _, page := b.Get("/console/maintenance"); strings.Contains(page, "badge warn") {
		t.Errorf("something is still closed: %s", page)
	}
	if answer, page := b.Post("/console/maintenance/close?scope=model&id=example-small", "step", "do", "until", "2001-01-01T00:00"); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("an end in the past: got %d %s", answer.StatusCode, page)
	}
}

func TestProviderPageShowsTheMembersThatItRefuses(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-1", Process: "p1", Totals: []pulse.Total{
		{Series: pulse.Series{Measure: pulse.LeftOut, Provider: "acme", Route: "rte_7", Outcome: "stream_options"}, N: 41},
		{Series: pulse.Series{Measure: pulse.LeftOut, Provider: "other", Route: "rte_8", Outcome: "store"}, N: 9},
	}})
	answer, page := b.Get("/console/providers/acme")
	for _, want := range []string{"Members that it refuses", "rte_7", "stream_options", "41"} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	if strings.Contains(page, "rte_8") {
		t.Error("the page has the members that another provider refuses")
	}
}

func TestProviderPageShowsDoubtsAboutItsUsage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	if answer, page := b.Get("/console/providers/acme"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "All answers of the last hour had usage that can be true.") {
		t.Errorf("without a doubt: got %d %s", answer.StatusCode, page)
	}
	w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-1", Process: "p1", Totals: []pulse.Total{
		{Series: pulse.Series{Measure: pulse.Attempts, Provider: "acme", Route: "r", Outcome: "ok"}, N: 40},
		{Series: pulse.Series{Measure: pulse.Doubts, Provider: "acme", Outcome: "low_output"}, N: 7},
		{Series: pulse.Series{Measure: pulse.Doubts, Provider: "acme", Outcome: "ambiguous"}, N: 3},
		{Series: pulse.Series{Measure: pulse.Doubts, Provider: "other", Outcome: "no_input"}, N: 9},
	}})
	answer, page := b.Get("/console/providers/acme")
	if strings.Contains(page, "Members that it refuses") {
		t.Error("the page has members that nobody has refused")
	}
	for _, want := range []string{"low output", "7 of 40", "an estimate", "3 of 40", "as reported, the cheapest meaning"} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	if strings.Contains(page, "no input") {
		t.Error("the page has the doubts about another provider")
	}
}
