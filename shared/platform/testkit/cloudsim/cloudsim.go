// Package cloudsim simulates what the gateway needs of the clouds beside a model: the servers of tokens (OAuth 2.0, Google,
// Azure) and keys (AWS), the check of AWS signatures, and the framing of Bedrock's streams. It is written from the
// descriptions of the protocols and shares no code with the libraries that the gateway uses.
//
// Clouds is an HTTP transport as well as a handler, so that a client that believes to talk to the clouds needs no network.
package cloudsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Secrets that Clouds accept.
const (
	ClientID       = "the-client"
	ClientSecret   = "the-client-secret"  // gitleaks:allow
	Tenant         = "the-tenant"         // of Azure
	AccessKey      = "AKIDOFTHEOPERATOR"  // of AWS
	SecretKey      = "the-secret-of-akid" // gitleaks:allow
	Role           = "arn:aws:iam::123456789012:role/models"
	ExternalID     = "the-external-id"
	Identity       = "the-identity-of-the-pod" // a token of the cluster
	ContainerToken = "the-token-of-the-container"
)

// The hosts of the servers. Requests to other hosts are refused.
const (
	OAuthHost     = "idp.example.com"
	GoogleHost    = "oauth2.googleapis.com"
	AzureHost     = "login.microsoftonline.com"
	LinkLocalHost = "169.254.169.254"
	ContainerHost = "169.254.170.2"
)

// Clouds has the state of the servers. The zero value is ready. It is safe for concurrent use.
type Clouds struct {
	// Lives is how long tokens live; zero means an hour.
	Lives time.Duration
	// Account is the service account of Google that is known, nil for none.
	Account *ServiceAccount

	mu      sync.Mutex
	issued  map[string]time.Time // end by token or session token
	secrets map[string]string    // secret of each access key of a session
	// permanent has the secrets of further access keys without a session.
	permanent map[string]string
	requests  []string
	failing   bool
}

// Requests returns a line for each request so far: what was asked for, and how.
func (c *Clouds) Requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.requests...)
}

// Fail makes all servers answer with an error, or work again.
func (c *Clouds) Fail(failing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = failing
}

// Revoke ends all tokens that were issued before.
func (c *Clouds) Revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token := range c.issued {
		c.issued[token] = time.Time{}
	}
}

// IsValid reports whether a token was issued and has not ended.
func (c *Clouds) IsValid(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.issued[token])
}

// issue makes a token with a name.
func (c *Clouds) issue(how string) (token string, lives time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, how)
	if c.issued == nil {
		c.issued = map[string]time.Time{}
	}
	if lives = c.Lives; lives == 0 {
		lives = time.Hour
	}
	token = "token-" + strconv.Itoa(len(c.issued)+1)
	c.issued[token] = time.Now().Add(lives)
	return token, lives
}

// issueKeys makes keys of AWS with a session token.
func (c *Clouds) issueKeys(how string) (id, secret, session string, ends time.Time) {
	session, lives := c.issue(how)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.secrets == nil {
		c.secrets = map[string]string{}
	}
	id, secret = "ASIA"+session, "secret-of-"+session
	c.secrets[id] = secret
	return id, secret, session, time.Now().Add(lives)
}

// secretOf returns the secret of an access key with its session token.
func (c *Clouds) secretOf(id, session string) (secret string, ok bool) {
	if id == AccessKey && session == "" {
		return SecretKey, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if secret, ok = c.permanent[id]; ok && session == "" {
		return secret, true
	}
	secret, ok = c.secrets[id]
	return secret, ok && id == "ASIA"+session && time.Now().Before(c.issued[session])
}

// RoundTrip answers a request without a network.
func (c *Clouds) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	in := r.Clone(r.Context())
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, in)
	response := w.Result()
	response.Request = r
	return response, nil
}

func (c *Clouds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	failing := c.failing
	c.mu.Unlock()
	if failing {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"error": "temporarily_unavailable"})
		return
	}

	host := r.Host
	if name, port, found := strings.Cut(host, ":"); found && port != "" {
		host = name
	}
	path := r.URL.Path
	switch {
	case host == OAuthHost && path == "/token":
		c.oauth(w, r)
	case host == GoogleHost && path == "/token":
		c.google(w, r)
	case strings.HasPrefix(path, "/computeMetadata/v1/"):
		c.googleMetadata(w, r)
	case host == AzureHost:
		c.azure(w, r)
	case host == LinkLocalHost && path == "/metadata/identity/oauth2/token":
		c.azureMetadata(w, r)
	case host == LinkLocalHost:
		c.instance(w, r)
	case host == ContainerHost:
		c.container(w, r)
	case strings.HasPrefix(host, "sts."):
		c.sts(w, r)
	default:
		http.Error(w, "cloudsim: no such server: "+r.Host+path, http.StatusNotFound)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func refuse(w http.ResponseWriter, code, format string, arguments ...any) {
	writeJSON(w, http.StatusUnauthorized, map[string]any{"error": code, "error_description": fmt.Sprintf(format, arguments...)})
}
