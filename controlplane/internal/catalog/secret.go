package catalog

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
)

// maxSecretLen bounds each secret, certificate and key, in bytes.
const maxSecretLen = 64 << 10

// given reports whether the document has any secret of the credential. Then it has all of them.
func (t *targetSecret) given() bool { return t.secret != "" || !t.further.IsZero() }

// storedMark separates the text of a stored credential from its further secrets. No header can have it.
const storedMark = "\x00"

// stored returns what the database has of a credential, before it is encrypted: the text, and after a mark the further
// secrets if there are any.
func (t *targetSecret) stored() []byte {
	if t.further.IsZero() {
		return []byte(t.secret)
	}
	further, err := json.Marshal(t.further) //nolint:gosec // it is encrypted before it is kept
	if err != nil {                         // texts always marshal
		panic(err)
	}
	return append([]byte(t.secret+storedMark), further...)
}

// splitStored returns the text of a stored credential and its further secrets in JSON, nil if there are none.
func splitStored(stored []byte) (text, further []byte) {
	text, further, _ = bytes.Cut(stored, []byte(storedMark))
	return text, further
}

// exposing returns why a change of a provider could reveal its stored secrets to the caller; empty if it could not.
func exposing(before, after *catalogkv.Provider) string {
	switch {
	case !sameOrigin(before.BaseURL, after.BaseURL):
		return "base_url changes to another server"
	case after.CA != "" && after.CA != before.CA:
		return "ca changes, and with it who can be the server"
	case after.Proxy != "" && after.Proxy != before.Proxy && !strings.HasPrefix(after.BaseURL, "https://"):
		return "the forward proxy changes, which can read calls without TLS"
	default:
		return ""
	}
}

func isHeaderName(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || (!unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}) < 0
}

// callHeaders are headers of a call and of its connection, which no secret can take.
var callHeaders = []string{
	"Accept", "Accept-Encoding", "Anthropic-Beta", "Anthropic-Version", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
	"Expect", "Host", "Idempotency-Key", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Range", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "User-Agent",
}

// secretHeader refuses a name under which no secret can be sent.
func (b *builder) secretHeader(path, name string) {
	b.refuse(!isHeaderName(name), path, "", "must be bearer or the name of a header")
	b.refuse(slices.Contains(callHeaders, http.CanonicalHeaderKey(name)), path, "", "is a header that the gateway or its connection sets")
}

// furtherSecrets checks the secrets of a credential beside its text.
func (b *builder) furtherSecrets(path string, p *ProviderEntry, c *CredentialEntry) {
	wrong := strings.ContainsAny(c.Secret, "\r\n\x00") || len(c.Secret) > maxSecretLen
	b.refuse(wrong, path, "secret", "must be in one line of at most 64 KiB")

	used := map[string]string{"Authorization": "the secret"}
	if p.Auth != "" && p.Auth != catalogkv.Bearer {
		used = map[string]string{http.CanonicalHeaderKey(p.Auth): "the secret"}
	}
	if c.Secret == "" && len(c.Headers) > 0 && (c.Kind == "" || c.Kind == catalogkv.SecretCredential) {
		clear(used)
	}
	for name := range p.Headers {
		used[http.CanonicalHeaderKey(name)] = "a header of the provider"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at, value := validation.Member(validation.Member(path, "headers"), name), c.Headers[name]
		b.secretHeader(at, name)
		other := used[http.CanonicalHeaderKey(name)]
		b.refuse(other != "", at, "", "is the header of %s", other)
		used[http.CanonicalHeaderKey(name)] = "another secret"
		b.refuse(value == "", at, "", "is empty")
		b.refuse(strings.Contains(value, "${"), at, "", "holds a ${…} that was not replaced")
		b.refuse(strings.ContainsAny(value, "\r\n\x00") || len(value) > maxSecretLen, at, "", "must be in one line of at most 64 KiB")
	}

	switch {
	case c.Certificate == "" && c.PrivateKey == "":
	case c.Certificate == "" || c.PrivateKey == "":
		b.invalid.Add(validation.Member(path, "certificate"), "needs its private_key, and the key its certificate")
	case len(c.Certificate)+len(c.PrivateKey) > maxSecretLen:
		b.invalid.Add(validation.Member(path, "certificate"), "must have at most 64 KiB together with private_key")
	default:
		// The error of the parser is left out: it could name parts of the key.
		_, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey))
		b.refuse(err != nil, path, "certificate", "and private_key are not a certificate and its key in the form PEM")
	}
}

// issuers checks the certificates of issuers.
func (b *builder) issuers(path, text string) {
	if text == "" {
		return
	}
	found, rest := 0, []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		_, err := x509.ParseCertificate(block.Bytes)
		b.refuse(block.Type != "CERTIFICATE" || err != nil, path, "", "has something other than a certificate")
		found++
	}
	wrong := found == 0 || strings.TrimSpace(string(rest)) != "" || len(text) > maxSecretLen
	b.refuse(wrong, path, "", "must be certificates in the form PEM, of at most 64 KiB")
}

// forwardProxy checks the address of a forward proxy.
func (b *builder) forwardProxy(path, text string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	wrong := err != nil || u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != ""
	b.refuse(wrong, path, "", "must be an http address of a host, such as http://proxy.example.com:3128")
	b.refuse(!wrong && u.User != nil, path, "", "must have no user: one with a password belongs in the environment, as HTTPS_PROXY")
}
