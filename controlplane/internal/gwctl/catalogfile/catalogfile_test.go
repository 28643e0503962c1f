package catalogfile_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/gwctl/catalogfile"
	"modelgateway/controlplane/internal/strict"
)

func env(name string) string {
	return map[string]string{"KEY": `sk-"1": #x`, "OTHER": "true"}[name]
}

func TestVariablesInSecretsAreExpanded(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"yaml": "currency: USD\nproviders:\n  - id: a\n    base_url: https://a # ${KEY} in a comment\n    credentials: [{name: one, secret: \"${KEY}\"}, {name: two, secret: '${OTHER}'}, {name: three, kind: oauth, parameters: {client_secret: '${OTHER}'}}]\nmodels: [{id: m, type: text, price: {input: 1.00, output: 2.00}}]\n",
		"json": `{"currency":"USD","providers":[{"id":"a","base_url":"https://a","credentials":[{"name":"one","secret":"${KEY}"},{"name":"two","secret":"${OTHER}"},{"name":"three","kind":"oauth","parameters":{"client_secret":"${OTHER}"}}]}],"models":[{"id":"m","type":"text","price":{"input":"1.00","output":"2.00"}}]}`,
	} {
		text, err := catalogfile.Expand([]byte(doc), env)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got catalog.Document
		if err := strict.YAML(text, &got); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		want := []catalog.CredentialEntry{{Name: "one", Secret: `sk-"1": #x`}, {Name: "two", Secret: "true"}, {Name: "three", Kind: "oauth", Parameters: map[string]string{"client_secret": "true"}}}
		if diff := cmp.Diff(want, got.Providers[0].Credentials); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if rate, _ := got.Models[0].Price.Input.MarshalText(); string(rate) != "1.00" {
			t.Errorf("%s: price %s", name, rate)
		}
	}
}

func TestVariablesInFurtherSecretsAreExpanded(t *testing.T) {
	t.Parallel()
	text, err := catalogfile.Expand([]byte(`
providers:
  - id: a
    credentials: [{name: one, headers: {x-key: "Bearer ${KEY}"}, certificate: "${OTHER}", private_key: "${OTHER}"}]
`), env)
	if err != nil {
		t.Fatal(err)
	}
	var got catalog.Document
	if err := strict.YAML(text, &got); err != nil {
		t.Fatal(err)
	}
	want := catalog.CredentialEntry{Name: "one", Headers: map[string]string{"x-key": `Bearer sk-"1": #x`}, Certificate: "true", PrivateKey: "true"}
	if diff := cmp.Diff(want, got.Providers[0].Credentials[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, refused := range []string{"headers: {x: '${KEY}'}", "credentials: [{name: '${KEY}'}]", "credentials: [{headers: {a: {b: '${KEY}'}}}]"} {
		if _, err := catalogfile.Expand([]byte("providers:\n  - "+refused+"\n"), env); err == nil || !strings.Contains(err.Error(), "only secrets and parameters of credentials may") {
			t.Errorf("%s: got %v", refused, err)
		}
	}
}

func TestJSONMayEscapeCharactersAsSurrogates(t *testing.T) {
	t.Parallel()
	doc := `{"currency":"USD","models":[{"id":"m","type":"text","display_name":"\\\ud83d\ude80 \u00e9 \\ud83d","price":{"input":"1.00","output":"2.00"}}]}`
	text, err := catalogfile.Expand([]byte(doc), env)
	if err != nil {
		t.Fatal(err)
	}
	var got catalog.Document
	if err := strict.YAML(text, &got); err != nil {
		t.Fatal(err)
	}
	if want := "\\🚀 é \\ud83d"; got.Models[0].DisplayName != want {
		t.Errorf("got %q; want %q", got.Models[0].DisplayName, want)
	}
}

func TestAllErrorsOfVariablesAreReported(t *testing.T) {
	t.Parallel()
	_, err := catalogfile.Expand([]byte("providers:\n- base_url: ${KEY}\n  credentials: [{secret: '${MISSING}'}, {secret: '${GONE}-${KEY}'}]\n"), env)
	want := "line 2: providers[].base_url contains a variable; only secrets and parameters of credentials may\nline 3: the variable MISSING is not set\nline 3: the variable GONE is not set"
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if strings.Contains(err.Error(), "sk-") {
		t.Error("the error shows a secret")
	}
	if _, err := catalogfile.Expand([]byte("a: ["), env); err == nil {
		t.Error("no error for text that is not YAML")
	}
}

func TestChangesAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	var changes catalogfile.Changes
	err := json.Unmarshal([]byte(`{"dry_run":true,"revision":7,"changes":[
		{"action":"update","kind":"price","id":"m","before":{"input":"1.00","output":"2.00","cached_input":"0.5","tiers":[{"above_input":200000,"input":"2.00"}]},
		 "after":{"input":"1.10","output":"1.00","audio_in":"3","tiers":[{"above_input":100000,"input":"1.50"},{"above_input":200000,"input":"2.00"}]},
		 "reach":{"models":["m"],"public":true,"granted_accounts":0,"active_accounts":1}},
		{"action":"create","kind":"route","id":"rte_1","after":{"provider":"p","formats":["chat","responses"]},"reach":{"models":["m"],"public":false,"granted_accounts":2,"active_accounts":0},
		 "calls":[{"route":"rte_1","format":"chat","stream":false,"after":"https://p/chat"},{"route":"rte_1","format":"chat","stream":true,"after":"https://p/stream"}]},
		{"action":"update","kind":"provider","id":"p","calls":[{"route":"rte_2","format":"chat","stream":false,"before":"https://p/v1","after":"https://p/v4"}]},
		{"action":"remove","kind":"model","id":"old","before":{"id":"old","type":"text"},"reach":{"models":["old","m"],"public":false,"granted_accounts":1,"active_accounts":3}},
		{"action":"update","kind":"grant","id":"acc_1","before":["a"],"after":["a","b"]},
		{"action":"update","kind":"credential","id":"p/main"}],
		"accounts":[{"account_id":"acc_1","name":"One","models":["m"],"requests":7,"cost":"1.20"}]}`), &changes)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := changes.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `~ price m  (public, 1 account in 30 days)
    + audio_in: 3
    - cached_input: 0.5
    input: 1.00 → 1.10 (+10.0 %)
    output: 2.00 → 1.00 (-50.0 %)
    + tiers[100000].above_input: 100000
    + tiers[100000].input: 1.50
+ route rte_1  (2 grants, 0 accounts in 30 days)
    formats: [chat, responses]
    provider: p
    calls for chat: https://p/chat
    calls for chat streams: https://p/stream
~ provider p
    calls for chat of route rte_2: https://p/v1 → https://p/v4
- model old  (2 models, 1 grant, 3 accounts in 30 days)
~ grant acc_1
    value: [a] → [a, b]
~ credential p/main

Accounts that used these models in the last 30 days:
  acc_1  "One"  7 requests, 1.20  (m)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out.Reset()
	if err := (&catalogfile.Changes{Revision: 7}).Write(&out); err != nil || out.String() != "No changes: the catalog at revision 7 is the same.\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestLineOfAMember(t *testing.T) {
	t.Parallel()
	const file = `currency: USD
providers:
  - id: p
    headers: {a.b: x}
models:
  - {id: one, price: {input: "1"}}
  - id: two
    price: &usual
      input: "1"
    params: {chat: {top_k: {policy: forward}}}
  - id: three
    price: *usual
`
	for member, want := range map[string]int{
		"currency":                     1,
		"providers[0].headers.a.b":     4,
		"models[0].price.input":        6,
		"models[1]":                    7,
		"models[1].price.input":        9,
		"models[1].params.chat.top_k":  10,
		"models[2].price.input":        9,
		"models[2].routes":             11,
		"models[1].price.output":       8,
		"models[7].price":              5,
		"nothing":                      0,
		"":                             0,
		"models[x":                     5,
		"currency.of.which.is.nothing": 1,
	} {
		if got := catalogfile.Line([]byte(file), member); got != want {
			t.Errorf("%q: line %d; want %d", member, got, want)
		}
	}
	if got := catalogfile.Line([]byte("{\n\"models\": [\n{\"id\": \"\\ud83d\\ude00\"}]}"), "models[0].id"); got != 3 {
		t.Errorf("JSON: line %d; want 3", got)
	}
	if got := catalogfile.Line([]byte("a: [b"), "a"); got != 0 {
		t.Errorf("no YAML: line %d; want 0", got)
	}
}
