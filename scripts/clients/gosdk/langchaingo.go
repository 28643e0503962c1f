package main

import (
	"context"
	"log"

	"github.com/tmc/langchaingo/llms"
	lcanthropic "github.com/tmc/langchaingo/llms/anthropic"
	lcopenai "github.com/tmc/langchaingo/llms/openai"
)

// langchaingo plays the task with both formats of langchaingo, as JSON and as a stream.
func langchaingo(ctx context.Context) {
	chat, err := lcopenai.New(lcopenai.WithBaseURL(host+"/v1"), lcopenai.WithToken(key), lcopenai.WithModel(model))
	if err != nil {
		log.Fatal(err)
	}
	messages, err := lcanthropic.New(lcanthropic.WithBaseURL(host+"/v1"), lcanthropic.WithToken(key), lcanthropic.WithModel(model))
	if err != nil {
		log.Fatal(err)
	}
	drop := llms.WithStreamingFunc(func(context.Context, []byte) error { return nil })
	for _, more := range [][]llms.CallOption{nil, {drop}} {
		end(chain(ctx, chat, "PromptTokens", "CompletionTokens", more))
		end(chain(ctx, messages, "InputTokens", "OutputTokens", more))
	}
}

// chain plays the task. The names are those of the shown usage.
func chain(ctx context.Context, client llms.Model, input, output string, more []llms.CallOption) (string, error) {
	options := append([]llms.CallOption{llms.WithMaxTokens(1000), llms.WithTools([]llms.Tool{{
		Type: "function", Function: &llms.FunctionDefinition{Name: "weather", Description: "Tells the weather.", Parameters: parameters},
	}})}, more...)

	turns := []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, prompt)}
	for {
		answer, err := client.GenerateContent(ctx, turns, options...)
		if err != nil {
			return "", err
		}
		choice := answer.Choices[0]
		in, _ := choice.GenerationInfo[input].(int)
		out, _ := choice.GenerationInfo[output].(int)
		count(int64(in), int64(out))
		if len(choice.ToolCalls) == 0 {
			return choice.Content, nil
		}
		call := choice.ToolCalls[0]
		turns = append(
			turns,
			llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{call}},
			llms.MessageContent{
				Role:  llms.ChatMessageTypeTool,
				Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: call.ID, Name: "weather", Content: "sunny in Oslo"}},
			},
		)
	}
}
