package providersim

import (
	"encoding/json"
	"net/http"
)

// The objects of the chat format.
type (
	chatCompletion struct {
		ID                string       `json:"id"`
		Object            string       `json:"object"`
		Created           int64        `json:"created"`
		Model             string       `json:"model"`
		Choices           []chatChoice `json:"choices"`
		Usage             *chatUsage   `json:"usage,omitempty"`
		ServiceTier       string       `json:"service_tier"`
		SystemFingerprint *string      `json:"system_fingerprint"`
	}
	chatChoice struct {
		Index        int64       `json:"index"`
		Message      chatMessage `json:"message"`
		Logprobs     *string     `json:"logprobs"` // always null
		FinishReason string      `json:"finish_reason"`
	}
	chatMessage struct {
		Role             string         `json:"role"`
		Content          *string        `json:"content"`
		ReasoningContent string         `json:"reasoning_content,omitempty"`
		Refusal          *string        `json:"refusal"`
		ToolCalls        []chatToolCall `json:"tool_calls,omitempty"`
		Annotations      []string       `json:"annotations"` // always empty
	}
	chatToolCall struct {
		Index    *int64 `json:"index,omitempty"` // in streams only
		ID       string `json:"id,omitempty"`
		Type     string `json:"type,omitempty"`
		Function struct {
			Name      string `json:"name,omitempty"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	chatUsage struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
		TotalTokens      int64 `json:"total_tokens"`
		PromptDetails    struct {
			CachedTokens     int64 `json:"cached_tokens"`
			CacheWriteTokens int64 `json:"cache_write_tokens"`
			AudioTokens      int64 `json:"audio_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			ReasoningTokens          int64 `json:"reasoning_tokens"`
			AudioTokens              int64 `json:"audio_tokens"`
			AcceptedPredictionTokens int64 `json:"accepted_prediction_tokens"`
			RejectedPredictionTokens int64 `json:"rejected_prediction_tokens"`
		} `json:"completion_tokens_details"`
	}
	chatChunk struct {
		ID                string          `json:"id"`
		Object            string          `json:"object"`
		Created           int64           `json:"created"`
		Model             string          `json:"model"`
		ServiceTier       string          `json:"service_tier"`
		SystemFingerprint *string         `json:"system_fingerprint"`
		Choices           []chunkChoice   `json:"choices"`
		Usage             json.RawMessage `json:"usage,omitempty"`
		XGroq             any             `json:"x_groq,omitempty"`
		Obfuscation       string          `json:"obfuscation,omitempty"`
	}
	chunkChoice struct {
		Index        int64           `json:"index"`
		Delta        json.RawMessage `json:"delta"`
		Logprobs     *string         `json:"logprobs"` // always null
		FinishReason *string         `json:"finish_reason"`
		Usage        json.RawMessage `json:"usage,omitempty"`
	}
)

// chatAnswer is one answer of the chat format, as JSON or as a stream.
type chatAnswer struct {
	id           string
	model        string
	tier         string
	created      int64
	plan         textPlan
	d            *directives
	includeUsage bool // stream_options.include_usage
	obfuscate    bool // stream_options.include_obfuscation
	sent         int64
}

func (x *exchange) chat() error {
	a := &chatAnswer{
		id:      x.id("chatcmpl-"),
		model:   x.answerModel(),
		tier:    x.serviceTier("default"),
		created: x.sim.cfg.Now().Unix(),
		plan:    planText(Chat, x.members, x.d),
		d:       x.d,
	}

	var options struct {
		Usage       bool  `json:"include_usage"`
		Obfuscation *bool `json:"include_obfuscation"`
	}

	if err := json.Unmarshal(x.members.raw("stream_options", "{}"), &options); err != nil {
		return x.refuse(Chat.refused("invalid_type", "stream_options", "members must be booleans"))
	}

	a.includeUsage, a.obfuscate = options.Usage, options.Obfuscation == nil || *options.Obfuscation
	x.entry.AnswerID = a.id
	if x.streaming() {
		return x.play(a)
	}

	var usage any
	completion := a.completion()
	if completion.Usage != nil {
		usage = completion.Usage
	}

	return x.sendJSON(mustJSON(completion), a.plan, usage)
}

func (x *exchange) answerModel() string {
	if x.d.answerModel != "" {
		return x.d.answerModel
	}
	return x.entry.Model
}

// serviceTier returns the service tier of the answer.
func (x *exchange) serviceTier(byDefault string) string {
	if x.d.tier != "" {
		return x.d.tier
	}
	if asked := x.members.text("service_tier", "auto"); asked != "auto" && asked != "standard_only" {
		return asked
	}
	return byDefault
}

func (x *exchange) streaming() bool { return x.entry.Stream && !x.d.plainJSON }

// sendJSON sends a whole answer and records its output and usage in the journal.
func (x *exchange) sendJSON(body []byte, p textPlan, usage any) error {
	if err := x.json(http.StatusOK, body); err != nil {
		return err
	}
	x.entry.Delivered = p.visible(x.entry.Format, x.d)
	if usage != nil {
		x.report(usage, p.counts(x.entry.Format))
	}
	return nil
}

func (a *chatAnswer) completion() chatCompletion {
	c := chatCompletion{
		ID:          a.id,
		Object:      "chat.completion",
		Created:     a.created,
		Model:       a.model,
		ServiceTier: a.tier,
	}
	for i := range a.plan.choices {
		c.Choices = append(c.Choices, chatChoice{Index: i, Message: a.message(), FinishReason: a.finishReason()})
	}
	if !a.d.noUsage {
		u := a.usage(a.plan.output(), a.plan.reasoningTotal())
		c.Usage = &u
	}
	return c
}

func (a *chatAnswer) message() chatMessage {
	m := chatMessage{Role: "assistant", Annotations: []string{}}
	if a.d.reasoningContent {
		m.ReasoningContent = words(0, a.plan.reasoning, a.d.wordBytes)
	}

	text := words(0, a.plan.text, a.d.wordBytes)
	switch {
	case a.d.refuse:
		m.Refusal = &text
	case a.plan.tool != nil:
		call := chatToolCall{ID: "call_" + a.id, Type: "function"}
		call.Function.Name, call.Function.Arguments = a.plan.tool.name, a.plan.tool.arguments
		m.ToolCalls = []chatToolCall{call}
	default:
		m.Content = &text
	}

	return m
}

func (a *chatAnswer) finishReason() string {
	switch {
	case a.d.filter:
		return "content_filter"
	case a.plan.truncated:
		return "length"
	case a.plan.tool != nil && !a.d.refuse:
		return "tool_calls"
	}
	return "stop"
}

// usage returns the usage object for the given output.
func (a *chatAnswer) usage(output, reasoning int64) chatUsage {
	u := chatUsage{PromptTokens: a.plan.prompt, CompletionTokens: output, TotalTokens: a.plan.prompt + output}
	u.PromptDetails.CachedTokens = a.plan.cached
	u.PromptDetails.CacheWriteTokens = a.plan.cacheWrite
	u.CompletionDetails.ReasoningTokens = reasoning
	if a.d.reasoningOutside {
		u.CompletionTokens -= reasoning
	}
	return u
}
