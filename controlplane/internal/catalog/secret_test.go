package catalog

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/seal"
)

// issuer is a certificate.
const issuer = `-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUIXGJBPwOcpGapksJPZG8ycfcXkEwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjgwMTU2MjlaGA8yMTI2MTEwNDAxNTYy
OVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEhs
F3cOp4brhK4NXYnZj9HyEextU2o5RxSpnRGSlG0zQhmoo4/Wsc5WmRory0AQ42JL
+vcEAvu3BYP0gxV1WCCjUzBRMB0GA1UdDgQWBBTEf92NR0AyLB7e78OQS4Vg++VV
KTAfBgNVHSMEGDAWgBTEf92NR0AyLB7e78OQS4Vg++VVKTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQDHzpZMIudAnDv+08VfHd03v/Ws1rDlVKG+
B/y6rh+BjgIhAMMlVsA7EikgL2hwNKc+ukWMGR7DXB/+sEuw0rh0++Wm
-----END CERTIFICATE-----
`

func TestInvalidSecretsAreRefused(t *testing.T) {
	t.Parallel()
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
	for _, tt := range []struct {
		name  string
		entry ProviderEntry
		want  []string
	}{
		{"any header", ProviderEntry{Auth: "Ocp-Apim-Subscription-Key"}, nil},
		{"authorization as it is", ProviderEntry{Auth: "authorization"}, nil},
		{"no header", ProviderEntry{Auth: "a b"}, []string{"auth"}},
		{"a header of the connection", ProviderEntry{Auth: "transfer-encoding"}, []string{"auth"}},
		{"a header of the call", ProviderEntry{Auth: "Content-Length"}, []string{"auth"}},
		{"the host", ProviderEntry{Auth: "host"}, []string{"auth"}},
		{"further headers", ProviderEntry{Credentials: []CredentialEntry{{Secret: "s", Headers: map[string]string{"cf-aig-authorization": "Bearer x"}}}}, nil},
		{"further headers alone", ProviderEntry{Credentials: []CredentialEntry{{Headers: map[string]string{"Authorization": "x"}}}}, nil},
		{
			"further headers that are taken",
			ProviderEntry{
				Auth: "x-api-key", Headers: map[string]string{"x-title": "us"},
				Credentials: []CredentialEntry{{Secret: "s", Headers: map[string]string{"X-Api-Key": "a", "x-title": "b", "te": "c", "x-ok": "", "x-ko": "a\nb", "x-var": "${A}"}}},
			},
			[]string{
				"credentials[0].headers.X-Api-Key", "credentials[0].headers.te", "credentials[0].headers.x-ko", "credentials[0].headers.x-ok",
				"credentials[0].headers.x-title", "credentials[0].headers.x-var",
			},
		},
		{"the same header twice", ProviderEntry{Credentials: []CredentialEntry{{Secret: "s", Headers: map[string]string{"A": "1", "a": "2"}}}}, []string{"credentials[0].headers.a"}},
		{"a secret in two lines", ProviderEntry{Credentials: []CredentialEntry{{Secret: "a\nb"}}}, []string{"credentials[0].secret"}},
		{"a certificate without a key", ProviderEntry{Credentials: []CredentialEntry{{Certificate: issuer}}}, []string{"credentials[0].certificate"}},
		{"a certificate with another key", ProviderEntry{Credentials: []CredentialEntry{{Certificate: issuer, PrivateKey: key}}}, []string{"credentials[0].certificate"}},
		{"issuers", ProviderEntry{CA: issuer + issuer}, nil},
		{"issuers that are none", ProviderEntry{CA: "x"}, []string{"ca"}},
		{"issuers with a key", ProviderEntry{CA: issuer + key}, []string{"ca"}},
		{"text after the issuers", ProviderEntry{CA: issuer + "x"}, []string{"ca"}},
		{"a forward proxy", ProviderEntry{Proxy: "http://proxy.example:3128"}, nil},
		{"a forward proxy with TLS", ProviderEntry{Proxy: "https://proxy.example"}, []string{"proxy"}},
		{"a forward proxy with a path", ProviderEntry{Proxy: "http://proxy.example/x"}, []string{"proxy"}},
		{"a forward proxy with a password", ProviderEntry{Proxy: "http://u:p@proxy.example"}, []string{"proxy"}},
	} {
		tt.entry.ID, tt.entry.BaseURL = "p", "https://p.example"
		for i := range tt.entry.Credentials {
			tt.entry.Credentials[i].Name = "main"
		}
		_, err := (&Document{Currency: "USD", Providers: []ProviderEntry{tt.entry}}).target()
		var got []string
		if invalid, is := validation.As(err); is {
			for _, f := range invalid {
				got = append(got, strings.TrimPrefix(f.Path, "providers[0]."))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", tt.name, diff, err)
		}
	}
}

// secretService returns a service with keys for secrets, and the key of the proxies.
func secretService(t *testing.T) (*Service, *seal.Key) {
	t.Helper()
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Load(v.MakeDataKey()); err != nil {
		t.Fatal(err)
	}
	return NewService(Config{Vault: v, Fleet: fleet}), fleet
}

// The further secrets reach the proxies as they were given, encrypted, and nothing shows them.
func TestSecretsOfACredentialArePublishedEncrypted(t *testing.T) {
	t.Parallel()
	s, fleet := secretService(t)
	entry := ProviderEntry{ID: "p", BaseURL: "https://p.example", Credentials: []CredentialEntry{
		{Name: "main", Secret: "the-secret", Headers: map[string]string{"x-second": "the-second"}}, {Name: "other", Headers: map[string]string{"x-only": "the-only"}},
	}}
	state := &State{Settings: catalogkv.Settings{Currency: "USD"}, Providers: map[string]Provider{}}
	apply := func(entry ProviderEntry) *Plan {
		t.Helper()
		target, err := (&Document{Currency: "USD", Providers: []ProviderEntry{entry}}).target()
		if err != nil {
			t.Fatal(err)
		}
		plan, err := s.plan(state, target)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(plan.Changes)
		if err != nil || strings.Contains(string(shown), "the-") {
			t.Errorf("the changes show a secret: %s, %v", shown, err)
		}
		return plan
	}
	plan := apply(entry)
	stored := Provider{Spec: plan.Providers[0], Credentials: map[string]Credential{}}
	for _, c := range plan.Credentials {
		stored.Credentials[c.Name] = Credential{ID: c.ID, Sealed: c.Sealed}
	}
	state.Providers["p"] = stored
	published, err := s.providerEntry(stored)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(published)
	if err != nil || bytes.Contains(text, []byte("the-")) {
		t.Errorf("the entry has a secret: %s, %v", text, err)
	}
	got := map[string]string{}
	for _, c := range published.Credentials {
		secret, err := fleet.Open(c.Sealed, catalogkv.CredentialContext(c.ID))
		if err != nil {
			t.Fatal(err)
		}
		further, err := fleet.Open(c.SealedSecrets, catalogkv.SecretsContext(c.ID))
		if err != nil {
			t.Fatal(err)
		}
		got[string(secret)] = string(further)
	}
	want := map[string]string{"the-secret": `{"headers":{"x-second":"the-second"}}`, "": `{"headers":{"x-only":"the-only"}}`}
	if !maps.Equal(got, want) {
		t.Errorf("the proxies get %v; want %v", got, want)
	}

	if again := apply(entry); len(again.Changes) != 0 {
		t.Errorf("the same secrets again: %+v", again.Changes)
	}
	kept := entry
	kept.Credentials = []CredentialEntry{{Name: "main"}, {Name: "other"}}
	if again := apply(kept); len(again.Changes) != 0 {
		t.Errorf("without secrets: %+v", again.Changes)
	}
	changed := entry
	changed.Credentials = []CredentialEntry{{Name: "main", Secret: "the-secret", Headers: map[string]string{"x-second": "the-third"}}, {Name: "other"}}
	if again := apply(changed); len(again.Credentials) != 1 || len(again.RemoveCredentials) != 1 {
		t.Errorf("another second secret: %+v", again.Changes)
	}
}

// What could let the caller read a stored secret needs the secret again.
func TestChangesThatCouldRevealASecretNeedItAgain(t *testing.T) {
	t.Parallel()
	spec := func(base, ca, proxy string) *catalogkv.Provider {
		return &catalogkv.Provider{BaseURL: base, CA: ca, Proxy: proxy}
	}
	const secure, plain, proxy = "https://p.example", "http://p.example", "http://proxy.example"
	for _, tt := range []struct {
		name          string
		before, after *catalogkv.Provider
		want          bool
	}{
		{"another path", spec(secure, "", ""), spec(secure+"/x", "", ""), false},
		{"another server", spec(secure, "", ""), spec("https://q.example", "", ""), true},
		{"other issuers", spec(secure, "", ""), spec(secure, issuer, ""), true},
		{"the same issuers", spec(secure, issuer, ""), spec(secure, issuer, ""), false},
		{"the issuers of the machine", spec(secure, issuer, ""), spec(secure, "", ""), false},
		{"a forward proxy, with TLS", spec(secure, "", ""), spec(secure, "", proxy), false},
		{"a forward proxy, without TLS", spec(plain, "", ""), spec(plain, "", proxy), true},
		{"no forward proxy", spec(plain, "", proxy), spec(plain, "", ""), false},
	} {
		if got := exposing(tt.before, tt.after); (got != "") != tt.want {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
}
