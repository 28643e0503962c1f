package upstream

import (
	"net/http"
	"strings"

	"modelgateway/dataplane/internal/eventstream"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
)

// eventStream is the media type of streams.
const eventStream = "text/event-stream"

// isFramed reports whether the provider sends streams in frames of AWS.
func isFramed(call *provider.Call) bool {
	return call.Provider.Kind == catalogkv.Bedrock && call.Format == catalogkv.Messages
}

// unframe makes an event stream of one in frames.
func unframe(a *provider.Answer) {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	if a.Status != http.StatusOK || a.Body == nil || !strings.EqualFold(strings.TrimSpace(media), eventstream.MediaType) {
		return
	}
	a.Header = a.Header.Clone()
	a.Header.Set("Content-Type", eventStream)
	a.Header.Del("Content-Length")
	a.Length = -1
	a.Body = eventstream.NewBody(a.Body)
}
