package e2e

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"modelgateway/scripts/e2e/rig"
)

// anthropicClient returns the official Go client for a proxy; key is the option that sets the
// key.
func (a *api) anthropicClient(proxy int, key option.RequestOption) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(a.Proxies[proxy]), key, option.WithMaxRetries(0))
}

func messageParams(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
	}
}

func TestAnthropicSDKMessages(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Directives: "out=9"}, rig.Model{Directives: "out=9,reasoning=5,keepalive"}, rig.Model{Directives: "out=9,cached=1"})
	tool := messageParams(models[0])
	tool.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Required: []string{"city"}}, "weather")}
	tool.ToolChoice = anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}}
	for proxy, key := range []option.RequestOption{option.WithAPIKey(a.account.Key), option.WithAuthToken(a.account.Key)} {
		client := a.anthropicClient(proxy, key)
		for _, params := range []anthropic.MessageNewParams{messageParams(models[0]), messageParams(models[1]), messageParams(models[2]), tool} {
			want, err := client.Messages.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if want.Model != params.Model || want.Usage.OutputTokens == 0 {
				t.Errorf("got %s", want.RawJSON())
			}
			stream := client.Messages.NewStreaming(t.Context(), params)
			var got anthropic.Message
			for stream.Next() {
				if err := got.Accumulate(stream.Current()); err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			compareMessages(t, &got, want)
		}
	}
}

func compareMessages(t *testing.T, got, want *anthropic.Message) {
	t.Helper()
	if got.Model != want.Model || got.StopReason != want.StopReason || got.Usage.OutputTokens != want.Usage.OutputTokens || len(got.Content) != len(want.Content) {
		t.Fatalf("the stream adds up to %+v; want %+v", got, want)
	}
	for i := range want.Content {
		w, g := want.Content[i], got.Content[i]
		if g.Type != w.Type || g.Text != w.Text || g.Thinking != w.Thinking || g.Signature != w.Signature || !bytes.Equal(g.Input, w.Input) {
			t.Errorf("block %d is %+v; want %+v", i, g, w)
		}
	}
}

func TestAnthropicSDKModels(t *testing.T) {
	a := newAPI(t)
	client := a.anthropicClient(0, option.WithAPIKey(a.account.Key))
	page, err := client.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page.Data {
		if m.ID == "demo-messages" && m.DisplayName == "Demo Messages" && !m.CreatedAt.IsZero() {
			return
		}
	}
	t.Errorf("demo-messages is not listed with its name: %s", page.RawJSON())
}

func TestAnthropicSDKErrors(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Directives: "status=529"}, rig.Model{Directives: "error=5"})
	for _, tt := range []struct {
		key, model string
		status     int
		kind       string
	}{
		{"mgw_no", "demo-messages", 401, "authentication_error"},
		{a.Account(t, rig.AccountSpec{Credit: "0"}).Key, "demo-messages", 402, "billing_error"},
		{a.account.Key, "no-such-model", 404, "not_found_error"},
		{a.account.Key, models[0], 429, "rate_limit_error"},
	} {
		client := a.anthropicClient(0, option.WithAPIKey(tt.key))
		_, err := client.Messages.New(t.Context(), messageParams(tt.model))
		var refused *anthropic.Error
		if !errors.As(err, &refused) || refused.StatusCode != tt.status || string(refused.Type()) != tt.kind || !strings.HasPrefix(refused.RequestID, "req_") {
			t.Errorf("got %v; want %d %s with an id", err, tt.status, tt.kind)
		}
	}
	client := a.anthropicClient(0, option.WithAPIKey(a.account.Key))
	stream := client.Messages.NewStreaming(t.Context(), messageParams(models[1]))
	events := 0
	for stream.Next() {
		events++
	}
	if stream.Err() == nil || events == 0 {
		t.Errorf("a stream that fails: got %d events and %v; want some, and the reason", events, stream.Err())
	}
}
