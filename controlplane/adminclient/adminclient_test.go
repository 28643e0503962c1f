package adminclient_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
)

func TestClient(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer the token" {
			t.Errorf("authorization %q", got)
		}
		if got := r.URL.EscapedPath(); got != "/admin/v1/accounts/acc_1/models/a%2Fb" {
			t.Errorf("path %q", got)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"type":"/problems/invalid_input","title":"The request is not valid","status":400,
			"errors":[{"field":"name","detail":"is missing"},{"field":"a.b","detail":"is odd"}]}`))
	}))
	defer server.Close()
	c, err := adminclient.New(server.URL, "the token")
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.GrantModelWithResponse(t.Context(), "acc_1", "a/b", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := r.ApplicationProblemJSONDefault
	if want := "The request is not valid (400): name is missing; a.b is odd"; p == nil || p.Error() != want {
		t.Errorf("got %v; want %s", p, want)
	}
	if !p.Kind("invalid_input") || p.Kind("input") {
		t.Errorf("kind of %s", p.Type)
	}
}

func TestOptional(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		patch adminclient.KeyPatch
		want  string
	}{
		{adminclient.KeyPatch{}, `{}`},
		{adminclient.KeyPatch{SpendLimit: optional.Null[string]()}, `{"spend_limit":null}`},
		{adminclient.KeyPatch{SpendLimit: optional.Of("5.00")}, `{"spend_limit":"5.00"}`},
	} {
		text, err := json.Marshal(test.patch)
		if err != nil || string(text) != test.want {
			t.Errorf("got %s, %v; want %s", text, err, test.want)
		}
		var back adminclient.KeyPatch
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.patch, back, cmp.AllowUnexported(optional.Value[string]{})); diff != "" {
			t.Errorf("%s read back (-want +got):\n%s", test.want, diff)
		}
	}
}
