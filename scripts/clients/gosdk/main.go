// Command gosdk plays the task of package clients with the official Go clients, or with
// langchaingo if the argument is its name, and prints the usage that they show.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	other "github.com/sashabaranov/go-openai"
)

const (
	prompt = "Ask for the weather in Oslo."
	want   = "done: sunny in Oslo"
)

var host, key, model = os.Getenv("HOST"), os.Getenv("MGW_API_KEY"), os.Getenv("TASK_MODEL")

var parameters = map[string]any{
	"type":       "object",
	"properties": map[string]any{"city": map[string]any{"type": "string"}},
	"required":   []string{"city"},
}

// report is the sum of the shown usage, in tokens, and the number of tasks.
var report struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	Tasks  int   `json:"tasks"`
}

func count(input, output int64) {
	report.Input, report.Output = report.Input+input, report.Output+output
}

func end(text string, err error) {
	if err != nil || text != want {
		log.Fatalf("the task ends with %q, %v; want %q", text, err, want)
	}
	report.Tasks++
}

// city is the input of the tool.
type city struct {
	City string `json:"city"`
}

func main() {
	ctx := context.Background()
	if slices.Contains(os.Args, "langchaingo") {
		langchaingo(ctx)
	} else {
		official(ctx)
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		log.Fatal(err)
	}
}

func official(ctx context.Context) {
	client := openai.NewClient(option.WithBaseURL(host+"/v1/"), option.WithAPIKey(key))
	end(chat(ctx, client))
	end(stream(ctx, client))
	end(older(ctx))
	messages := anthropic.NewClient(anthropicoption.WithBaseURL(host), anthropicoption.WithAPIKey(key))
	end(toolRunner(ctx, messages))
}

// chat plays the task with streams of the chat format.
func chat(ctx context.Context, client openai.Client) (string, error) {
	params := openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather", Parameters: parameters}),
		},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	for {
		var sum openai.ChatCompletionAccumulator
		chunks := client.Chat.Completions.NewStreaming(ctx, params)
		for chunks.Next() {
			sum.AddChunk(chunks.Current())
		}
		if chunks.Err() != nil {
			return "", chunks.Err()
		}
		count(sum.Usage.PromptTokens, sum.Usage.CompletionTokens)
		message := sum.Choices[0].Message
		if len(message.ToolCalls) == 0 {
			return message.Content, nil
		}
		params.Messages = append(params.Messages, message.ToParam(), openai.ToolMessage("sunny in Oslo", message.ToolCalls[0].ID))
	}
}

// stream plays the task with streams of the responses format.
func stream(ctx context.Context, client openai.Client) (string, error) {
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(prompt, responses.EasyInputMessageRoleUser)}
	for {
		events := client.Responses.NewStreaming(ctx, responses.ResponseNewParams{
			Model: model, Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
			Tools: []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", parameters, false)},
		})

		var final responses.Response
		for events.Next() {
			if e, ok := events.Current().AsAny().(responses.ResponseCompletedEvent); ok {
				final = e.Response
			}
		}

		if events.Err() != nil {
			return "", events.Err()
		}

		count(final.Usage.InputTokens, final.Usage.OutputTokens)
		if final.Output[0].Type != "function_call" {
			return final.OutputText(), nil
		}

		call := final.Output[0]
		result := responses.ResponseInputItemParamOfFunctionCallOutput("sunny in Oslo")
		result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
		input = append(input, responses.ResponseInputItemParamOfFunctionCall(call.Arguments.OfString, call.CallID, call.Name), result)
	}
}

// older plays the task with the client that others maintain.
func older(ctx context.Context) (string, error) {
	config := other.DefaultConfig(key)
	config.BaseURL = host + "/v1"
	client := other.NewClientWithConfig(config)

	request := other.ChatCompletionRequest{
		Model: model, Messages: []other.ChatCompletionMessage{{Role: "user", Content: prompt}},
		Tools: []other.Tool{{Type: other.ToolTypeFunction, Function: &other.FunctionDefinition{Name: "weather", Parameters: parameters}}},
	}

	for {
		answer, err := client.CreateChatCompletion(ctx, request)
		if err != nil {
			return "", fmt.Errorf("go-openai: %w", err)
		}
		count(int64(answer.Usage.PromptTokens), int64(answer.Usage.CompletionTokens))
		message := answer.Choices[0].Message
		if len(message.ToolCalls) == 0 {
			return message.Content, nil
		}
		request.Messages = append(
			request.Messages,
			message,
			other.ChatCompletionMessage{Role: "tool", Content: "sunny in Oslo", ToolCallID: message.ToolCalls[0].ID},
		)
	}
}

// toolRunner plays the task with the tool runner. It asks for a thread first and continues without one.
func toolRunner(ctx context.Context, client anthropic.Client) (string, error) {
	tool, err := toolrunner.NewBetaToolFromJSONSchema(
		"weather",
		"Tells the weather.",
		func(_ context.Context, in city) (anthropic.BetaToolResultBlockParamContentUnion, error) {
			return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "sunny in " + in.City}}, nil
		},
	)
	if err != nil {
		return "", err
	}

	runner := client.Beta.Messages.NewToolRunner(
		[]anthropic.BetaTool{tool},
		anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model:     model,
			MaxTokens: 1000,
			Messages:  []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(prompt))},
		}},
	)

	text := ""
	for message, err := range runner.All(ctx) {
		if err != nil {
			return "", err
		}
		count(message.Usage.InputTokens, message.Usage.OutputTokens)
		text = message.Content[0].Text
	}

	return text, nil
}
