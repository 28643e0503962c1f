package providercheck_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/providercheck"
	"modelgateway/dataplane/internal/upstream"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire/checkwire"
)

// check checks a provider of a catalog and returns the calls by format.
func check(t *testing.T, p catalogkv.Provider, models ...catalogkv.Model) map[string]checkwire.Call {
	t.Helper()
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	p.ID, p.Name, p.Enabled = "p", "p", true
	p.Credentials = []catalogkv.Credential{{ID: "crd", Sealed: fleet.Seal([]byte("sk-secret"), catalogkv.CredentialContext("crd"))}}
	store := catalog.New(fleet)
	set := func(kind, name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		store.Set(kind, name, data)
	}
	set(subject.KindProvider, "p", p)
	for _, m := range models {
		m.Enabled = true
		set(subject.KindModel, m.ID, m)
	}
	set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: 1})
	if err := store.Apply(); err != nil {
		t.Fatal(err)
	}
	client := upstream.New(upstream.Limits{})
	defer client.Close()
	found := map[string]checkwire.Call{}
	for _, c := range providercheck.Run(t.Context(), client, store.Snapshot(), "p") {
		name := c.Format
		if _, twice := found[name]; twice {
			name += " of " + c.Route
		}
		found[name] = c
	}
	return found
}

func model(id string, t catalogkv.Type, formats ...catalogkv.Format) catalogkv.Model {
	return catalogkv.Model{ID: id, Type: t, Routes: []catalogkv.Route{{ID: "rte_" + id, Provider: "p", UpstreamModel: "up-" + id, Formats: formats, Enabled: true}}}
}

// each has a model in every format.
var each = []catalogkv.Model{
	model("text", catalogkv.Text, catalogkv.Chat, catalogkv.Responses, catalogkv.Messages), model("image", catalogkv.Image, catalogkv.Images),
	model("video", catalogkv.Video, catalogkv.Videos),
}

func TestEveryFormatIsCalledOnceAndCheaply(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var members struct {
			Model, Prompt string
			Max1          int `json:"max_tokens"`
			Max2          int `json:"max_output_tokens"`
		}
		if err := json.Unmarshal(body, &members); err != nil || !strings.HasPrefix(members.Model, "up-") || r.Header.Get("Authorization") != "Bearer sk-secret" {
			t.Errorf("got %s, %v", body, err)
		}
		paid := r.URL.Path == "/v1/images/generations" || r.URL.Path == "/v1/videos"
		if paid {
			if members.Prompt != "" {
				t.Errorf("%s costs: got %s", r.URL.Path, body)
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"prompt is missing"}}`)
			return
		}
		if members.Max1+members.Max2 == 0 || members.Max1+members.Max2 > 16 {
			t.Errorf("%s has no small limit: got %s", r.URL.Path, body)
		}
		_, _ = io.WriteString(w, `{"id":"x"}`)
	}))
	defer server.Close()
	further := model("second", catalogkv.Text, catalogkv.Chat)
	own := model("third", catalogkv.Text, catalogkv.Chat)
	own.Routes[0].Addresses = catalogkv.Addresses{catalogkv.Chat: {Path: "/own/{model}"}}
	got := check(t, catalogkv.Provider{BaseURL: server.URL}, append(each, further, own)...)
	if len(got) != 6 {
		t.Errorf("got %d calls: %+v; want one in each format and one for the route with an address of its own", len(got), got)
	}
	for name, c := range got {
		if c.Result != checkwire.Works || c.Status == 0 || c.Detail != "" || c.Credential != "crd" {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	if c := got["chat of rte_third"]; c.URL != server.URL+"/own/up-third" {
		t.Errorf("the route with an address of its own: got %+v", c)
	}
}

func TestAnswersAreExplained(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, base string
		status     int
		answer     string
		want       checkwire.Result
		detail     string
		hint       bool
	}{
		{"nothing there", "", 404, "404 page not found\n", checkwire.NotFound, "text/plain", false},
		{"two versions", "/v4", 404, "{}", checkwire.NotFound, "text/plain", true},
		{"two versions before a name", "/v1beta/openai", 404, "", checkwire.NotFound, "", true},
		{"a version elsewhere", "/client/v4/accounts/a/ai", 404, "", checkwire.NotFound, "", false},
		{"method not allowed", "", 405, "", checkwire.NotFound, "", false},
		{"a page", "", 200, "<html>Welcome</html>", checkwire.OtherFormat, "text/html", false},
		{"moved", "", 302, "", checkwire.OtherFormat, "", false},
		{"wrong key", "", 401, `{"error":{"message":"Incorrect API key provided","type":"a","code":"invalid_api_key"}}`, checkwire.RefusedSecret, "invalid_api_key: Incorrect API key provided", false},
		{"an error of messages", "", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too small"}}`, checkwire.RefusedRequest, "invalid_request_error: max_tokens: too small", false},
		{"no code", "", 400, `{"error":{"message":"max_tokens","code":400}}`, checkwire.RefusedRequest, "max_tokens", false},
		{"too many", "", 429, "slow down", checkwire.Busy, "text/plain", false},
		{"broken", "", 500, "oops", checkwire.Failed, "text/plain", false},
		{"long", "", 500, `{"error":{"message":"` + strings.Repeat("ü", 400) + `"}}`, checkwire.Failed, strings.Repeat("ü", 150) + "…", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.answer)
			}))
			defer server.Close()
			got := check(t, catalogkv.Provider{BaseURL: server.URL + tt.base}, each[0])["chat"]
			if got.Result != tt.want || got.Status != tt.status || got.Detail != tt.detail || (got.Hint != "") != tt.hint {
				t.Errorf("got %+v", got)
			}
		})
	}
	got := check(t, catalogkv.Provider{BaseURL: "http://127.0.0.1:1"}, each[0])["chat"]
	if got.Result != checkwire.NoAnswer || !strings.Contains(got.Detail, "connection refused") || got.Status != 0 {
		t.Errorf("without a server: got %+v", got)
	}
	if got := check(t, catalogkv.Provider{BaseURL: "http://127.0.0.1:1"}); len(got) != 0 {
		t.Errorf("without a route: got %+v", got)
	}
}

// Whoever may write the catalog chooses the address of a provider: a check does not show what an address of the operator's network
// answers, and no form of a secret.
func TestNothingIsShownOfOtherAnswers(t *testing.T) {
	t.Parallel()
	secret, std := "sk-secret", base64.StdEncoding.EncodeToString([]byte("sk-secret"))
	for name, answer := range map[string]string{
		"metadata":              `{"AccessKeyId":"id-of-a-key","Token":"` + secret + `"}`,
		"text":                  "root:x:0:0:internal",
		"an error of a server":  `{"error":"internal, no key sk-secret"}`,
		"an error of a cluster": `{"kind":"Status","message":"internal","code":403}`,
		"a list":                `[{"error":{"message":"internal"}}]`,
		"a number as a message": `{"error":{"message":1,"code":"internal"}}`,
		"a long code":           `{"error":{"message":"","code":"internal ` + secret + `"}}`,
		"the secret as a code":  `{"error":{"message":"","code":"sk-secret"}}`,
		"the secret":            `{"error":{"message":"key sk-secret"}}`,
		"escaped in JSON":       `{"error":{"message":"key \u0073k-secret"}}`,
		"in other letters":      `{"error":{"message":"key SK-SECRET"}}`,
		"in base64":             `{"error":{"message":"key ` + std + `"}}`,
		"a token":               `{"error":{"message":"Bearer abcdefgh.internal-1"}}`,
		"in a header":           "HTTP/1.1 internal",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil && strings.HasPrefix(answer, "HTTP/") {
					_, _ = io.WriteString(c, answer+" sk-secret\r\n\r\n")
				} else {
					_, _ = io.WriteString(c, "HTTP/1.1 400 internal\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+answer)
				}
				_ = c.Close()
			}
		}()
		got := check(t, catalogkv.Provider{BaseURL: "http://" + l.Addr().String()}, each[0])["chat"]
		_ = l.Close()
		for _, hidden := range []string{"internal", "id-of", "sk-", "SK-", std, "c2stc2Vj"} {
			if strings.Contains(got.Detail, hidden) {
				t.Errorf("%s: shows %q", name, got.Detail)
			}
		}
		if got.Status == 0 && got.Result != checkwire.NoAnswer {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
