// Package sdktest tests the simulator with the public client libraries. It is a package of its
// own, so that the simulator does not depend on them.
package sdktest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"modelgateway/scripts/providersim"
)

func start(t *testing.T) (*providersim.Sim, string) {
	t.Helper()
	sim := providersim.New(providersim.Config{Keys: []string{"k"}})
	srv := httptest.NewServer(sim)
	t.Cleanup(srv.Close)
	t.Cleanup(sim.Close)
	return sim, srv.URL
}

func openaiClient(t *testing.T) openai.Client {
	t.Helper()
	_, url := start(t)
	return openai.NewClient(option.WithAPIKey("k"), option.WithBaseURL(url+"/v1"), option.WithMaxRetries(0))
}

func anthropicClient(t *testing.T) anthropic.Client {
	t.Helper()
	_, url := start(t)
	return anthropic.NewClient(anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL(url), anthropicoption.WithMaxRetries(0))
}

const fourWords = "amber birch cedar delta"

func chatParams(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
	}
}

func TestOpenAIClientChat(t *testing.T) {
	t.Parallel()
	client := openaiClient(t)
	got, err := client.Chat.Completions.New(t.Context(), chatParams("m@out=4"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Message.Content != fourWords || got.Usage.CompletionTokens != 4 {
		t.Errorf("answer %s", got.RawJSON())
	}

	params := chatParams("m@out=4,keepalive")
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Errorf("chunk does not match the previous ones: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if acc.Choices[0].Message.Content != fourWords || acc.Choices[0].FinishReason != "stop" || acc.Usage.CompletionTokens != 4 {
		t.Errorf("stream adds up to %+v", acc.ChatCompletion)
	}
}

func TestOpenAIClientReadsErrors(t *testing.T) {
	t.Parallel()
	client := openaiClient(t)
	_, err := client.Chat.Completions.New(t.Context(), chatParams("m@status=429"))
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusTooManyRequests || refused.Code != "rate_limit_exceeded" {
		t.Errorf("error %v", err)
	}
	stream := client.Chat.Completions.NewStreaming(t.Context(), chatParams("m@error=2"))
	n := 0
	for stream.Next() {
		n++
	}
	if stream.Err() == nil || n != 2 {
		t.Errorf("%d chunks, error %v; want 2 and an error", n, stream.Err())
	}
	stream = client.Chat.Completions.NewStreaming(t.Context(), chatParams("m@cut=3"))
	for stream.Next() {
		n++
	}
	if !errors.Is(stream.Err(), io.ErrUnexpectedEOF) {
		t.Errorf("cut stream: %v", stream.Err())
	}
}

func TestOpenAIClientResponses(t *testing.T) {
	t.Parallel()
	client := openaiClient(t)
	params := responses.ResponseNewParams{
		Model: "m@out=4,reasoning=2",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")},
	}
	got, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if got.OutputText() != fourWords || got.Usage.OutputTokens != 6 || got.Usage.OutputTokensDetails.ReasoningTokens != 2 {
		t.Errorf("answer %s", got.RawJSON())
	}
	stream := client.Responses.NewStreaming(t.Context(), params)
	var text string
	var final responses.Response
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseCompletedEvent:
			final = e.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text != fourWords || final.OutputText() != fourWords || final.Usage.TotalTokens != 7 {
		t.Errorf("stream said %q and ended with %s", text, final.RawJSON())
	}
	params.Model = "m@error=4"
	stream = client.Responses.NewStreaming(t.Context(), params)
	for stream.Next() {
		if stream.Current().Type == "response.completed" {
			t.Error("a failed stream has a completed event")
		}
	}
	if stream.Err() == nil {
		t.Error("a failed stream returns no error")
	}
}

func TestOpenAIClientImages(t *testing.T) {
	t.Parallel()
	client := openaiClient(t)
	got, err := client.Images.Generate(t.Context(), openai.ImageGenerateParams{Model: "m", Prompt: "a boat", N: openai.Int(2)})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || got.Usage.OutputTokens != 2*providersim.ImageOutputTokens {
		t.Errorf("answer %s", got.RawJSON())
	}
}

func TestOpenAIClientVideos(t *testing.T) {
	t.Parallel()
	client := openaiClient(t)
	v, err := client.Videos.New(t.Context(), openai.VideoNewParams{Model: "m@polls=0", Prompt: "a boat", Seconds: openai.VideoSeconds8})
	if err != nil {
		t.Fatal(err)
	}
	if v, err = client.Videos.Get(t.Context(), v.ID); err != nil || v.Status != openai.VideoStatusCompleted || v.Seconds != "8" {
		t.Fatalf("video %+v, %v", v, err)
	}
	resp, err := client.Videos.DownloadContent(t.Context(), v.ID, openai.VideoDownloadContentParams{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if content, err := io.ReadAll(resp.Body); err != nil || len(content) != 64<<10 {
		t.Errorf("content has %d bytes, %v", len(content), err)
	}
}

func messageParams(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     model,
		MaxTokens: 100,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
	}
}

func TestAnthropicClientMessages(t *testing.T) {
	t.Parallel()
	client := anthropicClient(t)
	tool := messageParams("m")
	tool.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Required: []string{"city"}}, "look")}
	tool.ToolChoice = anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}}
	for _, params := range []anthropic.MessageNewParams{messageParams("m@out=4"), messageParams("m@out=4,reasoning=3,keepalive"), tool} {
		want, err := client.Messages.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
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
		if got.StopReason != want.StopReason || got.Usage.OutputTokens != want.Usage.OutputTokens || len(got.Content) != len(want.Content) {
			t.Fatalf("stream adds up to %+v; want %+v", got, want)
		}
		for i := range want.Content {
			w, g := want.Content[i], got.Content[i]
			if g.Type != w.Type || g.Text != w.Text || g.Thinking != w.Thinking || g.Signature != w.Signature || !bytes.Equal(g.Input, w.Input) {
				t.Errorf("block %d is %+v; want %+v", i, g, w)
			}
		}
	}
}

func TestAnthropicClientReadsErrors(t *testing.T) {
	t.Parallel()
	client := anthropicClient(t)
	_, err := client.Messages.New(t.Context(), messageParams("m@status=529"))
	var refused *anthropic.Error
	if !errors.As(err, &refused) || refused.StatusCode != 529 || refused.RequestID == "" {
		t.Errorf("error %v", err)
	}
	stream := client.Messages.NewStreaming(t.Context(), messageParams("m@error=4,type=overloaded_error"))
	n := 0
	for stream.Next() {
		n++
	}
	if stream.Err() == nil || n != 4-1 { // the client library does not return the ping
		t.Errorf("%d events, error %v", n, stream.Err())
	}
}
