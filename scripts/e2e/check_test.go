package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// A proxy of the stack calls the provider, and the answer says of each format what came: also where no request of a customer
// has been yet.
func TestCheckOfAProviderSaysWhatCame(t *testing.T) {
	a := newAPI(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }))
	t.Cleanup(page.Close)
	unique := strings.ToLower(rig.Unique())
	works, elsewhere, away := "works-"+unique, "elsewhere-"+unique, "away-"+unique
	at := func(id, address string) rig.Provider {
		return rig.Provider{ID: id, BaseURL: address, Credentials: []rig.Credential{{Name: "main", Secret: "sk-test"}}}
	}
	to := func(provider string, formats ...string) rig.Route {
		return rig.Route{Provider: provider, UpstreamModel: "u", Formats: formats}
	}
	price := map[string]any{"input": "1", "output": "2"}
	disabled := to(elsewhere, "messages") // is not called
	disabled.Enabled = new(false)
	disabled.UpstreamModel = "other"
	a.Add(t, []any{at(works, a.Sim.URL), at(elsewhere, page.URL+"/wrong"), at(away, "http://127.0.0.1:1")}, []any{
		rig.Model{
			ID:     "text-" + unique,
			Type:   "text",
			Price:  price,
			Routes: []rig.Route{to(works, "chat", "responses", "messages"), to(elsewhere, "chat"), disabled, to(away, "chat")},
		},
		rig.Model{
			ID:     "image-" + unique,
			Type:   "image",
			Price:  map[string]any{"images": []any{map[string]any{"price": "1"}}},
			Routes: []rig.Route{to(works, "images")},
		},
	})

	for _, c := range []struct {
		provider string
		want     map[string]adminclient.CheckedCallResult
	}{
		{works, map[string]adminclient.CheckedCallResult{
			"chat":      adminclient.CheckedCallResultWorks,
			"responses": adminclient.CheckedCallResultWorks,
			"messages":  adminclient.CheckedCallResultWorks,
			"images":    adminclient.CheckedCallResultWorks,
		}},
		{elsewhere, map[string]adminclient.CheckedCallResult{"chat": adminclient.CheckedCallResultNotFound}},
		{away, map[string]adminclient.CheckedCallResult{"chat": adminclient.CheckedCallResultNoAnswer}},
	} {
		got, err := a.Admin.CheckProvider(t.Context(), c.provider, nil)
		if err != nil || !got.Value.Answered || len(got.Value.Calls) != len(c.want) {
			t.Fatalf("got %v, %v; want %v", got, err, c.want)
		}
		for _, call := range got.Value.Calls {
			if call.Result != c.want[call.Format] {
				t.Errorf("%s: got %+v; want %s", call.Format, call, c.want[call.Format])
			}
		}
	}

	t.Run("gwctl", func(t *testing.T) {
		command := a.Gwctl(t, "providers", "check", elsewhere, "-o", "json")
		command.Env = append(os.Environ(), "GWCTL_SERVER="+a.AdminURL(), "GWCTL_TOKEN="+a.AdminToken())
		text, err := command.Output()
		var got adminclient.ProviderCheck
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || len(got.Calls) != 1 || got.Calls[0].Result != adminclient.CheckedCallResultNotFound || !strings.HasSuffix(got.Calls[0].URL, "/wrong/v1/chat/completions") {
			t.Errorf("got %s, %v", text, err)
		}
	})
}
