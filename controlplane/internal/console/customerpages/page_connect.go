package customerpages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// connector serves the page that connects clients.
type connector struct {
	// address is where customers reach the gateway, without a path; empty if it is not configured.
	address string
	client  *http.Client
}

func newConnector(address string) *connector {
	return &connector{strings.TrimRight(address, "/"), &http.Client{
		Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// choices is how many accounts and keys can be chosen on the page; others by their ids.
const choices = 100

type connectView struct {
	// Address is empty if it is not configured, and the examples have a place for it.
	Address  string
	Accounts []adminclient.Account
	Keys     []adminclient.Key
	Models   []adminclient.CatalogModel
	// Account, Key and Model are those that were chosen, or nil.
	Account *adminclient.Account
	Key     *adminclient.Key
	Model   *adminclient.CatalogModel
	Formats []adminclient.CatalogRouteFormats
	// Refused are the reasons for which a request of the key would be refused.
	Refused  []string
	Snippets []snippet
	// Hint stands for the secret of the key.
	Hint string
	// Try reports whether the page offers to send a request with the key.
	Try bool
}

// show shows what a client of a key needs.
func (c *connector) show(r *kit.Request) (*kit.Page, error) {
	v := &connectView{Address: c.address}
	for _, choose := range []func(*kit.Request, *connectView) error{chooseKey, chooseAccount, chooseModel} {
		if err := choose(r, v); err != nil {
			return nil, err
		}
	}

	model := ""
	if v.Model != nil {
		model, v.Formats = v.Model.ID, formatsOf(v.Model)
	}

	v.Refused, v.Hint = refusalsOf(v), "…"
	if v.Key != nil {
		v.Hint += v.Key.Hint
	}

	v.Snippets = snippets(c.address, model, v.Formats)
	v.Try = c.address != "" && mayTry(v.Key) && r.May(kit.KeysReveal) && len(v.Refused) == 0 && trialOf(v.Model) != nil
	return &kit.Page{
		Template: "connect",
		Title:    "Connect",
		Data:     v,
		Command:  "gwctl models list\n" + kit.Command("keys list", "--account-id", r.Text("account_id")),
	}, nil
}

func chooseKey(r *kit.Request, v *connectView) error {
	id := r.Text("key_id")
	if id == "" {
		return nil
	}
	answer, err := r.API.GetKey(r.Context(), id)
	if err != nil {
		return err
	}
	// A key of another account was chosen before the account.
	if account := r.Text("account_id"); account == "" || account == answer.Value.AccountID {
		v.Key = answer.Value
	}
	return nil
}

func chooseAccount(r *kit.Request, v *connectView) error {
	sort := adminclient.AccountSortCost7D
	all, err := r.API.ListAccounts(r.Context(), &adminclient.ListAccountsParams{Sort: &sort, Limit: new(choices)})
	if err != nil {
		return err
	}

	v.Accounts = all.Value.Data
	id := r.Text("account_id")
	if v.Key != nil {
		id = v.Key.AccountID
	}
	if id == "" {
		return nil
	}

	chosen, err := r.API.GetAccount(r.Context(), id)
	if err != nil {
		return err
	}

	v.Account = chosen.Value
	if !slices.ContainsFunc(v.Accounts, func(a adminclient.Account) bool { return a.ID == id }) {
		v.Accounts = append(v.Accounts, *chosen.Value)
	}

	keys, err := r.API.ListKeys(r.Context(), id, &adminclient.ListKeysParams{Limit: new(choices)})
	if err != nil {
		return err
	}

	v.Keys = slices.DeleteFunc(keys.Value.Data, func(k adminclient.Key) bool { return k.Status != adminclient.KeyStatusActive })
	if v.Key == nil && len(v.Keys) == 1 {
		v.Key = &v.Keys[0]
	}
	if v.Key != nil && !slices.ContainsFunc(v.Keys, func(k adminclient.Key) bool { return k.ID == v.Key.ID }) {
		v.Keys = append(v.Keys, *v.Key)
	}

	return nil
}

// chooseModel offers the models that the account may use, and chooses the first one for text.
func chooseModel(r *kit.Request, v *connectView) error {
	all, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(maxModels)})
	if err != nil {
		return err
	}

	var granted []string
	if v.Account != nil {
		answer, err := r.API.ListGrants(r.Context(), v.Account.ID)
		if err != nil {
			return err
		}
		granted = answer.Value.Models
	}

	v.Models = slices.DeleteFunc(all.Value.Data, func(m adminclient.CatalogModel) bool {
		return m.Enabled != nil && !*m.Enabled || m.Public != nil && !*m.Public && !slices.Contains(granted, m.ID)
	})

	wanted := r.Text("model")
	for i := range v.Models {
		m := &v.Models[i]
		if m.ID == wanted || v.Model == nil && wanted == "" && m.Type == adminclient.CatalogModelTypeText {
			v.Model = m
		}
	}

	return nil
}

func refusalsOf(v *connectView) []string {
	var found []string
	if k := v.Key; k != nil {
		if k.Status != adminclient.KeyStatusActive {
			found = append(found, "The key is "+string(k.Status)+": requests are refused with 401.")
		}
		if k.SpendLimit != nil && view.Compare(view.Add(k.Spent, k.Reserved), *k.SpendLimit) >= 0 {
			found = append(found, "The key has reached its spend limit: requests are refused with 403.")
		}
	}

	if a := v.Account; a != nil {
		if a.Status != adminclient.AccountStatusActive {
			found = append(found, "The account is suspended: requests are refused with 401.")
		}
		if view.Compare(a.Balance.Balance, "0") <= 0 {
			found = append(found, "The account has no money: requests are refused with 402.")
		}
	}

	return found
}

// demoKey is the name of keys that the console may try.
const demoKey = "demo"

func mayTry(k *adminclient.Key) bool {
	return k != nil && k.Name == demoKey && k.Revealable && k.Status == adminclient.KeyStatusActive
}

// trial is a short request.
type trial struct {
	path string
	body map[string]any
}

// trialOf returns a short request to a model; nil if the console has none for its formats.
func trialOf(m *adminclient.CatalogModel) *trial {
	if m == nil {
		return nil
	}
	said := []map[string]string{{"role": "user", "content": "Say hello."}}
	switch formats := formatsOf(m); {
	case slices.Contains(formats, chat):
		return &trial{"/v1/chat/completions", map[string]any{"model": m.ID, "messages": said, "max_tokens": 100}}
	case slices.Contains(formats, messages):
		return &trial{"/v1/messages", map[string]any{"model": m.ID, "messages": said, "max_tokens": 100}}
	case slices.Contains(formats, responses):
		return &trial{"/v1/responses", map[string]any{"model": m.ID, "input": "Say hello.", "max_output_tokens": 100}}
	}
	return nil
}

// try is the form that sends a request with a demo key.
func (c *connector) try(r *kit.Request) (*kit.Form, error) {
	k, a, _, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	if !mayTry(k) || c.address == "" {
		return nil, kit.NotFound()
	}

	back := "/console/connect?" + kit.Query("key_id", k.ID, "model", r.Text("model"))
	return &kit.Form{
		Title:   "Try the key " + k.Name + " of " + a.Name,
		Crumbs:  []kit.Link{{Text: "Connect", URL: back}},
		Submit:  "Send a request",
		Back:    back,
		Fresh:   true,
		Command: "gwctl keys reveal " + k.ID,
		Fields:  []kit.Field{{Name: "model", Label: "Model", Required: true, Mono: true, Value: r.Text("model")}},
		Effects: []string{
			"The control plane sends one short request to " + c.address + " with the key, as curl would. " + a.Name + " pays for it.",
			"That the secret of the key was read is written to the audit log.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			model, err := r.API.GetModel(r.Context(), in.Text("model"))
			if adminclient.Code(err) == "not_found" {
				return nil, kit.Invalid("model", "does not exist")
			}
			if err != nil {
				return nil, err
			}

			request := trialOf(model.Value)
			if request == nil {
				return nil, kit.Invalid("model", "has no route for text")
			}

			secret, err := r.API.RevealKey(r.Context(), k.ID)
			if err != nil {
				return nil, err
			}

			return &kit.Page{
				Template: "connect_tried",
				Title:    "Tried " + model.Value.ID,
				Crumbs:   []kit.Link{{Text: "Connect", URL: back}},
				Command:  "gwctl keys reveal " + k.ID,
				Data:     &triedView{k.ID, back, c.send(r.Context(), request, secret.Value.Secret)},
			}, nil
		},
	}, nil
}

type triedView struct {
	KeyID, Back string
	*answer
}

// StatusCode is the status for its badge.
func (v *triedView) StatusCode() *int { return &v.Status }

// answer is what the gateway answered. Problem is set if it did not.
type answer struct {
	Path, RequestID, Body, Problem string
	Status                         int
	Took                           int64
}

// maxAnswer bounds the shown part of an answer, in bytes.
const maxAnswer = 16 << 10

// send makes a request with a key.
func (c *connector) send(ctx context.Context, request *trial, secret string) *answer {
	shown := &answer{Path: request.path}
	body, err := json.Marshal(request.body)
	if err != nil {
		shown.Problem = err.Error()
		return shown
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address+request.path, bytes.NewReader(body))
	if err != nil {
		shown.Problem = err.Error()
		return shown
	}

	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+secret)
	start := time.Now()
	response, err := c.client.Do(r)
	if err != nil {
		shown.Problem = fmt.Sprintf("The control plane does not reach %s: %v", c.address, errors.Unwrap(err))
		return shown
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		shown.Problem = "The answer ended early: " + err.Error()
	}

	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") == nil {
		text = pretty.Bytes()
	}

	shown.Status, shown.RequestID = response.StatusCode, response.Header.Get("X-Request-Id")
	shown.Took, shown.Body = time.Since(start).Milliseconds(), string(text)
	return shown
}
