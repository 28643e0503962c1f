package rig

import (
	"bufio"
	"cmp"
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

// catalog is the catalog document at the last change of a test.
type catalog struct {
	mu        sync.Mutex
	Currency  string          `json:"currency"`
	Settings  json.RawMessage `json:"settings,omitempty"`
	Providers []any           `json:"providers"`
	Models    []any           `json:"models"`
	// made counts the objects that tests added.
	made int
}

// A Model is a model to add to the catalog, in the form of the admin API. The defaults of
// empty fields let the simulator answer its requests.
type Model struct {
	// ID is chosen by Models if it is empty.
	ID string `json:"id"`
	// Type defaults to text.
	Type          string `json:"type"`
	DisplayName   string `json:"display_name,omitempty"`
	OwnedBy       string `json:"owned_by,omitempty"`
	ContextWindow int64  `json:"context_window,omitempty"`
	// MaxOutputTokens and ReserveOutputTokens default to 1000 and 100 for a text model.
	MaxOutputTokens     int64 `json:"max_output_tokens,omitempty"`
	ReserveOutputTokens int64 `json:"reserve_output_tokens,omitempty"`
	Enabled             *bool `json:"enabled,omitempty"`
	Public              *bool `json:"public,omitempty"`
	// Price is in USD per million tokens, per image or per second. The default is 1 for input,
	// 2 for output and 0.10 for an image or a second.
	Price map[string]any `json:"price"`
	// Routes defaults to one route to the simulator.
	Routes []Route        `json:"routes"`
	Params map[string]any `json:"params,omitempty"`

	// Directives steer the simulator on the default route. Formats are the formats of that
	// route; they default to those of the type.
	Directives string   `json:"-"`
	Formats    []string `json:"-"`
}

// A Route is a route of a model.
type Route struct {
	// Provider defaults to the simulator.
	Provider      string         `json:"provider"`
	UpstreamModel string         `json:"upstream_model"`
	Formats       []string       `json:"formats"`
	Priority      int            `json:"priority,omitempty"`
	Weight        int            `json:"weight,omitempty"`
	Enabled       *bool          `json:"enabled,omitempty"`
	Params        map[string]any `json:"params,omitempty"`
	// ProviderPrice is what the provider charges, in the form of Model.Price.
	ProviderPrice map[string]any `json:"provider_price,omitempty"`
}

// A Provider is a provider to add to the catalog.
type Provider struct {
	// ID is set by Provider.
	ID      string `json:"id"`
	BaseURL string `json:"base_url"`
	// Auth defaults to bearer.
	Auth             string            `json:"auth,omitempty"`
	AnthropicVersion string            `json:"anthropic_version,omitempty"`
	Headers          map[string]string `json:"headers,omitempty"`
	// Credentials defaults to one with the secret sk-test.
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

// SimProvider is the id of the simulator as a provider.
const SimProvider = "sim"

// False returns a pointer to false, for fields that default to true.
func False() *bool { return new(bool) }

// loadCatalog loads the catalog, to which tests add.
func (r *Rig) loadCatalog(ctx context.Context) error {
	answer, err := r.Admin.GetCatalog(ctx, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Body, &r.catalog)
}

// Model adds a model and returns its id when every proxy serves it.
func (r *Rig) Model(t *testing.T, m Model) string {
	t.Helper()
	return r.Models(t, m)[0]
}

// Models adds several models in one change and returns their ids when every proxy serves them.
func (r *Rig) Models(t *testing.T, models ...Model) []string {
	t.Helper()
	var ids []string
	err := r.change(t.Context(), func(c *catalog) {
		for _, m := range models {
			c.made++
			m.ID = cmp.Or(m.ID, fmt.Sprintf("e2e-%d", c.made))
			c.Models = append(c.Models, m.complete())
			ids = append(ids, m.ID)
		}
	})
	if err != nil {
		t.Fatalf("add models: %v", err)
	}
	return ids
}

// Add adds providers and models as they are and waits until every proxy serves them.
func (r *Rig) Add(t *testing.T, providers, models []any) {
	t.Helper()
	err := r.change(t.Context(), func(c *catalog) {
		c.Providers, c.Models = append(c.Providers, providers...), append(c.Models, models...)
	})
	if err != nil {
		t.Fatalf("add providers and models: %v", err)
	}
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

// textFormats are the default formats of a text model.
var textFormats = []string{"chat", "responses", "messages"}

// complete sets the defaults of empty fields.
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

// change edits the document, applies it and waits until every proxy uses it. It edits the document as it is now, because
// models that are not in it would be removed.
func (r *Rig) change(ctx context.Context, change func(*catalog)) error {
	r.catalog.mu.Lock()
	defer r.catalog.mu.Unlock()
	if err := r.loadCatalog(ctx); err != nil {
		return err
	}
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

// AwaitCatalog waits until every proxy uses this revision of the catalog or a later one.
func (r *Rig) AwaitCatalog(t *testing.T, revision int64) {
	t.Helper()
	if err := r.awaitCatalog(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
}

// awaitCatalog waits until every proxy uses this revision of the catalog or a later one.
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

// metric reads one metric of a part. The name includes the labels.
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
