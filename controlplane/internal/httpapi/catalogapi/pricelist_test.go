package catalogapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// propose sends a body to proposePriceList.
func (b *server) propose(body string) *servertest.Answer[adminclient.PriceListProposal] {
	b.T.Helper()
	r, err := servertest.Answered(b.API.ProposePriceList(b.T.Context(), adminclient.PriceListProposalCreate{}, adminclient.WithBody("application/json", []byte(body))))
	servertest.Check(b.T, err)
	return r
}

const smallPrices = `{
	"demo-chat": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1.000000001e-06, "output_cost_per_token": 5e-06},
	"other": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06},
	"voice": {"litellm_provider": "openai", "mode": "audio_speech"}
}`

// The document of a proposal, applied with its tag, changes exactly the prices that the proposal names.
func TestPriceListProposalCanBeApplied(t *testing.T) {
	t.Parallel()
	b := start(t)
	before := b.Apply(servertest.DemoCatalog)
	r := b.propose(`{"prices": ` + smallPrices + `, "markup": "200%"}`)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("propose: %s", r.Body)
	}
	p := r.Value
	var statuses []string
	for _, m := range p.Models {
		statuses = append(statuses, m.Model+" "+string(m.Status))
	}
	if diff := cmp.Diff([]string{"demo-chat changed", "demo/image absent"}, statuses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m := p.Models[0]; *m.Before.Input != "1.00" || *m.After.Input != "3.000000003" || *m.After.CachedInput != "0.10" || len(m.After.Tiers) != 1 || len(m.Warnings) == 0 {
		t.Errorf("the proposal for a model: %s", r.Body)
	}
	if p.UnknownCount != 1 || p.Unknown[0].Entry != "other" || p.OmittedCount != 1 || p.Omitted[0].Entry != "voice" {
		t.Errorf("unknown and omitted: %s", r.Body)
	}
	if strings.Contains(string(r.Body), "sk-of-the-provider") {
		t.Error("the proposal shows a secret")
	}
	var sent struct {
		Document json.RawMessage `json:"document"`
	}
	servertest.Check(t, json.Unmarshal(r.Body, &sent))
	apply := func() *servertest.Answer[adminclient.CatalogChanges] {
		params := &adminclient.ApplyCatalogParams{IfMatch: new(r.Header.Get("ETag"))}
		done, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), params, adminclient.CatalogDocument{}, adminclient.WithBody("application/json", sent.Document)))
		servertest.Check(t, err)
		return done
	}
	done := apply()
	if done.StatusCode != http.StatusOK || len(done.Value.Changes) != 1 || done.Value.Changes[0].Kind != "price" || done.Value.Revision <= before.Revision {
		t.Errorf("applied: %s; want one price", done.Body)
	}
	servertest.Problem(t, apply().Problem, http.StatusPreconditionFailed, "precondition_failed")
}

func TestInvalidPriceListsAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	for body, field := range map[string]string{
		`{"prices": {"a": 1}}`:           "prices",
		`{"prices": []}`:                 "prices",
		`{"prices": null}`:               "prices",
		`{}`:                             "prices",
		`{"prices": {"a": {}, "a": {}}}`: "prices",
		`{"prices": ` + strings.Repeat("[", 20000) + `}`: "",
		`{"prices": {`:                                                       "",
		`{"prices": {}, "markup": "1e99"}`:                                   "markup",
		`{"prices": {}, "markup": "-200%"}`:                                  "markup",
		`{"prices": {}, "markup": "1/0"}`:                                    "markup",
		`{"prices": {}, "models": ["["]}`:                                    "models[0]",
		`{"prices": {}, "providers": ["nobody"]}`:                            "providers[0]",
		`{"prices": {}, "currency": "EUR"}`:                                  "currency",
		`{"prices": {}, "colour": "red"}`:                                    "colour",
		`{"prices": {}, "models": [` + strings.Repeat(`"a",`, 100) + `"a"]}`: "models",
	} {
		r := b.propose(body)
		if r.Problem == nil {
			t.Fatalf("%.60s is accepted: %s", body, r.Body)
		}
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
		if e := r.Problem.Errors; len(e) == 0 || !strings.HasPrefix(e[0].Field, field) {
			t.Errorf("%.60s: got %s; want an error of %q", body, r.Body, field)
		}
	}
	servertest.Problem(t, b.propose(`{"prices": {"a": "`+strings.Repeat("x", 8<<20)+`"}}`).Problem, http.StatusRequestEntityTooLarge, "body_too_large")
}
