package e2e

import (
	"fmt"
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
}

func (d exampleProviders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	if key := r.Header.Get("Api-Key"); key != "" { // the simulator knows the header of the formats only
		r.Header.Set("Authorization", "Bearer "+key)
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RequestURI = path, "", "", path
	d.sim.ServeHTTP(w, r)
}

// Every example of scripts/catalog/addresses.yaml reaches a provider that knows only the address that it documents.
func TestExampleProvidersAreReachedAtTheirAddressesOnly(t *testing.T) {
	a := newAPI(t)
	at := exampleProviders{sim: providersim.New(providersim.Config{}), targets: map[string]string{}}
	server := httptest.NewServer(at)
	t.Cleanup(server.Close)
	t.Cleanup(at.sim.Close)

	folder := filepath.Join("..", "catalog")
	lines, err := os.ReadFile(filepath.Join(folder, "testdata", "addresses.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		format, address, _ := strings.Cut(rest, " ")
		i := slices.IndexFunc(generations, func(e endpoint) bool { return e.format == format })
		at.targets[strings.TrimPrefix(address, "https://")] = generations[i].path
	}

	text, err := os.ReadFile(filepath.Join(folder, "addresses.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Providers, Models []map[string]any }
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var providers, models []any
	for _, p := range document.Providers {
		base, err := url.Parse(p["base_url"].(string))
		if err != nil {
			t.Fatal(err)
		}
		p["id"], p["name"], p["base_url"] = fmt.Sprint("example-", p["id"]), nil, server.URL+"/"+base.Host+base.Path
		p["credentials"] = []any{map[string]any{"name": "main", "secret": "sk-test"}}
		delete(p, "name")
		providers = append(providers, p)
	}
	type asked struct{ model, format, provider string }
	var requests []asked
	for _, m := range document.Models {
		for i, r := range m["routes"].([]any) {
			route := r.(map[string]any)
			provider := route["provider"].(string)
			route["provider"], route["priority"] = "example-"+provider, 0
			copied := maps.Clone(m)
			copied["id"], copied["routes"] = fmt.Sprintf("example-%s-%d", m["id"], i), []any{route}
			models = append(models, copied)
			for _, f := range route["formats"].([]any) {
				requests = append(requests, asked{copied["id"].(string), f.(string), provider})
			}
		}
	}
	a.Add(t, providers, models)

	for _, q := range requests {
		e := generations[slices.IndexFunc(generations, func(e endpoint) bool { return e.format == q.format })]
		switch q.format {
		case "videos":
			a.awaitVideo(t, a.createVideo(t, e.body(q.model)), "completed")
		case "images":
			if answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: e.body(q.model)}); answer.Status != http.StatusOK {
				t.Errorf("%s, %s: got %s", q.provider, q.format, answer)
			}
		default:
			if answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: e.body(q.model)}); answer.Status != http.StatusOK {
				t.Errorf("%s, %s: got %s", q.provider, q.format, answer)
			}
			answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: e.with(q.model, "stream", true)})
			if answer.Status != http.StatusOK {
				t.Errorf("%s, stream of %s: got %s", q.provider, q.format, answer)
				continue
			}
			e.streamedText(t, answer)
		}
	}
	if len(requests) != len(at.targets) {
		t.Errorf("%d requests for %d documented addresses; want one for each", len(requests), len(at.targets))
	}
}
