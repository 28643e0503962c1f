package devstack

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeAdmin is an admin API that stores its data in memory and has the operations of seed.
type fakeAdmin struct {
	mu       sync.Mutex
	accounts []map[string]any
	keys     []map[string]any
	credits  map[string]string // amount by reference
	catalog  string
	// applied counts the applied catalogs; differs is the number of changes that applying one would make.
	applied, differs int
	// removed are the models that applying one would remove.
	removed []string
	// failures holds the statuses of failing operations, by "METHOD path".
	failures map[string]int
}

func (f *fakeAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer token" {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	if status := f.failures[r.Method+" "+r.URL.Path]; status != 0 {
		http.Error(w, `{"title":"refused"}`, status)
		return
	}
	var body map[string]any
	text, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(text, &body)
	switch r.Method + " " + r.URL.Path {
	case "GET /admin/v1/accounts":
		var data []any
		for _, a := range f.accounts {
			if a["external_id"] == r.URL.Query().Get("external_id") {
				data = append(data, a)
			}
		}
		reply(w, map[string]any{"data": data})
	case "POST /admin/v1/accounts":
		body["id"] = "acc_1"
		f.accounts = append(f.accounts, body)
		reply(w, body)
	case "POST /admin/v1/accounts/acc_1/credits":
		f.credits[body["reference"].(string)] = body["amount"].(string)
		reply(w, body)
	case "GET /admin/v1/accounts/acc_1/keys":
		f.page(w, r)
	case "POST /admin/v1/accounts/acc_1/keys":
		body["id"], body["status"], body["revealable"] = "key_new", "active", true
		f.keys = append(f.keys, body)
		reply(w, map[string]any{"id": "key_new", "secret": "mgw_new"})
	case "POST /admin/v1/keys/key_new/reveal", "POST /admin/v1/keys/key_old/reveal":
		reply(w, map[string]any{"secret": strings.Replace(strings.Split(r.URL.Path, "/")[4], "key", "mgw", 1)})
	case "PUT /admin/v1/catalog":
		if r.URL.Query().Get("dry_run") == "true" {
			changes := slices.Repeat([]catalogChange{{}}, f.differs)
			for _, id := range f.removed {
				changes = append(changes, catalogChange{"remove", "model", id})
			}
			reply(w, map[string]any{"changes": changes})
			return
		}
		f.applied++
		f.catalog = r.Header.Get("Content-Type") + " " + string(text)
		reply(w, map[string]any{})
	case "GET /admin/v1/catalog":
		reply(w, map[string]any{"models": []any{map[string]any{"id": "demo-chat"}}})
	default:
		http.NotFound(w, r)
	}
}

// page answers with one key per page.
func (f *fakeAdmin) page(w http.ResponseWriter, r *http.Request) {
	n := len(r.URL.Query().Get("cursor"))
	answer := map[string]any{"data": []any{}}
	if n < len(f.keys) {
		answer["data"] = f.keys[n : n+1]
		answer["next_cursor"] = strings.Repeat("x", n+1)
	}
	reply(w, answer)
}

func reply(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) }

func newFakeAdmin(t *testing.T) (*fakeAdmin, caller) {
	t.Helper()
	fake := &fakeAdmin{credits: map[string]string{}, failures: map[string]int{}}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return fake, caller{url: server.URL, token: "token"}
}

// seeded returns a stack in a new directory with a catalog.
func seeded(t *testing.T, document string) *Stack {
	t.Helper()
	return &Stack{
		Config: Config{Layout: Layout{Dir: t.TempDir()}}, document: document, mediaType: "application/yaml",
		progress: &progress{out: &output{t: t, more: make(chan struct{})}},
	}
}

// A user's changes of the catalog outlive a restart of the stack.
func TestCatalogIsAppliedAgainOnlyIfItsFileChanged(t *testing.T) {
	t.Parallel()
	fake, admin := newFakeAdmin(t)
	s := seeded(t, "currency: USD")
	run := func() string {
		t.Helper()
		if _, err := s.seed(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
		return s.progress.out.(*output).text.String()
	}
	run()
	fake.differs = 6
	if out := run(); fake.applied != 1 || !strings.Contains(out, "differs from its file in 6 objects and is kept") {
		t.Errorf("applied %d times, said %q; want the user's catalog to be kept", fake.applied, out)
	}
	s.document = "currency: EUR"
	if run(); fake.applied != 2 || !strings.HasSuffix(fake.catalog, "EUR") {
		t.Errorf("applied %d times, at last %q; want the changed file", fake.applied, fake.catalog)
	}
	s.document, fake.removed = "currency: CHF", []string{"by-hand", "other"}
	if out := run(); fake.applied != 2 || !strings.Contains(out, "would remove the model by-hand, the model other; to apply the file nevertheless: make run CATALOG=apply") {
		t.Errorf("applied %d times, said %q; want the models to be kept that another file has not", fake.applied, out)
	}
	s.ApplyCatalog = true
	if out := run(); fake.applied != 3 || !strings.Contains(out, "is applied, which removes the model by-hand, the model other") {
		t.Errorf("applied %d times, said %q; want the file to be applied on demand", fake.applied, out)
	}
}

func TestSecondSeedCreatesNothing(t *testing.T) {
	t.Parallel()
	fake, admin := newFakeAdmin(t)
	want := demo{AccountID: "acc_1", APIKey: "mgw_new", Catalog: catalog{Models: []model{{ID: "demo-chat"}}}}
	s := seeded(t, "currency: USD")
	for range 2 {
		got, err := s.seed(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if len(fake.accounts) != 1 || len(fake.keys) != 1 || len(fake.credits) != 1 {
		t.Errorf("got %d accounts, %d keys, %d credits; want one of each", len(fake.accounts), len(fake.keys), len(fake.credits))
	}
	if want := "application/yaml currency: USD"; fake.catalog != want {
		t.Errorf("applied %q; want %q", fake.catalog, want)
	}
}

func TestSeedKeyReusesOnlyAUsableKey(t *testing.T) {
	t.Parallel()
	limit := "5.00"
	usable := map[string]any{"id": "key_old", "name": "demo", "status": "active", "spend_limit": nil, "revealable": true}
	with := func(name string, value any) map[string]any {
		key := map[string]any{"id": "key_bad"}
		for k, v := range usable {
			if k != "id" {
				key[k] = v
			}
		}
		key[name] = value
		return key
	}
	tests := []struct {
		name string
		keys []map[string]any
		want string
	}{
		{"none", nil, "mgw_new"},
		{"on a later page", []map[string]any{with("name", "other"), usable}, "mgw_old"},
		{"revoked", []map[string]any{with("status", "revoked")}, "mgw_new"},
		{"limited", []map[string]any{with("spend_limit", limit)}, "mgw_new"},
		{"imported", []map[string]any{with("revealable", false)}, "mgw_new"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake, admin := newFakeAdmin(t)
			fake.keys = tt.keys
			got, err := seedKey(t.Context(), admin, "acc_1")
			if got != tt.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestSeedReportsTheFailedCall(t *testing.T) {
	t.Parallel()
	for _, call := range []string{
		"GET /admin/v1/accounts", "POST /admin/v1/accounts", "POST /admin/v1/accounts/acc_1/credits",
		"GET /admin/v1/accounts/acc_1/keys", "POST /admin/v1/accounts/acc_1/keys", "PUT /admin/v1/catalog", "GET /admin/v1/catalog",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			fake, admin := newFakeAdmin(t)
			fake.failures[call] = http.StatusUnprocessableEntity
			_, err := seeded(t, "").seed(t.Context(), admin)
			_, path, _ := strings.Cut(call, " ")
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "422") || !strings.Contains(err.Error(), "refused") {
				t.Errorf("got %v; want the call, the status and the answer", err)
			}
		})
	}
}

func TestProblemOfAFileIsPlainText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type":"/problems/invalid_input","title":"The request is invalid","errors":[{"field":"models[0].x","detail":"is not a known member"},{"field":"","detail":"is odd"}]}`: "The request is invalid\n  models[0].x is not a known member\n  is odd",
		`{"title":"Not allowed","detail":"the token has no scope"}`: "Not allowed: the token has no scope",
		"no JSON\n": "no JSON",
	} {
		if got := problem([]byte(text)); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

func TestExampleIsAPublicTextModel(t *testing.T) {
	t.Parallel()
	no := false
	tests := []struct {
		name    string
		models  []model
		id      string
		formats string
	}{
		{"none", nil, "", ""},
		{"chat before messages", []model{
			{ID: "m", Routes: []route{{Formats: []string{"messages"}}}},
			{ID: "c", Routes: []route{{Formats: []string{"responses", "chat"}}}},
		}, "c", "chat"},
		{"not usable", []model{
			{ID: "off", Enabled: &no, Routes: []route{{Formats: []string{"chat"}}}},
			{ID: "closed", Public: &no, Routes: []route{{Formats: []string{"chat"}}}},
			{ID: "no route", Routes: []route{{Enabled: &no, Formats: []string{"chat"}}}},
			{ID: "picture", Routes: []route{{Formats: []string{"images"}}}},
			{ID: "r", Routes: []route{{Formats: []string{"responses"}}}},
		}, "r", "responses"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			id, format := catalog{Models: tt.models}.example()
			if id != tt.id || format != tt.formats {
				t.Errorf("got %q in %q; want %q in %q", id, format, tt.id, tt.formats)
			}
		})
	}
}

func TestCurlCommandsContainValidJSON(t *testing.T) {
	t.Parallel()
	for format := range requests {
		for _, stream := range []bool{false, true} {
			line := curl("http://127.0.0.1:1", "mgw_key", "demo", format, stream)
			_, rest, _ := strings.Cut(line, "-d '")
			var body struct {
				Model  string `json:"model"`
				Stream bool   `json:"stream"`
			}
			if err := json.Unmarshal([]byte(strings.TrimSuffix(rest, "'")), &body); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if body.Model != "demo" || body.Stream != stream {
				t.Errorf("%s: got %+v", line, body)
			}
		}
	}
}
