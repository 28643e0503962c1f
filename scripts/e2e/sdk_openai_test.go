package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	openairesponses "github.com/openai/openai-go/v3/responses"

	"modelgateway/scripts/e2e/rig"
)

// openaiClient returns the official Go client for a proxy, with the key of the account.
func (a *api) openaiClient(proxy int, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(a.Proxies[proxy] + "/v1"), option.WithAPIKey(a.account.Key), option.WithMaxRetries(0),
	}, more...)...)
}

func chatParams(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
}

// weatherTool is a function that the model is told to call.
var weatherSchema = map[string]any{
	"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []any{"city"},
}

func TestOpenAISDKChat(t *testing.T) {
	a := newAPI(t)
	for proxy := range a.Proxies {
		client := a.openaiClient(proxy)
		whole, err := client.Chat.Completions.New(t.Context(), chatParams("demo-chat"))
		if err != nil {
			t.Fatal(err)
		}
		if whole.Model != "demo-chat" || whole.Usage.CompletionTokens == 0 || whole.Choices[0].FinishReason != "stop" {
			t.Errorf("got %s", whole.RawJSON())
		}
		for _, usage := range []bool{false, true} {
			params := chatParams("demo-chat")
			if usage {
				params.StreamOptions.IncludeUsage = openai.Bool(true)
			}
			stream := client.Chat.Completions.NewStreaming(t.Context(), params)
			var sum openai.ChatCompletionAccumulator
			for stream.Next() {
				chunk := stream.Current()
				if !sum.AddChunk(chunk) {
					t.Errorf("a chunk does not fit: %s", chunk.RawJSON())
				}
				if !usage && chunk.JSON.Usage.Valid() {
					t.Errorf("usage that was not asked for: %s", chunk.RawJSON())
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			if sum.Choices[0].Message.Content != whole.Choices[0].Message.Content || sum.Model != "demo-chat" {
				t.Errorf("the stream adds up to %+v; want the text of %s", sum.ChatCompletion, whole.RawJSON())
			}
			if usage && sum.Usage.CompletionTokens != whole.Usage.CompletionTokens {
				t.Errorf("the stream reports %+v; want %+v", sum.Usage, whole.Usage)
			}
		}
	}
}

func TestOpenAISDKToolCalls(t *testing.T) {
	a := newAPI(t)
	client := a.openaiClient(0)
	params := chatParams("demo-chat")
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather", Parameters: weatherSchema,
	})}
	params.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"})
	whole, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	calls := whole.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "weather" || !json.Valid([]byte(calls[0].Function.Arguments)) {
		t.Fatalf("got %s; want a call of weather", whole.RawJSON())
	}
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var sum openai.ChatCompletionAccumulator
	for stream.Next() {
		sum.AddChunk(stream.Current())
	}
	streamed := sum.Choices[0].Message.ToolCalls
	if stream.Err() != nil || len(streamed) != 1 || streamed[0].Function.Name != "weather" || streamed[0].Function.Arguments != calls[0].Function.Arguments {
		t.Errorf("the stream adds up to %+v, %v; want the same call", streamed, stream.Err())
	}
	// The result of the tool is sent with the whole conversation.
	params.Messages = append(params.Messages, whole.Choices[0].Message.ToParam(), openai.ToolMessage("sunny", calls[0].ID))
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
	if _, err := client.Chat.Completions.New(t.Context(), params); err != nil {
		t.Errorf("with the tool's answer: %v", err)
	}
}

func TestOpenAISDKResponses(t *testing.T) {
	a := newAPI(t)
	client := a.openaiClient(1)
	params := openairesponses.ResponseNewParams{
		Model: "demo-responses", Input: openairesponses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}, Instructions: openai.String("Be brief."),
	}
	whole, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if whole.OutputText() == "" || whole.Model != "demo-responses" || whole.Status != "completed" || whole.Usage.OutputTokens == 0 {
		t.Errorf("got %s", whole.RawJSON())
	}
	text, final := a.streamResponse(t, client, params)
	if text != whole.OutputText() || final.OutputText() != text || final.Model != "demo-responses" || final.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("the stream said %q and ended with %s", text, final.RawJSON())
	}

	params.Tools = []openairesponses.ToolUnionParam{openairesponses.ToolParamOfFunction("weather", weatherSchema, true)}
	params.ToolChoice = openairesponses.ResponseNewParamsToolChoiceUnion{OfFunctionTool: &openairesponses.ToolChoiceFunctionParam{Name: "weather"}}
	called, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	_, streamed := a.streamResponse(t, client, params)
	for _, r := range []openairesponses.Response{*called, streamed} {
		if len(r.Output) != 1 || r.Output[0].Type != "function_call" || r.Output[0].Name != "weather" {
			t.Errorf("got %s; want a call of weather", r.RawJSON())
		}
	}
}

// streamResponse reads a stream and returns the text and the final response.
func (a *api) streamResponse(t *testing.T, client openai.Client, params openairesponses.ResponseNewParams) (text string, final openairesponses.Response) {
	t.Helper()
	stream := client.Responses.NewStreaming(t.Context(), params)
	next := int64(0)
	for stream.Next() {
		event := stream.Current()
		if event.SequenceNumber != next {
			t.Errorf("%s has the number %d; want %d", event.Type, event.SequenceNumber, next)
		}
		next++
		switch e := event.AsAny().(type) {
		case openairesponses.ResponseTextDeltaEvent:
			text += e.Delta
		case openairesponses.ResponseCompletedEvent:
			final = e.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return text, final
}

func TestOpenAISDKImages(t *testing.T) {
	a := newAPI(t)
	client := a.openaiClient(0)
	got, err := client.Images.Generate(t.Context(), openai.ImageGenerateParams{Model: "demo-image", Prompt: "a boat", N: openai.Int(2)})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || got.Data[0].B64JSON == "" && got.Data[0].URL == "" {
		t.Errorf("got %s; want two pictures", got.RawJSON())
	}
}

func TestOpenAISDKVideos(t *testing.T) {
	a := newAPI(t)
	client := a.openaiClient(0)
	params := openai.VideoNewParams{
		Model: "demo-video", Prompt: "a boat", Seconds: openai.VideoSeconds8, Size: openai.VideoSize1280x720,
		InputReference: openai.VideoNewParamsInputReferenceUnion{OfFile: io.NopCloser(strings.NewReader("\x89PNG"))},
	}
	made, err := client.Videos.NewAndPoll(t.Context(), params, 10) // it asks every 10 ms
	if err != nil {
		t.Fatal(err)
	}
	if made.Status != openai.VideoStatusCompleted || made.Seconds != "8" || made.Model != "demo-video" {
		t.Errorf("got %s; want 8 seconds, completed", made.RawJSON())
	}
	response, err := client.Videos.DownloadContent(t.Context(), made.ID, openai.VideoDownloadContentParams{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if content, err := io.ReadAll(response.Body); err != nil || len(content) != 64<<10 {
		t.Errorf("the content has %d bytes, %v; want 64 KiB", len(content), err)
	}
	usage := a.account.AwaitUsage(t, 1)
	if usage[0].Cost != "1.60" { // 8 seconds of 1280x720 at 0.20
		t.Errorf("the video cost %s; want 1.60", usage[0].Cost)
	}
}

func TestOpenAISDKModels(t *testing.T) {
	a := newAPI(t)
	client := a.openaiClient(0)
	page, err := client.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page.Data {
		if m.ID == "demo-chat" && m.Object == "model" && m.Created > 0 {
			return
		}
	}
	t.Errorf("demo-chat is not listed as a model: %s", page.RawJSON())
}

func TestOpenAISDKErrors(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Directives: "status=429,retry_after=3"}, rig.Model{Directives: "error=5"}, rig.Model{Directives: "cut=5"})
	limited, failing, cut := models[0], models[1], models[2]
	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	for _, tt := range []struct {
		name, key, model string
		status           int
		code             string
	}{
		{"unknown key", "mgw_no", "demo-chat", 401, "invalid_api_key"},
		{"no money", poor.Key, "demo-chat", 402, "insufficient_quota"},
		{"unknown model", a.account.Key, "no-such-model", 404, "model_not_found"},
		{"provider's limit", a.account.Key, limited, 429, "rate_limit_exceeded"},
	} {
		client := a.openaiClient(0, option.WithAPIKey(tt.key))
		_, err := client.Chat.Completions.New(t.Context(), chatParams(tt.model))
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != tt.status || refused.Code != tt.code || refused.Message == "" {
			t.Errorf("%s: got %v; want %d %s", tt.name, err, tt.status, tt.code)
		}
	}
	for _, model := range []string{failing, cut} {
		client := a.openaiClient(0)
		stream := client.Chat.Completions.NewStreaming(t.Context(), chatParams(model))
		chunks := 0
		for stream.Next() {
			chunks++
		}
		if stream.Err() == nil || !strings.Contains(stream.Err().Error(), "upstream_unavailable") || chunks == 0 {
			t.Errorf("a stream that fails: got %d chunks and %v; want some, and the reason", chunks, stream.Err())
		}
	}
}

// The SDK does not retry an error that a retry cannot cure, and retries one that it can.
func TestOpenAISDKRetries(t *testing.T) {
	a := newAPI(t)
	calls := 0
	count := option.WithMiddleware(func(q *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		calls++
		return next(q)
	})
	client := a.openaiClient(0, option.WithMaxRetries(2), count)
	if _, err := client.Chat.Completions.New(t.Context(), chatParams("no-such-model")); err == nil || calls != 1 {
		t.Errorf("a model that does not exist: asked %d times, %v; want once", calls, err)
	}
	model := a.Model(t, rig.Model{})
	a.Sim.Once(t, model, "status=400,code=odd,message=Busy%20now.%20Please%20try%20again%20in%201s.,type=rate_limit_error")
	calls = 0
	if _, err := client.Chat.Completions.New(t.Context(), chatParams(model)); err != nil || calls < 2 {
		t.Errorf("after a rate limit: asked %d times, %v; want an answer", calls, err)
	}
}
