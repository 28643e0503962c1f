package credential

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/platform/testkit/cloudsim"
	"modelgateway/shared/wire"
)

// bundle is a set of sources at simulated clouds.
type bundle struct {
	*Sources
	clouds *cloudsim.Clouds
	log    bytes.Buffer
	known  map[string]bool
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{clouds: &cloudsim.Clouds{}, known: map[string]bool{}}
	b.Sources = New(b.clouds, func(id string) bool { return b.known[id] }, slog.New(slog.NewTextHandler(&b.log, nil)))
	t.Cleanup(b.Close)
	return b
}

// credential returns the credential with parameters and puts it into the catalog.
func (b *bundle) credential(id string, kind catalogkv.CredentialKind, parameters map[string]string) catalog.Credential {
	b.known[id] = true
	return catalog.NewRenewed(id, kind, catalogkv.EncodeParameters(parameters))
}

// environment sets the variables, and unsets those of the clouds that are not given.
func environment(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, name := range []string{
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "AZURE_TENANT_ID",
		"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "HOME", "AWS_CA_BUNDLE",
	} {
		t.Setenv(name, "") // so that it is set back
		if value, ok := variables[name]; ok {
			t.Setenv(name, value)
		} else if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEachKindGetsItsToken(t *testing.T) {
	account := cloudsim.NewServiceAccount()
	identity := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(identity, []byte(cloudsim.Identity), 0o600); err != nil {
		t.Fatal(err)
	}
	accountFile := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(accountFile, []byte(account.File), 0o600); err != nil {
		t.Fatal(err)
	}
	type values = map[string]string
	oauth := func(more ...string) values {
		v := values{"token_url": "https://" + cloudsim.OAuthHost + "/token", "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret}
		for i := 0; i < len(more); i += 2 {
			v[more[i]] = more[i+1]
		}
		return v
	}
	aws := func(more ...string) values {
		v := values{"region": "eu-central-1"}
		for i := 0; i < len(more); i += 2 {
			v[more[i]] = more[i+1]
		}
		return v
	}
	googleAccount := "google account models@the-project.iam.gserviceaccount.com " + googleScope
	tests := []struct {
		name        string
		kind        catalogkv.CredentialKind
		parameters  values
		environment values
		want        string // how the token was asked for, empty if nothing was asked
	}{
		{"OAuth", catalogkv.OAuthCredential, oauth("auth_style", "header", "scopes", "all-apis"), nil, "oauth header scope=all-apis"},
		{"OAuth in the form", catalogkv.OAuthCredential, oauth("auth_style", "form", "form.audience", "models"), nil, "oauth form audience=models"},
		{"OAuth with two scopes", catalogkv.OAuthCredential, oauth("scopes", "a b"), nil, "oauth header scope=a b"},
		{"a service account of Google", catalogkv.GoogleCredential, values{"key": account.File}, nil, googleAccount},
		{"a file of Google", catalogkv.GoogleCredential, nil, values{"GOOGLE_APPLICATION_CREDENTIALS": accountFile}, googleAccount},
		{
			"a secret of Azure", catalogkv.AzureCredential,
			values{"tenant_id": cloudsim.Tenant, "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret},
			nil, "azure secret " + azureScope,
		},
		{
			"a secret of Azure for another service", catalogkv.AzureCredential,
			values{
				"tenant_id": cloudsim.Tenant, "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret, "scope": "api://models/.default",
				"authority": "https://" + cloudsim.AzureHost + "/",
			},
			nil, "azure secret api://models/.default",
		},
		{
			"the workload identity of Azure", catalogkv.AzureCredential, nil,
			values{"AZURE_FEDERATED_TOKEN_FILE": identity, "AZURE_CLIENT_ID": cloudsim.ClientID, "AZURE_TENANT_ID": cloudsim.Tenant},
			"azure workload identity " + azureScope,
		},
		{"a managed identity of Azure", catalogkv.AzureCredential, nil, nil, "azure managed identity https://cognitiveservices.azure.com"},
		{
			"a named identity of Azure", catalogkv.AzureCredential,
			values{"client_id": cloudsim.ClientID},
			nil,
			"azure managed identity https://cognitiveservices.azure.com of " + cloudsim.ClientID,
		},
		{"a key of AWS", catalogkv.AWSCredential, aws("access_key_id", cloudsim.AccessKey, "secret_access_key", cloudsim.SecretKey), nil, ""},
		{
			"a role of AWS", catalogkv.AWSCredential,
			aws("access_key_id", cloudsim.AccessKey, "secret_access_key", cloudsim.SecretKey, "role_arn", cloudsim.Role, "external_id", cloudsim.ExternalID), nil,
			"aws role by " + cloudsim.AccessKey + " with " + cloudsim.ExternalID,
		},
		{"a web identity of AWS", catalogkv.AWSCredential, aws(), values{"AWS_WEB_IDENTITY_TOKEN_FILE": identity, "AWS_ROLE_ARN": cloudsim.Role}, "aws web identity"},
		{
			"a container of AWS", catalogkv.AWSCredential, aws(),
			values{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN": cloudsim.ContainerToken},
			"aws container",
		},
		{"an instance of AWS", catalogkv.AWSCredential, aws(), nil, "aws instance"},
		{"a role by the instance of AWS", catalogkv.AWSCredential, aws("role_arn", cloudsim.Role), nil, "aws instance, aws role by ASIAtoken-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			environment(t, tt.environment)
			b := setup(t)
			b.clouds.Account, b.clouds.Lives = account, 10*time.Minute
			c := b.credential("crd_1", tt.kind, tt.parameters)
			token, err := b.Token(t.Context(), "prv_1", c)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(b.clouds.Requests(), ", "); got != tt.want {
				t.Errorf("asked %q; want %q", got, tt.want)
			}
			if tt.want == "" {
				if token.Keys == nil || token.Keys.AccessKeyID != cloudsim.AccessKey || !token.Expires.IsZero() {
					t.Errorf("got %+v", token)
				}
				return
			}
			text := token.Text
			if token.Keys != nil {
				text = token.Keys.SessionToken
			}
			if left := time.Until(token.Expires); !b.clouds.IsValid(text) || left < 4*time.Minute || left > 11*time.Minute {
				t.Errorf("got a token that ends in %s, valid: %v", left, b.clouds.IsValid(text))
			}
		})
	}
}

// The library for the metadata server of Google has an HTTP client of its own.
func TestMetadataServerOfGoogle(t *testing.T) {
	b := setup(t)
	server := httptest.NewServer(b.clouds)
	environment(t, map[string]string{"GCE_METADATA_HOST": server.Listener.Addr().String()})
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	token, err := b.Token(t.Context(), "prv_1", b.credential("crd_1", catalogkv.GoogleCredential, nil))
	if err != nil || !b.clouds.IsValid(token.Text) || b.clouds.Requests()[0] != "google metadata "+googleScope {
		t.Errorf("got %+v, %v after %q", token, err, b.clouds.Requests())
	}
	server.CloseClientConnections()
}

// Each renewal asks the server: the libraries' own caches do not return the old token.
func TestRenewalReturnsANewToken(t *testing.T) {
	environment(t, nil)
	b := setup(t)
	b.clouds.Account = cloudsim.NewServiceAccount()
	for kind, parameters := range map[catalogkv.CredentialKind]map[string]string{
		catalogkv.OAuthCredential:  {"token_url": "https://" + cloudsim.OAuthHost + "/token", "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret},
		catalogkv.GoogleCredential: {"key": b.clouds.Account.File},
		catalogkv.AzureCredential:  {"tenant_id": cloudsim.Tenant, "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret},
		catalogkv.AWSCredential:    {"region": "eu-central-1"},
	} {
		fetch := b.fetcher(kind, parameters)
		first, err := fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if second, err := fetch(t.Context()); err != nil || second.same(&first) {
			t.Errorf("%s: got %+v again, %v", kind, second, err)
		}
	}
}

func TestFailingSourceIsReportedOnceAndSecretsAreHidden(t *testing.T) {
	b := setup(t)
	wrong := "a-secret-that-is-wrong"
	c := b.credential("crd_1", catalogkv.OAuthCredential, map[string]string{
		"token_url": "https://" + cloudsim.OAuthHost + "/token", "client_id": cloudsim.ClientID, "client_secret": wrong,
	})
	for range 3 {
		if _, err := b.Token(t.Context(), "prv_1", c); err == nil {
			t.Fatal("got a token")
		}
	}
	text := b.log.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "credential=crd_1") || !strings.Contains(text, "invalid_client") {
		t.Errorf("logged %s", text)
	}
	if strings.Contains(text, wrong) || !strings.Contains(text, "[client_secret]") {
		t.Errorf("the log has the secret: %s", text)
	}
	want := []wire.RefusedCredential{{Credential: "crd_1", Reason: wire.SourceFailed}}
	if diff := cmp.Diff(want, b.Failing()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	expected := `
# HELP mgw_credential_renewals_total Renewals of credentials that are no fixed secrets, by kind (oauth, google, azure or aws) and result: ok or failed.
# TYPE mgw_credential_renewals_total counter
mgw_credential_renewals_total{kind="oauth",result="failed"} 1
`
	if err := testutil.CollectAndCompare(b.Sources, strings.NewReader(expected), "mgw_credential_renewals_total"); err != nil {
		t.Error(err)
	}

	delete(b.known, "crd_1") // the catalog has another one now
	if got := b.Failing(); len(got) != 0 {
		t.Errorf("got %v after the credential was removed", got)
	}
}

func TestStateChangesAreLogged(t *testing.T) {
	b := setup(t)
	c := b.credential("crd_1", catalogkv.OAuthCredential, map[string]string{
		"token_url": "https://" + cloudsim.OAuthHost + "/token", "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret,
	})
	renew := func() string {
		t.Helper()
		b.log.Reset()
		e, err := b.sourceOf("prv_1", c)
		if err != nil {
			t.Fatal(err)
		}
		e.due.Store(0)
		_, _ = b.Token(t.Context(), "prv_1", c)
		b.tasks.Wait()
		level, _, _ := strings.Cut(strings.TrimPrefix(b.log.String()[max(0, strings.Index(b.log.String(), "level=")):], "level="), " ")
		return level
	}
	for i, step := range []struct {
		failing bool
		level   string
		failed  []wire.RefusedCredential
	}{
		{false, "", nil},
		{true, "WARN", []wire.RefusedCredential{{Credential: "crd_1", Reason: wire.SourceFailing}}},
		{true, "", []wire.RefusedCredential{{Credential: "crd_1", Reason: wire.SourceFailing}}},
		{false, "INFO", nil},
	} {
		b.clouds.Fail(step.failing)
		if got := renew(); got != step.level {
			t.Errorf("step %d: logged at %q; want %q", i, got, step.level)
		}
		if diff := cmp.Diff(step.failed, b.Failing()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if n := testutil.CollectAndCount(b.Sources, "mgw_credential_expiry_timestamp_seconds"); n != 1 {
		t.Errorf("%d ends of tokens", n)
	}
}

func TestUnknownKindsAndTextsAreRefusedWithoutTheirText(t *testing.T) {
	b := setup(t)
	for _, c := range []catalog.Credential{
		catalog.NewRenewed("crd_1", "later", `{"a":"the-secret"}`), catalog.NewRenewed("crd_2", catalogkv.OAuthCredential, "the-secret"),
	} {
		if _, err := b.Token(t.Context(), "prv_1", c); err == nil || strings.Contains(fmt.Sprint(err), "the-secret") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNothingBeginsAfterClose(t *testing.T) {
	b := setup(t)
	b.Close()
	c := b.credential("crd_1", catalogkv.AWSCredential, map[string]string{"region": "eu-central-1"})
	if _, err := b.Token(t.Context(), "prv_1", c); err == nil {
		t.Error("got a token")
	}
	var _ prometheus.Collector = b.Sources
}
