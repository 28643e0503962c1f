package catalogpages_test

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

func TestCatalogIsBuiltAndTakenDownByForms(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	provider := []string{"id", "acme", "base_url", "https://api.example.com", "auth", "x-api-key", "credentials[0].name", "main", "credentials[0].secret", "sk-acme-main"}
	b.Refused("/console/catalog/new-provider", http.StatusBadRequest, "must be made of a-z", append([]string{"id", "No Id"}, provider[2:]...)...)
	b.Done("/console/catalog/new-provider", "/console/providers/acme", "The provider was added.", provider...)
	b.Refused("/console/catalog/new-provider", http.StatusBadRequest, "is in use already", provider...)

	if _, page := b.Get("/console/catalog/new-model"); !strings.Contains(page, `<a href="/console/models" aria-current="page">`) {
		t.Error("the form to add a model is not among the models in the navigation")
	}
	model := []string{
		"id", "small", "type", "text", "public", "yes", "context_window", "128000", "price.input", "0.10", "price.output", "0.40",
		"routes[0].provider", "acme", "routes[0].upstream_model", "small-2026", "routes[0].formats", "chat",
	}
	b.Refused("/console/catalog/new-model", http.StatusBadRequest, "must have at least one", model[:len(model)-2]...)
	b.Done("/console/catalog/new-model", "/console/models/small", "The model was added.", model...)
	b.Refused("/console/catalog/new-model", http.StatusBadRequest, "is in use already", model...)

	route := []string{"id", "second", "provider", "acme", "upstream_model", "small-2025", "formats", "chat", "formats", "messages", "priority", "2"}
	b.Done("/console/models/small/new-route", "/console/models/small", "The route was added.", route...)
	b.Refused("/console/models/small/new-route", http.StatusBadRequest, "is in use already", route...)
	now, err := w.API.GetRoute(t.Context(), "small", "second")
	servertest.Check(t, err)
	if r := now.Value; r.UpstreamModel != "small-2025" || len(r.Formats) != 2 || *r.Priority != 2 {
		t.Errorf("the route is %+v", r)
	}

	b.Refused("/console/providers/acme/delete", http.StatusBadRequest, "Type acme to confirm.", "confirmation", "acm")
	b.Refused("/console/providers/acme/delete", http.StatusConflict, "2 routes", "confirmation", "acme")
	b.Done("/console/models/small/routes/second/delete", "/console/models/small", "The route second was deleted.", "confirmation", "second")
	b.Done("/console/models/small/delete", "/console/models", "The model small was deleted.", "confirmation", "small")
	b.Done("/console/providers/acme/credentials/main/delete", "/console/providers/acme", "The credential main was deleted.", "confirmation", "main")
	b.Done("/console/providers/acme/delete", "/console/providers", "The provider acme was deleted.", "confirmation", "acme")
}

// Two tabs that create the same id at once: one of them does, and the other is told that it is in use.
func TestConcurrentFormsCreateAnObjectOnce(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	model := func(name string) []string {
		return []string{
			"step", "do", "id", "twice", "type", "text", "display_name", name, "price.input", "0.10", "price.output", "0.40",
			"routes[0].provider", "acme", "routes[0].upstream_model", "upstream", "routes[0].formats", "chat",
		}
	}
	for path, form := range map[string]func(string) []string{
		"/console/catalog/new-model": model,
		"/console/catalog/new-provider": func(name string) []string {
			return []string{"step", "do", "id", "twice", "name", name, "base_url", "https://api.example.com", "auth", "bearer", "credentials[0].name", "main", "credentials[0].secret", "sk-" + name}
		},
		"/console/models/example-small/new-route": func(name string) []string {
			return []string{"step", "do", "id", "twice", "provider", "acme", "upstream_model", name, "formats", "chat"}
		},
		"/console/providers/acme/credentials/new": func(name string) []string {
			return []string{"step", "do", "name", "twice", "secret", "sk-" + name}
		},
	} {
		tabs := []*consoletest.Browser{w.SignedIn(servertest.BootstrapToken), w.SignedIn(servertest.BootstrapToken)}
		statuses, pages := make([]int, len(tabs)), make([]string, len(tabs))
		var all sync.WaitGroup
		for i, tab := range tabs {
			all.Go(func() {
				answer, page := tab.Post(path, form("tab-"+strconv.Itoa(i))...)
				statuses[i], pages[i] = answer.StatusCode, page
			})
		}
		all.Wait()
		won := slices.Index(statuses, http.StatusSeeOther)
		if won < 0 || statuses[1-won] != http.StatusBadRequest || !strings.Contains(pages[1-won], "is in use already") {
			t.Errorf("%s: got %v; want one to create, the other to be told: %s", path, statuses, pages[0])
		}
	}
	now, err := w.API.GetModel(t.Context(), "twice")
	servertest.Check(t, err)
	if len(now.Value.Routes) != 1 {
		t.Errorf("the model is %+v", now.Value)
	}
}

// Names that cannot be addressed, read on one line or told from others are problems of their fields. Markup is a text.
func TestHostileNamesAreRefusedOrShownAsText(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	model := []string{
		"type", "text", "price.input", "0.10", "price.output", "0.40",
		"routes[0].provider", "acme", "routes[0].upstream_model", "upstream", "routes[0].formats", "chat",
	}
	for _, id := range []string{".", "..", "a b", "a\u202eb", "a\u200bb", "exаmple-small", "a\nb", "a\x00b", strings.Repeat("a", 201), ""} {
		b.Refused("/console/catalog/new-model", http.StatusBadRequest, "must ", append([]string{"id", id}, model...)...)
	}
	for _, id := range []string{"..", "a\tb", "ï", strings.Repeat("a", 201)} {
		b.Refused("/console/models/example-small/new-route", http.StatusBadRequest, "must ", "id", id, "provider", "acme", "upstream_model", "u", "formats", "chat")
	}
	for _, name := range []string{"..", "a\u2066b", "a\nb", strings.Repeat("a", 201)} {
		b.Refused("/console/providers/acme/credentials/new", http.StatusBadRequest, "must ", "name", name, "secret", "sk-of-a-name")
	}
	const markup = `"><img src=x onerror=alert(1)>`
	path := "/console/models/" + url.PathEscape("=a/../"+markup[:2])
	answer, page := b.Fill("/console/catalog/new-model", append([]string{"id", "=a/../" + markup[:2], "display_name", markup}, model...)...)
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != path {
		t.Fatalf("a model with markup: got %d to %s: %s", answer.StatusCode, answer.Header.Get("Location"), page)
	}
	for _, at := range []string{path, path + "/edit", path + "/price", path + "/delete", "/console/models", "/console/catalog", "/console/providers/acme"} {
		if answer, page := b.Get(at); answer.StatusCode != http.StatusOK || strings.Contains(page, "<img src=x") {
			t.Errorf("%s: got %d, or the markup as it was entered: %s", at, answer.StatusCode, page)
		}
	}
}

func TestTooLargeDocumentIsAProblem(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	answer, page := w.SignedIn(servertest.BootstrapToken).Post("/console/catalog", "step", "do", "document", strings.Repeat("x", 17<<20))
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "larger than 16 MiB") {
		t.Errorf("got %d: %.2000s", answer.StatusCode, page)
	}
}

func TestDeletionTellsItsEffectsInNumbersAndOfChangesInBetween(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, k := w.Customer("Example")
	u, err := w.API.GetUsage(t.Context(), w.Request(k, event.Completed, price.Usage{Input: 1_000_000, Output: 1000}))
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	_, page := b.Get("/console/models/example-small/delete")
	if want := "it had 1 request of 1 account, which cost " + u.Value.Receipt.Cost + " USD"; !strings.Contains(page, want) || !strings.Contains(page, "1 route") {
		t.Errorf("the form does not tell %q: %s", want, page)
	}
	match := consoletest.Hidden(t, page, "if_match")
	_, err = w.API.UpdateModel(t.Context(), "example-small", nil, adminclient.CatalogModelPatch{DisplayName: new("Another")})
	servertest.Check(t, err)
	answer, page := b.Post("/console/models/example-small/delete", "if_match", match, "confirmation", "example-small", "step", "do")
	if answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, "changed after you opened this form") {
		t.Errorf("an older form: got %d %s", answer.StatusCode, page)
	}
}

// Otherwise a session that may change a provider could have its secrets sent to a server of its choice.
func TestProviderMovesToAnotherServerOnlyWithItsSecrets(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	const path = "/console/providers/acme/edit"
	moved := []string{"base_url", "https://elsewhere.example", "enabled", "yes"}
	answer, page := b.Fill(path, moved...)
	if answer.StatusCode != http.StatusBadRequest || len(consoletest.Texts(page, `(?s)<span class="field-error".*?</span>`)) != 2 {
		t.Errorf("another server without secrets: got %d, want both secrets asked for: %s", answer.StatusCode, page)
	}
	one := append([]string{"credentials[0].secret", "sk-again-0"}, moved...)
	answer, page = b.Fill(path, one...)
	if answer.StatusCode != http.StatusBadRequest || strings.Contains(page, "sk-again") {
		t.Errorf("another server with one of two secrets: got %d: %s", answer.StatusCode, page)
	}
	now, err := w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	if now.Value.BaseURL != "https://api.example.com" {
		t.Fatalf("the provider moved to %s without its secrets", now.Value.BaseURL)
	}
	if answer, page := b.Fill(path, append([]string{"credentials[1].secret", "sk-again-1"}, one...)...); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("another server with both secrets: got %d: %s", answer.StatusCode, page)
	}
	now, err = w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	if now.Value.BaseURL != "https://elsewhere.example" || len(now.Value.Credentials) != 2 {
		t.Errorf("the provider is %+v", now.Value)
	}
	// On the same server the secrets stay as they are.
	before := now.Value.Credentials
	if answer, page := b.Fill(path, "base_url", "https://elsewhere.example/api", "enabled", "yes"); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("another path: got %d: %s", answer.StatusCode, page)
	}
	now, err = w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	for i, c := range now.Value.Credentials {
		if *c.ID != *before[i].ID {
			t.Errorf("the secret of %s was replaced", c.Name)
		}
	}
}

func TestAddressesOfProvidersAndRoutesAreSetInForms(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	provider := []string{
		"id", "acme", "base_url", "https://api.example.com", "auth", "bearer", "credentials[0].name", "main", "credentials[0].secret", "sk-acme-main",
		"addresses.messages.path", "/gone", "addresses.chat.query", "a: b", "addresses.chat.path",
	}
	b.Refused("/console/catalog/new-provider", http.StatusBadRequest, "must begin with a slash", append(slices.Clip(provider), "v4")...)
	provider = append(provider, "/v4/{model}/chat")
	b.Refused("/console/catalog/new-provider", http.StatusBadRequest, "must have one NAME: VALUE in a line", append(slices.Clip(provider), "headers", "x")...)
	b.Done("/console/catalog/new-provider", "/console/providers/acme", "The provider was added.", provider...)
	b.Done("/console/catalog/new-model", "/console/models/small", "The model was added.",
		"id", "small", "type", "text", "public", "yes", "price.input", "0.10", "price.output", "0.40",
		"routes[0].provider", "acme", "routes[0].upstream_model", "u/2", "routes[0].formats", "chat")
	b.Done("/console/models/small/new-route", "/console/models/small", "The route was added.",
		"id", "second", "provider", "acme", "upstream_model", "u3", "formats", "chat", "addresses.chat.path", "/of/{model}", "first_token_timeout", "20s")
	if _, page := b.Get("/console/providers/acme"); !strings.Contains(page, "https://api.example.com/of/u3") {
		t.Errorf("the page of the provider does not have the address of the new route: %s", page)
	}
	if _, page := b.Get("/console/providers/acme"); !strings.Contains(page, "https://api.example.com/v4/u%2F2/chat?a=b") {
		t.Errorf("the page of the provider does not have the address that is called: %s", page)
	}

	b.Done("/console/providers/acme/edit", "/console/providers/acme", "The provider was saved.",
		"base_url", "https://api.example.com", "enabled", "yes", "addresses.chat.path", "/v5/chat")
	now, err := w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	if a := now.Value.Addresses; a == nil || len(*a) != 1 || *(*a)["chat"].Path != "/v5/chat" || (*a)["chat"].Query != nil {
		t.Errorf("after the change: %s", now.Body)
	}

	model, err := w.API.GetModel(t.Context(), "small")
	servertest.Check(t, err)
	route := *model.Value.Routes[0].ID
	b.Done("/console/models/small/routes/"+route+"/edit", "/console/models/small", "The route was saved.",
		"upstream_model", "u", "formats", "chat", "enabled", "yes", "addresses.chat.path", "/own")
	if _, page := b.Get("/console/providers/acme"); !strings.Contains(page, "https://api.example.com/own") {
		t.Errorf("the page of the provider does not have the address of the route: %s", page)
	}
	b.Done("/console/models/small/routes/"+route+"/edit", "/console/models/small", "The route was saved.", "upstream_model", "u", "formats", "chat", "enabled", "yes")
	if _, page := b.Get("/console/providers/acme"); !strings.Contains(page, "https://api.example.com/v5/chat") {
		t.Errorf("the page of the provider does not have its own address again: %s", page)
	}
}

// Formats, parameters and the price of the provider are set when a route is added, and changed afterwards. What a form shows, sent as
// it is, changes nothing.
func TestEveryMemberOfARouteIsSetInForms(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	b.Done("/console/catalog/new-provider", "/console/providers/acme", "The provider was added.",
		"id", "acme", "base_url", "https://api.example.com", "auth", "bearer", "credentials[0].name", "main", "credentials[0].secret", "sk-acme-main")
	b.Done("/console/catalog/new-model", "/console/models/small", "The model was added.",
		"id", "small", "type", "text", "public", "yes", "price.input", "0.10", "price.output", "0.40",
		"routes[0].provider", "acme", "routes[0].upstream_model", "u1", "routes[0].formats", "chat",
		"routes[0].params", `{"chat": {"store": {"policy": "drop"}}}`, "routes[0].provider_price.input", "0.05", "routes[0].provider_price.output", "0.20")
	const path = "/console/models/small/routes/second/edit"
	added := []string{"id", "second", "provider", "acme", "upstream_model", "u2", "formats", "chat", "provider_price.input", "0.05"}
	b.Refused("/console/models/small/new-route", http.StatusBadRequest, "is needed for a text model", added...)
	added = append(added, "provider_price.output", "0.20", "provider_price.service_tiers[1].name", "flex", "provider_price.service_tiers[1].input", "0.02")
	b.Refused("/console/models/small/new-route", http.StatusBadRequest, "must be a decimal with at most nine places", added...)
	added = append(added, "provider_price.service_tiers[1].output", "0.10")
	b.Refused("/console/models/small/new-route", http.StatusBadRequest, "must be one object in JSON", append(slices.Clip(added), "params", "{} {}")...)
	b.Done("/console/models/small/new-route", "/console/models/small", "The route was added.", append(added, "params", `{"chat": {"top_k": {"policy": "force", "value": 40}}}`)...)

	route := func(id string) (adminclient.CatalogRoute, string) {
		t.Helper()
		now, err := w.API.GetRoute(t.Context(), "small", id)
		servertest.Check(t, err)
		return *now.Value, string(now.Body)
	}
	model, err := w.API.GetModel(t.Context(), "small")
	servertest.Check(t, err)
	for i := range model.Value.Routes {
		if r := &model.Value.Routes[i]; *r.ID != "second" && (r.ProviderPrice == nil || *r.ProviderPrice.Output != "0.20" || (*r.Params)["chat"]["store"].Policy != "drop") {
			t.Errorf("the route of the new model: %+v", r)
		}
	}
	first, body := route("second")
	if p := first.ProviderPrice; p == nil || *p.Input != "0.05" || len(p.ServiceTiers) != 1 || p.ServiceTiers[0].Output != "0.10" || !strings.Contains(body, "40") {
		t.Fatalf("the new route: %s", body)
	}

	_, page := b.Get(path)
	same := []string{
		"upstream_model", "u2", "formats", "chat", "enabled", "yes", "params", `{"chat": {"top_k": {"policy": "force", "value": 40}}}`,
		"provider_price.input", "0.05", "provider_price.output", "0.20", "provider_price.service_tiers[0].name", "flex",
		"provider_price.service_tiers[0].input", "0.02", "provider_price.service_tiers[0].output", "0.10",
	}
	for i := 0; i < len(same); i += 2 {
		if !strings.Contains(page, `name="`+same[i]+`"`) {
			t.Errorf("the form has no field %s", same[i])
		}
	}
	if strings.Contains(page, "addresses.images.path") || strings.Contains(page, `value="videos"`) {
		t.Error("the form has formats of other types of models")
	}
	b.Done(path, "/console/models/small", "The route was saved.", same...)
	if _, unchanged := route("second"); unchanged != body {
		t.Errorf("sent as it was shown: got %s; want %s", unchanged, body)
	}

	b.Refused(path, http.StatusBadRequest, "must have at least one", "upstream_model", "u2", "enabled", "yes")
	b.Refused(path, http.StatusBadRequest, "must be one of forward, reject", "upstream_model", "u2", "formats", "chat", "params", `{"chat": {"top_k": {"policy": "x"}}}`)
	b.Done(path, "/console/models/small", "The route was saved.",
		"upstream_model", "u2", "formats", "messages", "formats", "responses", "enabled", "yes", "addresses.messages.path", "/own",
		"provider_price.input", "0.06", "provider_price.output", "0.20")
	if now, text := route("second"); len(now.Formats) != 2 || now.Params != nil || *now.ProviderPrice.Input != "0.06" || now.ProviderPrice.ServiceTiers != nil {
		t.Errorf("changed: %s", text)
	}
	b.Done(path, "/console/models/small", "The route was saved.", "upstream_model", "u2", "formats", "chat", "enabled", "yes")
	if now, text := route("second"); now.ProviderPrice != nil || len(now.Formats) != 1 {
		t.Errorf("emptied: %s", text)
	}
}
