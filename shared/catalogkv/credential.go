package catalogkv

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// CredentialKind says what the sealed text of a credential is, and how a proxy
// authenticates with it.
type CredentialKind string

// The kinds of credentials. The text of a Secret is what is sent; that of any
// other kind is a JSON object of the parameters from which a proxy gets what it
// sends, and renews it.
const (
	SecretCredential CredentialKind = "secret"
	// OAuthCredential gets access tokens with OAuth 2.0 client credentials.
	OAuthCredential CredentialKind = "oauth"
	// GoogleCredential gets access tokens of Google Cloud: with the key of a service account, or as
	// the identity of the proxy.
	GoogleCredential CredentialKind = "google"
	// AzureCredential gets access tokens of Microsoft Entra ID: with a client secret, or as the
	// identity of the proxy.
	AzureCredential CredentialKind = "azure"
	// AWSCredential signs requests with AWS Signature Version 4: with an access key, or as the
	// identity of the proxy, and if wanted in an assumed role.
	AWSCredential CredentialKind = "aws"
)

// CredentialParameter is one parameter of a kind of credential.
type CredentialParameter struct {
	Name     string
	Required bool
	// Secret parameters are not shown, nor logged.
	Secret bool
}

// FormParameter is the prefix of the parameters of an OAuthCredential that are
// sent to its token address as further members of the form, without the prefix.
const FormParameter = "form."

var credentialParameters = map[CredentialKind][]CredentialParameter{
	SecretCredential: nil,
	OAuthCredential: {
		{Name: "token_url", Required: true},
		{Name: "client_id", Required: true},
		{Name: "client_secret", Required: true, Secret: true},
		{Name: "scopes"},
		{Name: "auth_style"},
	},
	GoogleCredential: {
		{Name: "key", Secret: true},
		{Name: "scopes"},
	},
	AzureCredential: {
		{Name: "tenant_id"},
		{Name: "client_id"},
		{Name: "client_secret", Secret: true},
		{Name: "scope"},
		{Name: "authority"},
	},
	AWSCredential: {
		{Name: "region", Required: true},
		{Name: "service"},
		{Name: "access_key_id"},
		{Name: "secret_access_key", Secret: true},
		{Name: "session_token", Secret: true},
		{Name: "role_arn"},
		{Name: "external_id", Secret: true},
	},
}

// The values of the parameter auth_style of an OAuthCredential: whether the
// client is authenticated in a header or in the form.
const (
	AuthStyleHeader = "header"
	AuthStyleForm   = "form"
)

// CredentialKinds returns all kinds, sorted.
func CredentialKinds() []CredentialKind { return slices.Sorted(maps.Keys(credentialParameters)) }

// Parameters returns the parameters of the kind. A Secret has none.
func (k CredentialKind) Parameters() []CredentialParameter { return credentialParameters[k] }

// HasParameter reports whether the kind has a parameter, and whether it is secret.
func (k CredentialKind) HasParameter(name string) (has, secret bool) {
	if k == OAuthCredential && len(name) > len(FormParameter) && strings.HasPrefix(name, FormParameter) {
		return true, true
	}
	for _, p := range credentialParameters[k] {
		if p.Name == name {
			return true, p.Secret
		}
	}
	return false, false
}

// CheckParameters calls refuse for every parameter that cannot be used for the
// kind. The value of a parameter is never part of the text.
func (k CredentialKind) CheckParameters(parameters map[string]string, refuse func(name, text string)) {
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if has, _ := k.HasParameter(name); !has {
			refuse(name, fmt.Sprintf("is no parameter of the kind %s", k))
		}
	}
	for _, p := range credentialParameters[k] {
		if p.Required && parameters[p.Name] == "" {
			refuse(p.Name, fmt.Sprintf("is required for the kind %s", k))
		}
	}
	together := func(names ...string) {
		given := func(name string) bool { return parameters[name] != "" }
		if i := slices.IndexFunc(names, given); i >= 0 {
			for _, name := range names {
				if !given(name) {
					refuse(name, "is required together with "+names[i])
				}
			}
		}
	}
	switch k {
	case OAuthCredential:
		if style := parameters["auth_style"]; style != "" && style != AuthStyleHeader && style != AuthStyleForm {
			refuse("auth_style", fmt.Sprintf("must be %s or %s", AuthStyleHeader, AuthStyleForm))
		}
		checkAddress(parameters, "token_url", refuse)
	case GoogleCredential:
		checkGoogleKey(parameters["key"], refuse)
	case AzureCredential:
		if parameters["client_secret"] != "" {
			together("client_secret", "client_id", "tenant_id")
		}
		checkAddress(parameters, "authority", refuse)
	case AWSCredential:
		together("access_key_id", "secret_access_key")
		if parameters["session_token"] != "" {
			together("session_token", "access_key_id")
		}
		if parameters["external_id"] != "" {
			together("external_id", "role_arn")
		}
	case SecretCredential:
	}
}

// checkAddress refuses an address that is not one of HTTP.
func checkAddress(parameters map[string]string, name string, refuse func(name, text string)) {
	address := parameters[name]
	if address == "" {
		return
	}
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.Fragment != "" {
		refuse(name, "must be a URL of HTTP without a user and a fragment")
	}
}

// checkGoogleKey refuses a key that is not the key file of a service account.
// Other files of Google name further files and addresses, which only whoever
// runs the proxy may choose.
func checkGoogleKey(key string, refuse func(name, text string)) {
	if key == "" {
		return
	}
	var file struct {
		Type        string `json:"type"`
		ClientEmail string `json:"client_email"`
		PrivateKey  string `json:"private_key"`
	}
	if json.Unmarshal([]byte(key), &file) != nil || file.Type != "service_account" || file.ClientEmail == "" || file.PrivateKey == "" {
		refuse("key", "must be the key file of a service account (JSON)")
	}
}

// EncodeParameters returns the text of a credential with parameters. Equal
// parameters have equal texts.
func EncodeParameters(parameters map[string]string) string {
	if parameters == nil {
		parameters = map[string]string{}
	}
	text, err := json.Marshal(parameters) // sorts the names
	if err != nil {                       // texts always marshal
		panic(err)
	}
	return string(text)
}

// DecodeParameters returns the parameters in the text of a credential.
func DecodeParameters(text string) (map[string]string, error) {
	var parameters map[string]string
	if err := json.Unmarshal([]byte(text), &parameters); err != nil {
		return nil, errors.New("catalogkv: the parameters of the credential are no object of texts") // the cause has parts of them
	}
	return parameters, nil
}

// Secrets are the secrets of a credential beside its text.
type Secrets struct {
	// Headers are sent with every call, in addition to the header of the text.
	Headers map[string]string `json:"headers,omitempty"`
	// Certificate and PrivateKey authenticate the proxy in TLS, in the form PEM. The certificates of the issuers follow
	// the first one.
	Certificate string `json:"certificate,omitempty"`
	PrivateKey  string `json:"private_key,omitempty"`
}

// IsZero reports whether there are none.
func (s *Secrets) IsZero() bool {
	return len(s.Headers) == 0 && s.Certificate == "" && s.PrivateKey == ""
}

// SecretsContext returns the context that the Secrets of a credential are sealed under.
func SecretsContext(id string) string { return "credential-secrets:" + id }
