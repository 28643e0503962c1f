package upstream

import (
	"net/http"
	"testing"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
)

func TestHeadsAreCachedPerProviderCredentialAndFormat(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		var got http.Header
		c, done := serve(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
		defer done()
		send := func(call provider.Call) {
			t.Helper()
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close() // empty
		}
		first := to("")
		for range 2 {
			if send(first); got.Get("Authorization") != "Bearer the-secret" || got.Get("X-Extra") != "" {
				t.Errorf("got %v", got)
			}
		}
		other := first
		other.Credential = catalog.NewCredential("crd", "renewed")
		if send(other); got.Get("Authorization") != "Bearer renewed" {
			t.Errorf("another credential: got %v", got)
		}
		other = first
		other.Format, other.Accept = catalogkv.Messages, "text/event-stream"
		if send(other); got.Get("Anthropic-Version") == "" || got.Get("Accept") != "text/event-stream" {
			t.Errorf("another format: got %v", got)
		}
		for _, beta := range []string{"x", ""} {
			other.Beta = beta
			if send(other); got.Get("Anthropic-Beta") != beta {
				t.Errorf("beta features %q: got %v", beta, got)
			}
		}
		changed := *first.Provider
		changed.Headers = map[string]string{"x-extra": "new"}
		other = first
		other.Route = &catalog.Route{Provider: &changed}
		if send(other); got.Get("X-Extra") != "new" {
			t.Errorf("a changed provider: got %v", got)
		}
	})
}
