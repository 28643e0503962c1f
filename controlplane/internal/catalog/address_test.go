package catalog

import (
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
)

// What is accepted is sent as it is written, so that a proxy needs not change it.
func TestAcceptedAddressesAreSentAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/chat/completions", "/v1beta/openai/chat/completions", "/model/{model}/invoke", "/publishers/anthropic/models/{model}:rawPredict",
		"/a%20b/c%2Fd", "/deployments/{model}/{model}", "/~user/a,b;c=d@e!$&'()*+", "/run/@cf/meta/llama",
	} {
		document := parse(t, "currency: USD\nproviders: [{id: p, base_url: \"https://p.example\", addresses: {chat: {path: \""+path+"\", query: {a: \"ü & ?\"}}}}]")
		target, err := document.target()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		spec := target.providers["p"].spec
		got := spec.URL(spec.Target(&catalogkv.Route{UpstreamModel: "x/y"}, catalogkv.Chat, true))
		if want := "https://p.example" + strings.ReplaceAll(path, "{model}", "x%2Fy") + "?a=%C3%BC+%26+%3F"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}
