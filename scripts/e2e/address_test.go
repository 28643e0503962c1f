package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/providersim"
)

// exampleProviders are the providers at their documented addresses: a call to any other one is answered with 404. The
// simulator answers the rest, at its own paths.
type exampleProviders struct {
	sim *providersim.Sim
	// targets has the paths of the simulator by the host, path and query of the documented address.
	targets map[string]string
	// grants are the requests for tokens by the host and path of the token server. Hosts of providers that need a token are in
	// wantsToken.
	grants     map[string]grant
	wantsToken map[string]bool
}

// grant is what a token server wants.
type grant struct {
	client, secret string
	form           url.Values
}

// exampleToken is what the token servers answer.
const exampleToken = "the-access-token"

// serve answers a request for a token.
func (g *grant) serve(w http.ResponseWriter, r *http.Request) {
	client, secret, _ := r.BasicAuth()
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || client != g.client || secret != g.secret || r.Form.Encode() != g.form.Encode() {
		http.Error(w, `{"error": "invalid_client"}`, http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"access_token": "`+exampleToken+`", "token_type": "Bearer", "expires_in": 3600}`)
}

func (d *exampleProviders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g, is := d.grants[strings.TrimPrefix(r.URL.Path, "/")]; is {
		g.serve(w, r)
		return
	}
	path, known := d.targets[strings.TrimPrefix(r.URL.RequestURI(), "/")]
	if !known { // a video, whose jobs are below the address of their creation
		for target, of := range d.targets {
			at, query, _ := strings.Cut(target, "?")
			below, is := strings.CutPrefix(r.URL.Path, "/"+at+"/")
			if is && of == videos.path && r.URL.RawQuery == query {
				path, known = of+"/"+below, true
			}
		}
	}
	if !known {
		http.NotFound(w, r)
		return
	}
	if host, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); d.wantsToken[host] {
		if r.Header.Get("Authorization") != "Bearer "+exampleToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Set("Authorization", "Bearer sk-test")
	}
	if key := r.Header.Get("Api-Key"); key != "" { // the simulator knows the header of the formats only
		r.Header.Set("Authorization", "Bearer "+key)
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RequestURI = path, "", "", path
	d.sim.ServeHTTP(w, r)
}

// Every example of scripts/catalog/addresses.yaml reaches a provider that knows only the address that it documents.
func TestExampleProvidersAreReachedAtTheirAddressesOnly(t *testing.T) {
	a := newAPI(t)
	at := &exampleProviders{sim: providersim.New(providersim.Config{}), targets: map[string]string{}}
	a.reachExamples(t, at, "addresses", func(map[string]any) []any {
		return []any{map[string]any{"name": "main", "secret": "sk-test"}}
	})
}

// The examples with OAuth 2.0 in scripts/catalog/clouds.yaml get their token as their token servers document it, and reach a
// provider that knows only its address and that token.
func TestExamplesWithOAuthAreReachedWithTheirTokensOnly(t *testing.T) {
	a := newAPI(t)
	at := &exampleProviders{
		sim: providersim.New(providersim.Config{}), targets: map[string]string{}, wantsToken: map[string]bool{},
		grants: map[string]grant{
			"my-workspace.cloud.databricks.com/oidc/v1/token": {"secret", "secret", url.Values{
				"grant_type": {"client_credentials"}, "scope": {"all-apis"},
			}},
			"iam.cloud.ibm.com/identity/token": {"bx", "bx", url.Values{
				"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "apikey": {"secret"},
			}},
		},
	}
	a.reachExamples(t, at, "clouds", func(p map[string]any) []any {
		credential := p["credentials"].([]any)[0].(map[string]any)
		if credential["kind"] != "oauth" {
			return nil
		}
		base, err := url.Parse(p["base_url"].(string))
		if err != nil {
			t.Fatal(err)
		}
		at.wantsToken[base.Host] = true
		parameters := credential["parameters"].(map[string]any)
		for name, value := range parameters {
			if strings.HasPrefix(value.(string), "${") {
				parameters[name] = "secret"
			}
		}
		return []any{credential}
	})
}

// reachExamples calls the providers of a file at their documented addresses. credentials returns those of a provider, and none
// for one that is left out.
func (a *api) reachExamples(t *testing.T, at *exampleProviders, file string, credentials func(provider map[string]any) []any) {
	t.Helper()
	server := httptest.NewServer(at)
	t.Cleanup(server.Close)
	t.Cleanup(at.sim.Close)

	folder := filepath.Join("..", "catalog")
	text, err := os.ReadFile(filepath.Join(folder, file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Providers, Models []map[string]any }
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	id := func(provider string) string { return "example-" + file + "-" + provider }
	var providers, models []any
	used := map[string]bool{}
	for _, p := range document.Providers {
		base, err := url.Parse(p["base_url"].(string))
		if err != nil {
			t.Fatal(err)
		}
		all := credentials(p)
		if all == nil {
			continue
		}
		for _, c := range all {
			if parameters, ok := c.(map[string]any)["parameters"].(map[string]any); ok {
				parameters["token_url"] = server.URL + "/" + strings.TrimPrefix(parameters["token_url"].(string), "https://")
			}
		}
		used[p["id"].(string)] = true
		p["id"], p["base_url"], p["credentials"] = id(p["id"].(string)), server.URL+"/"+base.Host+base.Path, all
		delete(p, "name")
		providers = append(providers, p)
	}

	lines, err := os.ReadFile(filepath.Join(folder, "testdata", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		provider, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		format, address, _ := strings.Cut(rest, " ")
		if used[provider] {
			i := slices.IndexFunc(generations, func(e endpoint) bool { return e.format == format })
			at.targets[strings.TrimPrefix(address, "https://")] = generations[i].path
		}
	}

	var requests []exampleRequest
	for _, m := range document.Models {
		for i, r := range m["routes"].([]any) {
			route := r.(map[string]any)
			provider := route["provider"].(string)
			if !used[provider] {
				continue
			}
			route["provider"], route["priority"] = id(provider), 0
			copied := maps.Clone(m)
			copied["id"], copied["routes"] = fmt.Sprintf("example-%s-%s-%d", file, m["id"], i), []any{route}
			models = append(models, copied)
			for _, f := range route["formats"].([]any) {
				requests = append(requests, exampleRequest{copied["id"].(string), f.(string), provider})
			}
		}
	}
	a.Add(t, providers, models)

	for _, q := range requests {
		a.askExample(t, q)
	}
	if len(requests) != len(at.targets) {
		t.Errorf("%d requests for %d documented addresses; want one for each", len(requests), len(at.targets))
	}
}

type exampleRequest struct{ model, format, provider string }

// askExample sends a request that an example serves, and one for a stream.
func (a *api) askExample(t *testing.T, q exampleRequest) {
	t.Helper()
	e := generations[slices.IndexFunc(generations, func(e endpoint) bool { return e.format == q.format })]
	if q.format == videos.format {
		a.awaitVideo(t, a.createVideo(t, e.body(q.model)), "completed")
		return
	}
	if answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: e.body(q.model)}); answer.Status != http.StatusOK {
		t.Errorf("%s, %s: got %s", q.provider, q.format, answer)
	}
	if q.format == images.format {
		return
	}
	answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: e.with(q.model, "stream", true)})
	if answer.Status != http.StatusOK {
		t.Errorf("%s, stream of %s: got %s", q.provider, q.format, answer)
		return
	}
	e.streamedText(t, answer)
}
