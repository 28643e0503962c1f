package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
)

// catalog is the document that the tests build up together.
type catalog struct {
	mu        sync.Mutex
	Currency  string          `json:"currency"`
	Settings  json.RawMessage `json:"settings,omitempty"`
	Providers []any           `json:"providers"`
	Models    []any           `json:"models"`
	// made numbers what tests add.
	made int
}

// A Model is a model to add to the catalog, as in the admin API's document.
// What is empty is chosen so that a request can be answered by the simulator.
type Model struct {
	// ID is given.
	ID string `json:"id"`
	// Type is text if empty.
	Type          string `json:"type"`
	DisplayName   string `json:"display_name,omitempty"`
	OwnedBy       string `json:"owned_by,omitempty"`
	ContextWindow int64  `json:"context_window,omitempty"`
	// MaxOutputTokens and ReserveOutputTokens are 1000 and 100 for a text model.
	MaxOutputTokens     int64 `json:"max_output_tokens,omitempty"`
	ReserveOutputTokens int64 `json:"reserve_output_tokens,omitempty"`
	Enabled             *bool `json:"enabled,omitempty"`
	Public              *bool `json:"public,omitempty"`
	// Price is in USD per million tokens, per picture or per second: input 1,
	// output 2, picture and second 0.10.
	Price map[string]any `json:"price"`
	// Routes is one to the simulator if empty.
	Routes []Route        `json:"routes"`
	Params map[string]any `json:"params,omitempty"`

	// Directives steer the simulator's answers on the route that is made when
	// there is none; Formats are that route's, those of the type if empty.
	Directives string   `json:"-"`
	Formats    []string `json:"-"`
}

// A Route is a route of a model.
type Route struct {
	// Provider is the simulator if empty.
	Provider      string         `json:"provider"`
	UpstreamModel string         `json:"upstream_model"`
	Formats       []string       `json:"formats"`
	Priority      int            `json:"priority,omitempty"`
	Weight        int            `json:"weight,omitempty"`
	Enabled       *bool          `json:"enabled,omitempty"`
	Params        map[string]any `json:"params,omitempty"`
}

// A Provider is a provider to add to the catalog.
type Provider struct {
	// ID is given.
	ID      string `json:"id"`
	BaseURL string `json:"base_url"`
	// Auth is bearer if empty.
	Auth             string            `json:"auth,omitempty"`
	AnthropicVersion string            `json:"anthropic_version,omitempty"`
	Headers          map[string]string `json:"headers,omitempty"`
	// Credentials is one, with the secret sk-test, if empty.
	Credentials      []Credential `json:"credentials"`
	ConnectTimeout   string       `json:"connect_timeout,omitempty"`
	FirstByteTimeout string       `json:"first_byte_timeout,omitempty"`
	IdleTimeout      string       `json:"idle_timeout,omitempty"`
	TotalTimeout     string       `json:"total_timeout,omitempty"`
	KeepsBilling     bool         `json:"keeps_billing,omitempty"`
	WantsUser        bool         `json:"wants_user,omitempty"`
}

// A Credential is a key for a provider.
type Credential struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// SimProvider is the id of the provider that is the simulator.
const SimProvider = "sim"

// False is for members of which absent means true.
func False() *bool { return new(bool) }

// loadCatalog begins with the demo's catalog.
func (r *Rig) loadCatalog(ctx context.Context) error {
	answer, err := r.Admin.GetCatalog(ctx, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Body, &r.catalog)
}

// Model adds models and returns their ids when every proxy serves them.
func (r *Rig) Model(t *testing.T, m Model) string {
	t.Helper()
	return r.Models(t, m)[0]
}

// Models adds models at once.
func (r *Rig) Models(t *testing.T, models ...Model) []string {
	t.Helper()
	var ids []string
	err := r.change(t.Context(), func(c *catalog) {
		for _, m := range models {
			c.made++
			m.ID = fmt.Sprintf("e2e-%d", c.made)
			c.Models = append(c.Models, m.complete())
			ids = append(ids, m.ID)
		}
	})
	if err != nil {
		t.Fatalf("add models: %v", err)
	}
	return ids
}

// Provider adds a provider and returns its id.
func (r *Rig) Provider(t *testing.T, p Provider) string {
	t.Helper()
	if len(p.Credentials) == 0 {
		p.Credentials = []Credential{{"main", "sk-test"}}
	}
	err := r.change(t.Context(), func(c *catalog) {
		c.made++
		p.ID = fmt.Sprintf("e2e-%d", c.made)
		c.Providers = append(c.Providers, p)
	})
	if err != nil {
		t.Fatalf("add a provider: %v", err)
	}
	return p.ID
}

// textFormats are the formats that a text model speaks when nothing is said.
var textFormats = []string{"chat", "responses", "messages"}

// complete fills in what is empty.
func (m Model) complete() Model {
	if m.Type == "" {
		m.Type = "text"
	}
	formats, price := textFormats, map[string]any{"input": "1.00", "output": "2.00"}
	switch m.Type {
	case "text":
		if m.MaxOutputTokens == 0 {
			m.MaxOutputTokens = 1000
		}
		if m.ReserveOutputTokens == 0 {
			m.ReserveOutputTokens = 100
		}
	case "image":
		formats, price = []string{"images"}, map[string]any{"images": []any{map[string]any{"price": "0.10"}}}
	case "video":
		formats, price = []string{"videos"}, map[string]any{"seconds": []any{map[string]any{"price": "0.10"}}}
	}
	if m.Price == nil {
		m.Price = price
	}
	if len(m.Formats) > 0 {
		formats = m.Formats
	}
	if m.Routes == nil {
		upstream := m.ID
		if m.Directives != "" {
			upstream += "@" + m.Directives
		}
		m.Routes = []Route{{UpstreamModel: upstream}}
	}
	for i := range m.Routes {
		if m.Routes[i].Provider == "" {
			m.Routes[i].Provider = SimProvider
		}
		if m.Routes[i].Formats == nil {
			m.Routes[i].Formats = formats
		}
	}
	return m
}

// change changes the document, applies it and waits for the proxies.
func (r *Rig) change(ctx context.Context, change func(*catalog)) error {
	r.catalog.mu.Lock()
	defer r.catalog.mu.Unlock()
	change(&r.catalog)
	body, err := json.Marshal(&r.catalog)
	if err != nil {
		return err
	}
	answer, err := r.Admin.ApplyCatalog(ctx, nil, adminclient.CatalogDocument{}, adminclient.WithBody("application/json", body))
	if err != nil {
		return err
	}
	return r.awaitCatalog(ctx, answer.Value.Revision)
}

// AwaitCatalog waits until every proxy uses the revision of the catalog, or a
// later one.
func (r *Rig) AwaitCatalog(t *testing.T, revision int64) {
	t.Helper()
	if err := r.awaitCatalog(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
}

// awaitCatalog waits until every proxy uses the revision of the catalog.
func (r *Rig) awaitCatalog(ctx context.Context, revision int64) error {
	return await(ctx, func(ctx context.Context) error {
		return r.eachProxy(func(name, opsURL string) error {
			applied, err := metric(ctx, opsURL, "mgw_catalog_revision")
			if err == nil && int64(applied) < revision {
				err = fmt.Errorf("%s uses revision %v of the catalog; want %d", name, applied, revision)
			}
			return err
		})
	})
}

// eachProxy calls f for the data planes until it returns an error.
func (r *Rig) eachProxy(f func(name, opsURL string) error) error {
	urls := r.stack.State().OpsURLs
	for i := range r.Proxies {
		name := DataPlane(i)
		if err := f(name, urls[name]); err != nil {
			return err
		}
	}
	return nil
}

// metric reads one metric of a part; the name includes the labels.
func metric(ctx context.Context, opsURL, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, opsURL+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, errors.Join(fmt.Errorf("%s has no metric %s", opsURL, name), lines.Err())
}
