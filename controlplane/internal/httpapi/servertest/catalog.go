package servertest

import (
	"io"
	"net/http"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// DemoCatalog has a chat model and an image model of one provider.
const DemoCatalog = `
currency: USD
settings: {image_input_tokens: 1000}
providers:
  - id: sim
    name: Simulator
    base_url: http://127.0.0.1:9100
    credentials: [{name: main, secret: sk-of-the-provider}]
    connect_timeout: 5s
models:
  - id: demo-chat
    type: text
    max_output_tokens: 4096
    price:
      input: "1.00"
      cached_input: 0.10
      output: "5.00"
      tiers: [{above_input: 2000000, input: "2.00", output: "7.50"}]
      secondary: [{kind: image_tool, input: "5.00", output: "40.00", images: [{price: "0.01"}]}]
    routes: [{provider: sim, upstream_model: sim-chat, formats: [chat]}]
    params: {chat: {web_search_options: {policy: forward}}}
  - id: demo/image
    type: image
    public: false
    price: {images: [{size: 1024x1024, quality: high, price: "0.09"}, {price: "0.04"}]}
    routes: [{provider: sim, upstream_model: sim-image, formats: [images]}]
`

// Try applies a catalog in YAML.
func (b *Server) Try(doc string, dryRun bool) *Answer[adminclient.CatalogChanges] {
	b.T.Helper()
	r, err := Answered(b.API.ApplyCatalog(b.T.Context(), &adminclient.ApplyCatalogParams{DryRun: &dryRun}, adminclient.CatalogDocument{},
		adminclient.WithBody("application/yaml", []byte(doc))))
	Check(b.T, err)
	return r
}

func (b *Server) Apply(doc string) *adminclient.CatalogChanges {
	b.T.Helper()
	r := b.Try(doc, false)
	if r.StatusCode != http.StatusOK {
		b.T.Fatalf("apply catalog: %s", r.Body)
	}
	return r.Value
}

// Summary returns each change as one line.
func Summary(c *adminclient.CatalogChanges) []string {
	var lines []string
	for _, each := range c.Changes {
		id := each.ID
		if each.Kind == adminclient.CatalogChangeKindRoute { // made from what it leads to
			id = "…"
		}
		lines = append(lines, string(each.Action)+" "+string(each.Kind)+" "+id)
	}
	return lines
}

// SmallCatalog has one model, and a provider with two credentials.
const SmallCatalog = `
currency: EUR
providers:
- {id: sim, base_url: "https://sim.example", credentials: [{name: main, secret: sk-first}, {name: spare, secret: sk-spare}]}
models:
- id: a/text
  type: text
  price: {input: "1", output: "2"}
  routes: [{id: r1, provider: sim, upstream_model: up, formats: [chat]}]
`

// Send sends a request without the generated client, which could not send it.
func (b *Server) Send(token, method, path, contentType, body string) (*http.Response, string) {
	b.T.Helper()
	r, err := http.NewRequestWithContext(b.T.Context(), method, b.URL+path, strings.NewReader(body))
	Check(b.T, err)
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := http.DefaultClient.Do(r)
	Check(b.T, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	Check(b.T, err)
	return answer, string(text)
}

// Token creates an admin token with one scope.
func (b *Server) Token(scope adminclient.Scope) string {
	b.T.Helper()
	wanted := adminclient.TokenCreate{Name: string(scope), Scopes: []adminclient.Scope{scope}}
	r, err := Answered(b.API.CreateToken(b.T.Context(), nil, wanted))
	Check(b.T, err)
	if r.StatusCode != http.StatusCreated {
		b.T.Fatalf("create token: %s", r.Body)
	}
	return r.Value.Secret
}

// Outboxed counts the entries in the outbox.
func (b *Server) Outboxed() (n int) {
	b.T.Helper()
	Check(b.T, b.DB.Pool().QueryRow(b.T.Context(), "select count(*) from outbox").Scan(&n))
	return n
}
