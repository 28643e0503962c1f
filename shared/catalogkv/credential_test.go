package catalogkv_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

const serviceAccountKey = `{"type":"service_account","client_email":"a@example.com","private_key":"key"}` // gitleaks:allow

func TestParametersOfACredentialAreChecked(t *testing.T) {
	t.Parallel()
	type values = map[string]string
	oauth := values{"token_url": "https://idp.example.com/token", "client_id": "a", "client_secret": "b"}
	with := func(base values, more values) values {
		all := maps.Clone(base)
		maps.Copy(all, more)
		return all
	}
	tests := []struct {
		name   string
		kind   catalogkv.CredentialKind
		values values
		want   []string
	}{
		{"secret", catalogkv.SecretCredential, nil, nil},
		{"a parameter of a secret", catalogkv.SecretCredential, values{"region": "x"}, []string{"region"}},
		{"OAuth", catalogkv.OAuthCredential, oauth, nil},
		{"OAuth with everything", catalogkv.OAuthCredential, with(oauth, values{"scopes": "a b", "auth_style": "form", "form.audience": "x"}), nil},
		{"OAuth without anything", catalogkv.OAuthCredential, nil, []string{"token_url", "client_id", "client_secret"}},
		{"OAuth with a style of no meaning", catalogkv.OAuthCredential, with(oauth, values{"auth_style": "digest"}), []string{"auth_style"}},
		{"a member without a name", catalogkv.OAuthCredential, with(oauth, values{"form.": "x"}), []string{"form."}},
		{"no address", catalogkv.OAuthCredential, with(oauth, values{"token_url": "file:///etc/passwd"}), []string{"token_url"}},
		{"an address with a password", catalogkv.OAuthCredential, with(oauth, values{"token_url": "https://a:b@example.com"}), []string{"token_url"}},
		{"the identity of the proxy at Google", catalogkv.GoogleCredential, nil, nil},
		{"a key of Google", catalogkv.GoogleCredential, values{"key": serviceAccountKey}, nil},
		{"a file that names other files", catalogkv.GoogleCredential, values{"key": `{"type":"external_account","credential_source":{"file":"/etc/secret"}}`}, []string{"key"}},
		{"the identity of the proxy at Azure", catalogkv.AzureCredential, values{"client_id": "a"}, nil},
		{"Azure", catalogkv.AzureCredential, values{"client_id": "a", "tenant_id": "b", "client_secret": "c", "scope": "d"}, nil},
		{"Azure without a tenant", catalogkv.AzureCredential, values{"client_id": "a", "client_secret": "c"}, []string{"tenant_id"}},
		{"the identity of the proxy at AWS", catalogkv.AWSCredential, values{"region": "eu-central-1", "role_arn": "arn:aws:iam::1:role/a", "external_id": "x"}, nil},
		{"AWS", catalogkv.AWSCredential, values{"region": "eu-central-1", "access_key_id": "a", "secret_access_key": "b", "session_token": "c"}, nil},
		{"AWS with half a key", catalogkv.AWSCredential, values{"region": "eu-central-1", "access_key_id": "a"}, []string{"secret_access_key"}},
		{"AWS without a region", catalogkv.AWSCredential, values{"access_key_id": "a", "secret_access_key": "b"}, []string{"region"}},
		{"an id for no role", catalogkv.AWSCredential, values{"region": "x", "external_id": "a"}, []string{"role_arn"}},
	}
	for _, tt := range tests {
		var got []string
		tt.kind.CheckParameters(tt.values, func(name, text string) {
			got = append(got, name)
			for _, value := range tt.values {
				if len(value) > 3 && strings.Contains(text, value) {
					t.Errorf("%s: the text %q has a value", tt.name, text)
				}
			}
		})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestParametersAreEncodedInOneWay(t *testing.T) {
	t.Parallel()
	want := map[string]string{"region": "eu-central-1", "role_arn": "arn"}
	text := catalogkv.EncodeParameters(want)
	if text != `{"region":"eu-central-1","role_arn":"arn"}` || catalogkv.EncodeParameters(nil) != "{}" {
		t.Errorf("got %s; stored credentials would count as changed", text)
	}
	got, err := catalogkv.DecodeParameters(text)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := catalogkv.DecodeParameters("sk-very-secret"); err == nil || strings.Contains(err.Error(), "very") {
		t.Errorf("got %v; want an error without the text", err)
	}
}
