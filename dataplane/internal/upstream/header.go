package upstream

import (
	"maps"
	"net/http"
	"sync"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	contract "modelgateway/shared/catalog"
)

// headers keeps the headers of a provider's usual calls: they are the same for
// one format and credential, and net/http only reads them.
type headers struct {
	mu sync.RWMutex
	// provider is what the headers were made for. Another one, of a newer catalog, begins anew.
	provider *catalog.Provider
	made     map[headerKey]http.Header
}

// headerKey is all of a usual call that its headers depend on.
type headerKey struct {
	format              contract.Format
	secret              catalog.Secret
	accept, contentType string
}

// of returns the headers of a call, which are not to be changed.
func (h *headers) of(call *provider.Call) http.Header {
	if call.Range != "" || call.IdempotencyKey != "" || len(call.Header) > 0 {
		return header(call)
	}
	key := headerKey{call.Format, call.Secret, call.Accept, call.ContentType}
	h.mu.RLock()
	made := h.made[key]
	current := h.provider == call.Provider
	h.mu.RUnlock()
	if made != nil && current {
		return made
	}
	made = header(call)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.provider != call.Provider {
		h.provider, h.made = call.Provider, map[headerKey]http.Header{}
	}
	h.made[key] = made
	return made
}

// header is the gateway's own set of headers: nothing of the client's.
func header(call *provider.Call) http.Header {
	accept := call.Accept
	if accept == "" {
		accept = "application/json"
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
	case call.Format != contract.Videos:
		// Not sent: it tells the transport that a call may be repeated when an idle connection turns out to be dead,
		// as it would be on another route. A video must not be made twice.
		h["Idempotency-Key"] = nil
	}
	if call.Format == contract.Messages {
		version := call.Provider.AnthropicVersion
		if version == "" {
			version = "2023-06-01"
		}
		h["Anthropic-Version"] = []string{version}
	}
	maps.Copy(h, call.Header)
	for name, value := range call.Provider.Headers {
		h.Set(name, value)
	}
	if call.Provider.Auth == "x-api-key" {
		h["X-Api-Key"] = []string{call.Secret.Reveal()}
	} else {
		h["Authorization"] = []string{"Bearer " + call.Secret.Reveal()}
	}
	return h
}
