package catalogapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/catalogstore"
)

func TestProviderIsEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := start(t)
	made, err := servertest.Answered(b.API.PutProvider(t.Context(), "new", nil, adminclient.CatalogProvider{ID: "new", BaseURL: "https://new.example"}))
	servertest.Check(t, err)
	if made.StatusCode != http.StatusCreated {
		t.Fatalf("make: %s", made.Body)
	}
	b.Apply(servertest.SmallCatalog)
	read, err := servertest.Answered(b.API.GetProvider(t.Context(), "sim"))
	servertest.Check(t, err)
	tag := read.Header.Get("ETag")
	if p := read.Value; p == nil || len(p.Credentials) != 2 || p.Credentials[0].ID == nil || p.Credentials[0].Secret != nil {
		t.Fatalf("read: %s", read.Body)
	}
	off, err := servertest.Answered(b.API.UpdateProvider(t.Context(), "sim", &adminclient.UpdateProviderParams{IfMatch: &tag},
		adminclient.CatalogProviderPatch{Enabled: new(false)}))
	servertest.Check(t, err)
	if off.StatusCode != http.StatusOK || *off.Value.Enabled || off.Value.BaseURL != "https://sim.example" {
		t.Errorf("switched off: %s", off.Body)
	}
	again, err := servertest.Answered(b.API.UpdateProvider(t.Context(), "sim", &adminclient.UpdateProviderParams{IfMatch: &tag},
		adminclient.CatalogProviderPatch{Enabled: new(true)}))
	servertest.Check(t, err)
	servertest.Problem(t, again.Problem, http.StatusPreconditionFailed, "precondition_failed")
	replaced, err := servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "https://sim.example:443/api"}))
	servertest.Check(t, err)
	if p := replaced.Value; p == nil || len(p.Credentials) != 2 {
		t.Errorf("replaced: %s; want its credentials kept", replaced.Body)
	}
	faulty, err := servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "nothing"}))
	servertest.Check(t, err)
	servertest.Problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	if e := faulty.Problem.Errors; len(e) != 1 || e[0].Field != "base_url" {
		t.Errorf("field errors %v; want one of base_url", e)
	}
	other, err := servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "another", BaseURL: "https://x.example"}))
	servertest.Check(t, err)
	servertest.Problem(t, other.Problem, http.StatusBadRequest, "invalid_input")
	used, err := servertest.Answered(b.API.DeleteProvider(t.Context(), "sim", nil))
	servertest.Check(t, err)
	servertest.Problem(t, used.Problem, http.StatusConflict, "in_use")
	nobody, err := servertest.Answered(b.API.DeleteProvider(t.Context(), "nobody", nil))
	servertest.Check(t, err)
	servertest.Problem(t, nobody.Problem, http.StatusNotFound, "not_found")
	absent, err := servertest.Answered(b.API.PutProvider(t.Context(), "absent", &adminclient.PutProviderParams{IfMatch: new("*")},
		adminclient.CatalogProvider{ID: "absent", BaseURL: "https://x.example"}))
	servertest.Check(t, err)
	servertest.Problem(t, absent.Problem, http.StatusPreconditionFailed, "precondition_failed")
}

// Secrets that are stored can never be read. A change of the provider's address must not send them
// to a server of the caller's choice.
func TestProviderAddressChangesOnlyWithItsSecrets(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	for _, address := range []string{"https://other.example", "http://sim.example", "https://sim.example:8443", "https://sim.example.other"} {
		put, err := servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: address}))
		servertest.Check(t, err)
		servertest.Problem(t, put.Problem, http.StatusBadRequest, "invalid_input")
		if e := put.Problem.Errors; len(e) != 2 || e[0].Field != "credentials[0].secret" || e[1].Field != "credentials[1].secret" {
			t.Errorf("%s by PUT: %s; want both secrets asked for", address, put.Body)
		}
		patched, err := servertest.Answered(b.API.UpdateProvider(t.Context(), "sim", nil, adminclient.CatalogProviderPatch{BaseURL: &address}))
		servertest.Check(t, err)
		servertest.Problem(t, patched.Problem, http.StatusBadRequest, "invalid_input")
	}
	one, err := servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{
		ID: "sim", BaseURL: "https://other.example", Credentials: []adminclient.CatalogCredential{{Name: "main", Secret: new("sk-first")}, {Name: "spare"}},
	}))
	servertest.Check(t, err)
	if one.Problem == nil || len(one.Problem.Errors) != 1 || one.Problem.Errors[0].Field != "credentials[1].secret" {
		t.Errorf("one of two secrets: %s; want the other one asked for", one.Body)
	}
	all, err := servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{
		ID: "sim", BaseURL: "https://other.example", Credentials: []adminclient.CatalogCredential{{Name: "main", Secret: new("sk-first")}},
	}))
	servertest.Check(t, err)
	if all.StatusCode != http.StatusOK || all.Value.BaseURL != "https://other.example" || len(all.Value.Credentials) != 1 {
		t.Errorf("with its secret: %s", all.Body)
	}
}

func TestCredentialIsEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	before, err := servertest.Answered(b.API.GetCredential(t.Context(), "sim", "main"))
	servertest.Check(t, err)
	same, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-first")}))
	servertest.Check(t, err)
	rotated, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-second")}))
	servertest.Check(t, err)
	if *same.Value.ID != *before.Value.ID || *rotated.Value.ID == *before.Value.ID {
		t.Errorf("the same secret: %s, another one: %s; want only that one to be another credential than %s", same.Body, rotated.Body, before.Body)
	}
	off, err := servertest.Answered(b.API.UpdateCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredentialPatch{Enabled: new(false)}))
	servertest.Check(t, err)
	if off.StatusCode != http.StatusOK || *off.Value.Enabled {
		t.Errorf("switched off: %s", off.Body)
	}
	var published string
	servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select convert_from(payload, 'UTF8') from outbox where subject like '%provider%' order by id desc limit 1").Scan(&published))
	if strings.Contains(published, *off.Value.ID) || !strings.Contains(published, "crd_") {
		t.Errorf("published %s; want only the spare credential", published)
	}
	fresh, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "third", nil, adminclient.CatalogCredential{Name: "third"}))
	servertest.Check(t, err)
	servertest.Problem(t, fresh.Problem, http.StatusBadRequest, "invalid_input")
	gone, err := servertest.Answered(b.API.DeleteCredential(t.Context(), "sim", "spare", nil))
	servertest.Check(t, err)
	left, err := servertest.Answered(b.API.ListCredentials(t.Context(), "sim", nil))
	servertest.Check(t, err)
	if gone.StatusCode != http.StatusNoContent || len(left.Value.Data) != 1 {
		t.Errorf("%d, then left %s", gone.StatusCode, left.Body)
	}
}

// clientCertificate is a certificate with its key, in the form PEM.
func clientCertificate(t *testing.T, end time.Time) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servertest.Check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"}, NotAfter: end}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	servertest.Check(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	servertest.Check(t, err)
	text := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return text("CERTIFICATE", signed), text("PRIVATE KEY", encoded)
}

// Of a client certificate only the end is shown. A change of something else sends it back, and a file of the catalog has it not.
func TestCredentialShowsWhenItsCertificateExpires(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	end := time.Now().Add(90 * 24 * time.Hour).UTC().Truncate(time.Second)
	certificate, key := clientCertificate(t, end)
	made, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{
		Name: "main", Secret: new("sk-first"), Certificate: &certificate, PrivateKey: &key,
	}))
	servertest.Check(t, err)
	shows := func(what string, c *adminclient.CatalogCredential) {
		t.Helper()
		if c == nil || c.CertificateExpiresAt == nil || !c.CertificateExpiresAt.Equal(end) || c.Certificate != nil || c.PrivateKey != nil {
			t.Errorf("%s: got %+v; want the end %s", what, c, end)
		}
	}
	shows("made", made.Value)
	got, err := servertest.Answered(b.API.GetCredential(t.Context(), "sim", "main"))
	servertest.Check(t, err)
	shows("read", got.Value)
	again, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, *got.Value))
	servertest.Check(t, err)
	shows("sent back", again.Value)
	provider, err := servertest.Answered(b.API.GetProvider(t.Context(), "sim"))
	servertest.Check(t, err)
	for i := range provider.Value.Credentials {
		if c := &provider.Value.Credentials[i]; c.Name == "main" {
			shows("of the provider", c)
		} else if c.CertificateExpiresAt != nil {
			t.Errorf("without a certificate: got %+v", c)
		}
	}
	plain, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-first")}))
	servertest.Check(t, err)
	if plain.Value == nil || plain.Value.CertificateExpiresAt != nil {
		t.Errorf("replaced: got %s", plain.Body)
	}
}

// The kind of a credential is shown, its parameters are not. A change of its state keeps them.
func TestCredentialThatIsRenewedIsEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	put := func(parameters map[string]string) *servertest.Answer[adminclient.CatalogCredential] {
		t.Helper()
		answer, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{
			Name: "main", Kind: new(adminclient.CatalogCredentialKind("aws")), Parameters: parameters,
		}))
		servertest.Check(t, err)
		return answer
	}
	first, same := put(map[string]string{"region": "eu-central-1"}), put(map[string]string{"region": "eu-central-1"})
	if first.StatusCode != http.StatusOK || *first.Value.ID != *same.Value.ID || strings.Contains(string(first.Body), "eu-central-1") {
		t.Errorf("got %d %s, then %s", first.StatusCode, first.Body, same.Body)
	}
	servertest.Problem(t, put(map[string]string{"region": "eu-central-1", "secret_access_key": "s"}).Problem, http.StatusBadRequest, "invalid_input")
	off, err := servertest.Answered(b.API.UpdateCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredentialPatch{Enabled: new(false)}))
	servertest.Check(t, err)
	if off.StatusCode != http.StatusOK || *off.Value.ID != *first.Value.ID || *off.Value.Kind != "aws" {
		t.Errorf("switched off: %s", off.Body)
	}
}

func TestModelAndRouteAreEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	route := adminclient.CatalogRoute{ID: new("r2"), Provider: "sim", UpstreamModel: "other", Formats: []adminclient.CatalogRouteFormats{"messages"}, Weight: new(2)}
	made, err := servertest.Answered(b.API.PutRoute(t.Context(), "a/text", "r2", nil, route))
	servertest.Check(t, err)
	if made.StatusCode != http.StatusCreated {
		t.Fatalf("make: %s", made.Body)
	}
	patched, err := servertest.Answered(b.API.UpdateRoute(t.Context(), "a/text", "r2", nil, adminclient.CatalogRoutePatch{Priority: new(5), Enabled: new(false)}))
	servertest.Check(t, err)
	if r := patched.Value; r == nil || *r.Priority != 5 || *r.Weight != 2 || *r.Enabled {
		t.Errorf("patched: %s", patched.Body)
	}
	wrong, err := servertest.Answered(b.API.UpdateRoute(t.Context(), "a/text", "r2", nil, adminclient.CatalogRoutePatch{Provider: new("nobody"), Weight: new(-1)}))
	servertest.Check(t, err)
	servertest.Problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")
	if e := wrong.Problem.Errors; len(e) != 2 || e[0].Field != "provider" || e[1].Field != "weight" {
		t.Errorf("field errors %v; want those of provider and weight", e)
	}
	unknown, err := servertest.Answered(b.API.UpdateModel(t.Context(), "a/text", nil, adminclient.CatalogModelPatch{},
		adminclient.WithBody("application/json", []byte(`{"context": 5}`))))
	servertest.Check(t, err)
	if p := unknown.Problem; p == nil || len(p.Errors) != 1 || p.Errors[0].Field != "context" {
		t.Errorf("an unknown member: %s", unknown.Body)
	}
	named, err := servertest.Answered(b.API.UpdateModel(t.Context(), "a/text", nil, adminclient.CatalogModelPatch{},
		adminclient.WithBody("application/json", []byte(`{"display_name": "A", "context_window": 8, "routes": null}`))))
	servertest.Check(t, err)
	cleared, err := servertest.Answered(b.API.UpdateModel(t.Context(), "a/text", nil, adminclient.CatalogModelPatch{},
		adminclient.WithBody("application/json", []byte(`{"display_name": null}`))))
	servertest.Check(t, err)
	if m := named.Value; m == nil || *m.DisplayName != "A" || len(m.Routes) != 0 {
		t.Errorf("named: %s", named.Body)
	}
	if m := cleared.Value; m == nil || m.DisplayName != nil || *m.ContextWindow != 8 {
		t.Errorf("cleared: %s", cleared.Body)
	}
	gone, err := servertest.Answered(b.API.DeleteModel(t.Context(), "a/text", nil))
	servertest.Check(t, err)
	after, err := servertest.Answered(b.API.GetModel(t.Context(), "a/text"))
	servertest.Check(t, err)
	if gone.StatusCode != http.StatusNoContent || after.StatusCode != http.StatusNotFound {
		t.Errorf("removed: %d, read after: %d", gone.StatusCode, after.StatusCode)
	}
	prices, err := servertest.Answered(b.API.ListPrices(t.Context(), "a/text", nil))
	servertest.Check(t, err)
	servertest.Problem(t, prices.Problem, http.StatusNotFound, "not_found")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	b := start(t)
	put, err := servertest.Answered(b.API.PutSettings(t.Context(), nil, adminclient.Settings{Currency: "EUR", ImageInputTokens: new(int64(700))}))
	servertest.Check(t, err)
	read, err := servertest.Answered(b.API.GetSettings(t.Context()))
	servertest.Check(t, err)
	if read.StatusCode != http.StatusOK || read.Value.Currency != "EUR" || put.Header.Get("ETag") != read.Header.Get("ETag") {
		t.Errorf("put %s, read %s", put.Body, read.Body)
	}
	stale, err := servertest.Answered(b.API.PutSettings(t.Context(), &adminclient.PutSettingsParams{IfMatch: new(`"of before"`)}, adminclient.Settings{Currency: "EUR"}))
	servertest.Check(t, err)
	servertest.Problem(t, stale.Problem, http.StatusPreconditionFailed, "precondition_failed")
	wrong, err := servertest.Answered(b.API.PutSettings(t.Context(), nil, adminclient.Settings{Currency: "EUR", ImageInputTokens: new(int64(-1))}))
	servertest.Check(t, err)
	if p := wrong.Problem; p == nil || len(p.Errors) != 1 || p.Errors[0].Field != "image_input_tokens" {
		t.Errorf("a negative estimate: %s", wrong.Body)
	}
}

// A price is not set over one that somebody else has set in the meantime.
func TestPriceIsSetOnlyIfTheModelMatches(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	read, err := servertest.Answered(b.API.GetModel(t.Context(), "a/text"))
	servertest.Check(t, err)
	set := func(input string, from *time.Time) (int, *adminclient.Problem) {
		params := &adminclient.CreatePriceParams{IfMatch: new(read.Header.Get("ETag"))}
		r, err := servertest.Answered(b.API.CreatePrice(t.Context(), "a/text", params, adminclient.PriceCreate{
			Price: adminclient.CatalogPrice{Input: &input, Output: new("2")}, EffectiveFrom: from,
		}))
		servertest.Check(t, err)
		return r.StatusCode, r.Problem
	}
	if status, p := set("1.5", nil); status != http.StatusCreated {
		t.Fatalf("with the tag of the model: got %d %v", status, p)
	}
	for _, from := range []*time.Time{nil, new(time.Now().Add(time.Hour))} {
		_, p := set("1.7", from)
		servertest.Problem(t, p, http.StatusPreconditionFailed, "precondition_failed")
	}
}

// A scheduled price takes effect at its time and not before; price versions stay.
func TestScheduledPrice(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	from := time.Now().Add(time.Hour)
	price := func(input string, from *time.Time, key string) *servertest.Answer[adminclient.PriceList] {
		r, err := servertest.Answered(b.API.CreatePrice(t.Context(), "a/text", &adminclient.CreatePriceParams{IdempotencyKey: &key},
			adminclient.PriceCreate{Price: adminclient.CatalogPrice{Input: &input, Output: new("2")}, EffectiveFrom: from}))
		servertest.Check(t, err)
		return r
	}
	scheduled := price("3", &from, "a")
	if p := scheduled.Value; p == nil || len(p.Data) != 2 || p.Data[0].Status != adminclient.PriceVersionStatusScheduled || p.Data[0].Version != nil || p.Data[1].Status != adminclient.PriceVersionStatusInForce {
		t.Fatalf("scheduled: %s", scheduled.Body)
	}
	price("4", new(from.Add(time.Minute)), "b")
	past := price("5", new(time.Now().Add(-time.Minute)), "c")
	servertest.Problem(t, past.Problem, http.StatusBadRequest, "invalid_input")
	activate := func() string {
		s := catalog.NewService(catalog.Config{Store: catalogstore.New(b.DB), Log: servertest.Discard})
		servertest.Check(t, s.ActivatePrices(t.Context()))
		var published string
		servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select convert_from(payload, 'UTF8') from outbox where subject like '%model%' order by id desc limit 1").Scan(&published))
		return published
	}
	if published := activate(); strings.Contains(published, "3000000000") {
		t.Errorf("published before its time: %s", published)
	}
	b.Exec("update scheduled_prices set effective_from = now() - interval '1 minute' where effective_from < $1", from.Add(time.Second))
	if published := activate(); !strings.Contains(published, "3000000000") {
		t.Errorf("at its time the published prices are %s", published)
	}
	listed, err := servertest.Answered(b.API.ListPrices(t.Context(), "a/text", nil))
	servertest.Check(t, err)
	data := listed.Value.Data
	if len(data) != 3 || data[0].Status != adminclient.PriceVersionStatusScheduled || *data[1].Price.Input != "3.00" || data[1].Status != adminclient.PriceVersionStatusInForce ||
		data[2].Status != adminclient.PriceVersionStatusPast || *data[2].Price.Input != "1.00" {
		t.Fatalf("prices: %s", listed.Body)
	}
	cancelled, err := servertest.Answered(b.API.CancelPrice(t.Context(), "a/text", *data[0].ID, nil))
	servertest.Check(t, err)
	again, err := servertest.Answered(b.API.CancelPrice(t.Context(), "a/text", *data[0].ID, nil))
	servertest.Check(t, err)
	if cancelled.StatusCode != http.StatusNoContent || again.StatusCode != http.StatusNotFound {
		t.Errorf("cancelled: %d, again: %d", cancelled.StatusCode, again.StatusCode)
	}
	now := price("6", nil, "d")
	if p := now.Value; p == nil || len(p.Data) != 3 || p.Data[0].Status != adminclient.PriceVersionStatusInForce || *p.Data[0].Price.Input != "6.00" {
		t.Errorf("at once: %s", now.Body)
	}
}
