package cloudsim

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"time"
)

// accessToken is the answer of a token server of OAuth 2.0.
type accessToken struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
}

func (c *Clouds) answer(w http.ResponseWriter, how string) {
	token, lives := c.issue(how)
	writeJSON(w, http.StatusOK, accessToken{token, "Bearer", int64(lives / time.Second)})
}

// oauth accepts a client in the header or in the form.
func (c *Clouds) oauth(w http.ResponseWriter, r *http.Request) {
	id, secret, inHeader := r.BasicAuth()
	how := "oauth header"
	if !inHeader {
		how = "oauth form"
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if r.Method != http.MethodPost || id != ClientID || secret != ClientSecret {
		refuse(w, "invalid_client", "the client %s with the secret %s is not known", id, secret)
		return
	}
	if r.PostFormValue("grant_type") != "client_credentials" {
		refuse(w, "unsupported_grant_type", "grant_type")
		return
	}
	for _, name := range []string{"scope", "audience"} {
		if value := r.PostFormValue(name); value != "" {
			how = strings.Join([]string{how, name + "=" + value}, " ")
		}
	}
	c.answer(w, how)
}

// ServiceAccount is a service account of Google.
type ServiceAccount struct {
	// File is the key file, as the console of Google offers it.
	File string
	key  *rsa.PublicKey
}

// NewServiceAccount makes a service account.
func NewServiceAccount() *ServiceAccount {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	file, err := json.Marshal(map[string]string{
		"type":           "service_account",
		"project_id":     "the-project",
		"private_key_id": "the-key-id",
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})),
		"client_email":   "models@the-project.iam.gserviceaccount.com",
		"token_uri":      "https://" + GoogleHost + "/token",
	})
	if err != nil {
		panic(err)
	}
	return &ServiceAccount{string(file), &key.PublicKey}
}

// google accepts an assertion that the service account has signed.
func (c *Clouds) google(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || c.Account == nil {
		refuse(w, "unsupported_grant_type", "grant_type")
		return
	}
	parts := strings.Split(r.PostFormValue("assertion"), ".")
	if len(parts) != 3 {
		refuse(w, "invalid_grant", "no JWT")
		return
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Issuer   string `json:"iss"`
		Audience string `json:"aud"`
		Scope    string `json:"scope"`
		Issued   int64  `json:"iat"`
		Expires  int64  `json:"exp"`
	}
	now := time.Now().Unix()
	switch {
	case rsa.VerifyPKCS1v15(c.Account.key, crypto.SHA256, digest[:], signature) != nil:
		refuse(w, "invalid_grant", "Invalid JWT Signature.")
	case json.Unmarshal(text, &claims) != nil, claims.Audience != "https://"+GoogleHost+"/token",
		claims.Issued > now, claims.Expires <= now:
		refuse(w, "invalid_grant", "Invalid JWT: %s", text)
	default:
		c.answer(w, "google account "+claims.Issuer+" "+claims.Scope)
	}
}

// googleMetadata is the metadata server of Google.
func (c *Clouds) googleMetadata(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "Metadata-Flavor", http.StatusForbidden)
		return
	}
	w.Header().Set("Metadata-Flavor", "Google")
	if strings.HasSuffix(r.URL.Path, "/instance/service-accounts/default/token") {
		c.answer(w, "google metadata "+r.FormValue("scopes"))
		return
	}
	http.NotFound(w, r)
}

// azure accepts a secret of the application, or a token of the cluster.
func (c *Clouds) azure(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/common/discovery/instance":
		writeJSON(w, http.StatusOK, map[string]any{
			"tenant_discovery_endpoint": "https://" + AzureHost + "/" + Tenant + "/v2.0/.well-known/openid-configuration",
			"metadata": []any{map[string]any{
				"preferred_network": AzureHost, "preferred_cache": AzureHost, "aliases": []string{AzureHost},
			}},
		})
	case strings.HasSuffix(path, "/.well-known/openid-configuration"):
		base := "https://" + AzureHost + "/" + Tenant
		writeJSON(w, http.StatusOK, map[string]any{
			"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize",
			"issuer": base + "/v2.0", "device_authorization_endpoint": base + "/oauth2/v2.0/devicecode",
		})
	case path == "/"+Tenant+"/oauth2/v2.0/token":
		how := "azure secret"
		switch {
		case r.PostFormValue("client_id") != ClientID || r.PostFormValue("grant_type") != "client_credentials":
			refuse(w, "invalid_client", "AADSTS700016")
			return
		case r.PostFormValue("client_assertion") == Identity:
			how = "azure workload identity"
		case r.PostFormValue("client_secret") != ClientSecret:
			refuse(w, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
			return
		}
		c.answer(w, how+" "+resourceScope(r.PostFormValue("scope")))
	default:
		http.NotFound(w, r)
	}
}

// resourceScope returns the scope that names a resource; clients may ask for those of OpenID beside it.
func resourceScope(scopes string) string {
	for scope := range strings.FieldsSeq(scopes) {
		if strings.Contains(scope, "://") {
			return scope
		}
	}
	return scopes
}

// azureMetadata is the metadata server of Azure for managed identities.
func (c *Clouds) azureMetadata(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata") != "true" {
		http.Error(w, "Metadata", http.StatusBadRequest)
		return
	}
	how := "azure managed identity " + r.FormValue("resource")
	if id := r.FormValue("client_id"); id != "" {
		how += " of " + id
	}
	c.answer(w, how)
}
