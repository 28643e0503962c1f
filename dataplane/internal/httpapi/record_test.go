package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

// maxSent is the maximum size of a bus message; one event is far smaller.
const maxSent = 16 << 10

// Texts of clients and providers that enter a usage event must not prevent its settlement: an event above the size
// limit of a message would be published again and again, and Postgres rejects U+0000.
func TestAnyTextOfClientOrProviderCanBeSettled(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2<<20)
	const picture = `{"created":1,"data":[{"url":"https://example.com/1.png"}]`
	tests := map[string]struct{ path, body, answer string }{
		"size of the client, long":      {catalogkv.Images.Path(), `{"model":"image","prompt":"x","size":"` + long + `"}`, picture + `}`},
		"size of the client, zero":      {catalogkv.Images.Path(), `{"model":"image","prompt":"x","size":"1024x1024\u0000"}`, picture + `}`},
		"quality of the client, long":   {catalogkv.Images.Path(), `{"model":"image","prompt":"x","quality":"` + long + `"}`, picture + `}`},
		"quality of the provider, zero": {catalogkv.Images.Path(), `{"model":"image","prompt":"x"}`, picture + `,"quality":"a\u0000","size":"` + long + `"}`},
		"id of the provider, long":      {catalogkv.Chat.Path(), `{"model":"text","messages":[]}`, strings.Replace(chatJSON, "chatcmpl-1", long, 1)},
		"id of the provider, zero":      {catalogkv.Chat.Path(), `{"model":"text","messages":[]}`, strings.Replace(chatJSON, "chatcmpl-1", `a\u0000b`, 1)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, jsonAnswer(http.StatusOK, tt.answer))
			if got := g.post(tt.path, tt.body); got.status != http.StatusOK {
				t.Fatalf("got %d %.200s", got.status, got.body)
			}
			e := g.spool.next(t)
			sent := e.AppendJSON(nil)
			if len(sent) > maxSent || strings.Contains(string(sent), `\u0000`) || e.Cost == 0 || e.Rule != event.RuleReported {
				t.Errorf("%d bytes: %.600s", len(sent), sent)
			}
		})
	}
}
