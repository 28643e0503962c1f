package upstream

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/eventstream"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
)

// headCache caches the heads of usual calls to a provider: they are the same for a format and a credential.
type headCache struct {
	mu sync.RWMutex
	// provider is the value that the heads were made for. Another value, from a newer catalog, empties the cache.
	provider *catalog.Provider
	heads    map[headKey]*head
}

// headKey has those properties of a usual call on which its head depends.
type headKey struct {
	format              catalogkv.Format
	credential          catalog.Credential
	accept, contentType string
	beta                string
	signed              bool
}

// get returns the head of a call. It must not be modified.
func (h *headCache) get(call *provider.Call) *head {
	if call.Range != "" || call.IdempotencyKey != "" {
		return newHead(call)
	}

	key := headKey{call.Format, call.Credential, call.Accept, call.ContentType, call.Beta, call.Signature != nil}
	h.mu.RLock()
	made := h.heads[key]
	current := h.provider == call.Provider
	h.mu.RUnlock()
	if made != nil && current {
		return made
	}

	made = newHead(call)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.provider != call.Provider {
		h.provider, h.heads = call.Provider, map[headKey]*head{}
	}

	for other := range h.heads { // such as an access token that has ended
		if other.credential.ID == key.credential.ID && other.credential != key.credential {
			delete(h.heads, other)
		}
	}
	h.heads[key] = made
	return made
}

// head is the part of a call before its body.
type head struct {
	fields http.Header
	// lines are the fields as they are sent.
	lines []byte
	// repeatable reports whether the call may be repeated if an idle connection turns out to be dead, as it would be
	// on another route. The creation of a video must not be repeated.
	repeatable bool
}

// managedHeaders are the fields that the code that writes the request sets itself.
var managedHeaders = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Connection": true, "Expect": true, "Upgrade": true,
}

func newHead(call *provider.Call) *head {
	h := &head{
		fields:     headerFields(call),
		repeatable: call.Format != catalogkv.Videos && call.IdempotencyKey == "" || methodOf(call) == http.MethodGet,
	}
	var lines bytes.Buffer
	_ = h.fields.WriteSubset(&lines, managedHeaders) // never fails in memory
	h.lines = lines.Bytes()
	return h
}

// appendTo appends the complete head of a call.
func (h *head) appendTo(out []byte, call *provider.Call, base *url.URL) []byte {
	out = append(append(out, methodOf(call)...), ' ')
	out = append(append(out, base.EscapedPath()...), call.Path...)
	if call.Query != "" {
		out = append(append(out, '?'), call.Query...)
	}
	out = append(append(out, " HTTP/1.1\r\nHost: "...), base.Host...)
	out = append(out, "\r\n"...)
	out = append(out, h.lines...)
	for name, values := range call.Signature {
		out = append(append(append(append(out, name...), ": "...), values[0]...), "\r\n"...)
	}
	switch {
	case call.Body != nil:
		out = strconv.AppendInt(append(out, "Content-Length: "...), int64(call.Body.Len()), 10)
		out = append(out, "\r\n"...)
	case methodOf(call) == http.MethodPost:
		out = append(out, "Content-Length: 0\r\n"...)
	}
	return append(out, "\r\n"...)
}

// headerFields returns the headers of a call. None of them comes from the client.
func headerFields(call *provider.Call) http.Header {
	accept := call.Accept
	switch {
	case accept == "":
		accept = "application/json"
	case accept == eventStream && isFramed(call):
		accept = eventstream.MediaType
	}

	h := http.Header{"Accept": {accept}, "Accept-Encoding": {"identity"}, "User-Agent": {userAgent}}
	if call.ContentType != "" {
		h["Content-Type"] = []string{call.ContentType}
	}
	if call.Range != "" {
		h["Range"] = []string{call.Range}
	}

	switch {
	case call.IdempotencyKey != "":
		h["Idempotency-Key"] = []string{call.IdempotencyKey}
	case call.Format != catalogkv.Videos:
		// A nil value is not sent, but allows net/http to repeat the call if an idle connection turns out to be dead,
		// as it would be on another route. The creation of a video must not be repeated.
		h["Idempotency-Key"] = nil
	}

	departure := format.Departures[call.Provider.Kind][call.Format] // the body has the version, and possibly the beta features
	if call.Format == catalogkv.Messages && len(departure.Added) == 0 {
		version := call.Provider.AnthropicVersion
		if version == "" {
			version = "2023-06-01"
		}
		h["Anthropic-Version"] = []string{version}
	}

	if call.Beta != "" && departure.BetaMember == "" {
		h["Anthropic-Beta"] = []string{call.Beta}
	}

	for name, value := range call.Provider.Headers {
		if departure.BetaMember != "" && http.CanonicalHeaderKey(name) == "Anthropic-Beta" {
			continue
		}
		if call.Beta != "" && http.CanonicalHeaderKey(name) == "Anthropic-Beta" {
			value = format.JoinBetas(value, call.Beta)
		}
		h.Set(name, value)
	}

	switch auth, secret := call.Provider.Auth, call.Credential.Reveal(); {
	case call.Signature != nil: // it is not the same for the next call
	case secret == "": // the credential has further headers or a certificate only
	case auth != "" && auth != catalogkv.Bearer:
		h.Set(auth, secret)
	default:
		h["Authorization"] = []string{"Bearer " + secret}
	}
	for name, value := range call.Credential.Headers() {
		h.Set(name, value)
	}

	return h
}
