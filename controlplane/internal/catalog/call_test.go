package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

func TestDryRunNamesTheAddressesThatWillBeCalled(t *testing.T) {
	t.Parallel()
	read := func(text string) *target {
		t.Helper()
		got, err := parse(t, text).target()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := read(`
currency: USD
providers: [{id: p, base_url: "https://p.example"}, {id: q, base_url: "https://q.example"}]
models:
  - {id: m, type: text, price: {input: 1, output: 1}, routes: [
      {id: kept, provider: q, upstream_model: u, formats: [chat]}, {id: moved, provider: p, upstream_model: u, formats: [chat, messages]},
      {id: own, provider: p, upstream_model: u, formats: [chat], addresses: {chat: {path: /own}}}, {id: gone, provider: p, upstream_model: u, formats: [chat]}]}
`)
	after := read(`
currency: USD
providers: [{id: p, base_url: "https://p.example", addresses: {chat: {path: /v4/chat, stream_path: "/v4/{model}:stream"}}}, {id: q, base_url: "https://q.example"}]
models:
  - {id: m, type: text, price: {input: 1, output: 1}, routes: [
      {id: kept, provider: q, upstream_model: u, formats: [chat]}, {id: moved, provider: p, upstream_model: u, formats: [chat, messages]},
      {id: own, provider: p, upstream_model: u2, formats: [chat], addresses: {chat: {path: "/own/{model}"}}}, {id: new, provider: q, upstream_model: u, formats: [messages]}]}
`)
	state := &State{Settings: before.settings, Providers: map[string]Provider{}, Models: map[string]Model{}}
	for id := range before.providers {
		state.Providers[id] = Provider{Spec: before.providers[id].spec}
	}
	for id := range before.models {
		m := before.models[id]
		state.Models[id] = Model{Spec: m.spec, Sheet: m.sheet, Routes: m.routes}
	}
	plan, err := NewService(Config{}).plan(state, after)
	if err != nil {
		t.Fatal(err)
	}
	calls(state, after, plan.Changes)
	got := map[string][]Call{}
	for _, c := range plan.Changes {
		if c.Calls != nil {
			got[c.Kind+" "+c.ID] = c.Calls
		}
	}
	const old = "https://p.example/v1/chat/completions"
	want := map[string][]Call{
		"provider p": {
			{Route: "moved", Format: catalogkv.Chat, Before: old, After: "https://p.example/v4/chat"},
			{Route: "moved", Format: catalogkv.Chat, Stream: true, After: "https://p.example/v4/u:stream"},
		},
		"route own": {{Route: "own", Format: catalogkv.Chat, Before: "https://p.example/own", After: "https://p.example/own/u2"}},
		"route new": {{Route: "new", Format: catalogkv.Messages, After: "https://q.example/v1/messages"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
