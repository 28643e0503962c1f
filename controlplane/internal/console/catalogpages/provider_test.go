package catalogpages_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// certificate returns a new certificate and its key, in the form PEM with the line ends of a browser.
func certificate(t testing.TB) (public, private string) {
	t.Helper()
	return certificateUntil(t, time.Now().AddDate(1, 0, 0))
}

func certificateUntil(t testing.TB, end time.Time) (public, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servertest.Check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example"}, NotAfter: end}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	servertest.Check(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	servertest.Check(t, err)
	public = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
	private = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return strings.ReplaceAll(public, "\n", "\r\n"), strings.ReplaceAll(private, "\n", "\r\n")
}

// members returns an object of the API by the names of its members, without those that tests do not set.
func members(t testing.TB, body []byte) map[string]any {
	t.Helper()
	var object map[string]any
	servertest.Check(t, json.Unmarshal(body, &object))
	delete(object, "credentials")
	return object
}

func TestProviderFormsSayWhatTheCatalogFileCanSay(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	ca, _ := certificate(t)
	all := []string{
		"name", "Acme", "base_url", "https://api.example.com", "kind", "vertex", "auth", "x-key",
		"addresses.chat.path", "/v4/{model}/chat", "addresses.chat.stream_path", "/v4/{model}/stream", "addresses.chat.query", "api-version: preview\r\nx.y: z:1\r\n",
		"addresses.videos.path", "/films", "anthropic_version", "2023-06-01", "headers", "x-region: eu", "proxy", "http://proxy.example.com:3128", "ca", ca,
		"http2", "yes", "connect_timeout", "3s", "first_byte_timeout", "20m0s", "idle_timeout", "9m0s", "total_timeout", "1h0m0s",
		"keeps_billing", "yes", "recognises_repeats", "yes", "wants_user", "yes",
	}
	b.Done("/console/catalog/new-provider", "/console/providers/acme", "The provider was added.",
		append([]string{"id", "acme", "credentials[0].name", "main", "credentials[0].kind", "secret", "credentials[0].secret", "sk-acme-main"}, all...)...)
	now, err := w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	want := map[string]any{
		"id": "acme", "name": "Acme", "base_url": "https://api.example.com", "kind": "vertex", "auth": "x-key", "anthropic_version": "2023-06-01",
		"addresses": map[string]any{
			"chat":   map[string]any{"path": "/v4/{model}/chat", "stream_path": "/v4/{model}/stream", "query": map[string]any{"api-version": "preview", "x.y": "z:1"}},
			"videos": map[string]any{"path": "/films"},
		},
		"headers": map[string]any{"x-region": "eu"}, "proxy": "http://proxy.example.com:3128", "ca": strings.TrimSpace(strings.ReplaceAll(ca, "\r\n", "\n")), "http2": true,
		"connect_timeout": "3s", "first_byte_timeout": "20m0s", "idle_timeout": "9m0s", "total_timeout": "1h0m0s",
		"keeps_billing": true, "recognises_repeats": true, "wants_user": true,
	}
	if d := cmp.Diff(want, members(t, now.Body)); d != "" {
		t.Errorf("the new provider (-want +got):\n%s", d)
	}

	// What the form shows is what the provider is: sent as it is, it changes nothing.
	b.Done("/console/providers/acme/edit", "/console/providers/acme", "The provider was saved.", append([]string{"enabled", "yes"}, all...)...)
	same, err := w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	if same.Header.Get("ETag") != now.Header.Get("ETag") {
		t.Errorf("the form sent as it is changed %s to %s", now.Body, same.Body)
	}

	b.Done("/console/providers/acme/edit", "/console/providers/acme", "The provider was saved.",
		"base_url", "https://api.example.com", "enabled", "yes", "addresses.chat.path", "/v5/chat", "addresses.chat.query", "x.y: z")
	now, err = w.API.GetProvider(t.Context(), "acme")
	servertest.Check(t, err)
	want = map[string]any{
		"id": "acme", "base_url": "https://api.example.com",
		"addresses": map[string]any{"chat": map[string]any{"path": "/v5/chat", "query": map[string]any{"x.y": "z"}}},
	}
	got := members(t, now.Body)
	delete(got, "name") // the id, as none is given
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("after emptying fields (-want +got):\n%s", d)
	}
}

// errorAt returns the problem that a page shows at a field.
func errorAt(page, field string) string {
	at := regexp.MustCompile(`(?s)name="` + regexp.QuoteMeta(field) + `".*?</label>`).FindString(page)
	return regexp.MustCompile(`role="alert">([^<]*)`).FindString(at)
}

func TestCredentialsOfEveryKindAreSetInForms(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	public, private := certificate(t)
	const path = "/console/providers/acme/credentials/new"
	for _, c := range []struct {
		kind, wrongAt, wrong string
		values               []string
	}{
		{"secret", "secret", "is required", []string{"secret", "hush-secret", "headers", "cf-aig-authorization: hush-header", "certificate", public, "private_key", private}},
		{"oauth", "parameters.token_url", "is required", []string{
			"parameters.token_url", "https://tokens.example.com/token", "parameters.client_id", "c", "parameters.client_secret", "hush-oauth",
			"parameters.scopes", "a b", "parameters.form", "grant_type: hush-grant\r\nresource: r",
		}},
		{"google", "", "", nil},
		{"azure", "parameters.authority", "must be a URL", []string{"parameters.authority", "", "parameters.tenant_id", "t", "parameters.client_id", "c", "parameters.client_secret", "hush-azure"}},
		{"aws", "parameters.region", "is required", []string{"parameters.region", "eu-west-1", "parameters.access_key_id", "AKIA", "parameters.secret_access_key", "hush-aws"}},
	} {
		name := "by-" + c.kind
		if c.wrongAt != "" {
			// A value for another kind, which the form hides, is not sent.
			answer, page := b.Fill(path, "name", name, "kind", c.kind, "parameters.authority", "no-address")
			if got := errorAt(page, c.wrongAt); answer.StatusCode != http.StatusBadRequest || !strings.Contains(got, c.wrong) {
				t.Errorf("%s: got %d with %q at %s; want %q: %s", c.kind, answer.StatusCode, got, c.wrongAt, c.wrong, page)
			}
		}
		b.Done(path, "/console/providers/acme", "The credential was added.", append([]string{"name", name, "kind", c.kind}, c.values...)...)
		stored, err := w.API.GetCredential(t.Context(), "acme", name)
		servertest.Check(t, err)
		if kind := stored.Value.Kind; (kind == nil) != (c.kind == "secret") || (kind != nil && string(*kind) != c.kind) {
			t.Errorf("%s: got %s", c.kind, stored.Body)
		}
	}

	for _, path := range []string{"/console/providers/acme", "/console/providers/acme/edit", "/console/providers/acme/credentials/by-oauth/replace"} {
		if _, page := b.Get(path); strings.Contains(page, "hush-") || strings.Contains(page, "PRIVATE KEY") {
			t.Errorf("%s shows a secret", path)
		}
	}
	_, page := b.Fill(path, "name", "refused", "kind", "oauth", "parameters.client_secret", "hush-again", "parameters.form", "hush: again", "private_key", "hush-key")
	if strings.Contains(page, "hush") {
		t.Errorf("a refused form shows a secret: %s", page)
	}

	replace := "/console/providers/acme/credentials/by-oauth/replace"
	b.Refused(replace, http.StatusBadRequest, "must be set", "kind", "secret")
	b.Done(replace, "/console/providers/acme", "The secret was replaced.", "kind", "azure", "parameters.tenant_id", "t")
	stored, err := w.API.GetCredential(t.Context(), "acme", "by-oauth")
	servertest.Check(t, err)
	if *stored.Value.Kind != "azure" {
		t.Errorf("after replacing it by another kind: got %s", stored.Body)
	}

	// Another server: every credential has to be entered again, by its own kind.
	answer, page := b.Fill("/console/providers/acme/edit", "enabled", "yes", "base_url", "https://other.example.com", "credentials[0].secret", "sk-other")
	if got := errorAt(page, "credentials[1].parameters.region"); answer.StatusCode != http.StatusBadRequest || !strings.Contains(got, "is required") {
		t.Errorf("another server without all secrets: got %d with %q: %s", answer.StatusCode, got, page)
	}
}

func TestProviderIsCheckedFromItsPage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	if _, page := b.Get("/console/providers/acme"); !strings.Contains(page, `href="/console/providers/acme/check"`) {
		t.Error("the page of the provider has no button that checks it")
	}
	answer, page := b.Fill("/console/providers/acme/check")
	for _, want := range []string{"1 of 2 calls works.", "not found", "&lt;b&gt;no such path&lt;/b&gt;", "Correct the path.", "https://api.example.com/v1/messages"} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	log, err := w.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Action: new("provider.check")})
	servertest.Check(t, err)
	if len(log.Value.Data) != 1 {
		t.Errorf("the audit log has %s; want one check", log.Body)
	}
	if answer, _ := b.Send(http.MethodPost, "/console/providers/acme/check", url.Values{"step": {"do"}}, http.Header{"Sec-Fetch-Site": {"cross-site"}}); answer.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: got %d", answer.StatusCode)
	}

	_, err = w.API.PutProvider(t.Context(), "other", nil, adminclient.CatalogProvider{ID: "other", BaseURL: "https://other.example.com"})
	servertest.Check(t, err)
	if _, page := b.Fill("/console/providers/other/check"); !strings.Contains(page, "No proxy is live") {
		t.Errorf("without a proxy: %s", page)
	}
}

func TestCertificatesThatExpireNeedSomebody(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	ca, _ := certificateUntil(t, time.Now().AddDate(0, 0, 10))
	public, private := certificateUntil(t, time.Now().AddDate(0, 0, 2))
	_, err := w.API.PutProvider(t.Context(), "other", nil, adminclient.CatalogProvider{ID: "other", BaseURL: "https://other.example.com", Ca: &ca})
	servertest.Check(t, err)
	_, page := b.Get("/console/")
	if want := "other: the certificate of a trusted issuer expires at "; !strings.Contains(page, want) || strings.Contains(page, "the client certificate") {
		t.Errorf("the overview does not say %q, or more: %s", want, page)
	}
	b.Done("/console/providers/acme/credentials/new", "/console/providers/acme", "The credential was added.", "name", "tls", "kind", "secret", "certificate", public, "private_key", private)
	if _, page := b.Get("/console/diagnosis"); !strings.Contains(page, "the client certificate expires at ") {
		t.Errorf("the diagnosis does not name the client certificate: %s", page)
	}
	b.Done("/console/providers/acme/credentials/tls/enable", "/console/providers/acme", "The credential was disabled.")
	if _, page := b.Get("/console/diagnosis"); strings.Contains(page, "the client certificate expires at ") {
		t.Error("the diagnosis names the client certificate of a disabled credential")
	}
}
