package providersim

import (
	"encoding/json"
	"strings"
)

// The objects of the responses format.
type (
	responseObject struct {
		ID                 string          `json:"id"`
		Object             string          `json:"object"`
		CreatedAt          int64           `json:"created_at"`
		Status             string          `json:"status"`
		Background         bool            `json:"background"`
		CompletedAt        *int64          `json:"completed_at"`
		Error              *responseError  `json:"error"`
		IncompleteDetails  *incomplete     `json:"incomplete_details"`
		Instructions       json.RawMessage `json:"instructions"`
		MaxOutputTokens    json.RawMessage `json:"max_output_tokens"`
		MaxToolCalls       json.RawMessage `json:"max_tool_calls"`
		Model              string          `json:"model"`
		Output             []responseItem  `json:"output"`
		ParallelToolCalls  json.RawMessage `json:"parallel_tool_calls"`
		PreviousResponseID json.RawMessage `json:"previous_response_id"`
		PromptCacheKey     json.RawMessage `json:"prompt_cache_key"`
		Reasoning          json.RawMessage `json:"reasoning"`
		SafetyIdentifier   json.RawMessage `json:"safety_identifier"`
		ServiceTier        string          `json:"service_tier"`
		Store              json.RawMessage `json:"store"`
		Temperature        json.RawMessage `json:"temperature"`
		Text               json.RawMessage `json:"text"`
		ToolChoice         json.RawMessage `json:"tool_choice"`
		Tools              json.RawMessage `json:"tools"`
		TopLogprobs        json.RawMessage `json:"top_logprobs"`
		TopP               json.RawMessage `json:"top_p"`
		Truncation         json.RawMessage `json:"truncation"`
		Usage              *responseUsage  `json:"usage"`
		User               json.RawMessage `json:"user"`
		Metadata           json.RawMessage `json:"metadata"`
	}
	responseError struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	incomplete struct {
		Reason string `json:"reason"`
	}
	responseUsage struct {
		InputTokens  int64 `json:"input_tokens"`
		InputDetails struct {
			CachedTokens     int64      `json:"cached_tokens"`
			CacheWriteTokens int64      `json:"cache_write_tokens"`
			CacheWriteTTL    *writeTTLs `json:"cache_write_tokens_details,omitempty"`
		} `json:"input_tokens_details"`
		OutputTokens  int64 `json:"output_tokens"`
		OutputDetails struct {
			ReasoningTokens int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
		TotalTokens int64 `json:"total_tokens"`
	}
	writeTTLs struct {
		TTL30m int64 `json:"ttl_30m_tokens"`
		TTL12h int64 `json:"ttl_12h_tokens"`
	}
	// responseItem is an entry of output. Its members depend on Type.
	responseItem struct {
		ID               string          `json:"id"`
		Type             string          `json:"type"` // reasoning, message, function_call
		Status           string          `json:"status,omitempty"`
		Role             string          `json:"role,omitempty"`
		Content          *[]responsePart `json:"content,omitempty"`
		Summary          *[]responsePart `json:"summary,omitempty"`
		EncryptedContent *string         `json:"encrypted_content,omitempty"`
		CallID           string          `json:"call_id,omitempty"`
		Name             string          `json:"name,omitempty"`
		Arguments        *string         `json:"arguments,omitempty"`
	}
	// responsePart is a piece of content or of a reasoning summary.
	responsePart struct {
		Type        string    `json:"type"` // output_text, refusal, summary_text
		Text        *string   `json:"text,omitempty"`
		Refusal     *string   `json:"refusal,omitempty"`
		Annotations *[]string `json:"annotations,omitempty"` // empty list in output_text
		Logprobs    *[]string `json:"logprobs,omitempty"`    // the same
	}
)

// summary is the text of the reasoning, whose tokens are counted but not in the answer.
const summary = "Considered the request."

// responseAnswer is one answer of the responses format, as JSON or as a stream.
type responseAnswer struct {
	id        string
	model     string
	tier      string
	created   int64
	m         members
	plan      textPlan
	d         *directives
	encrypted bool // include has reasoning.encrypted_content
	seq       int64
}

func (x *exchange) responses() error {
	a := &responseAnswer{
		id:        x.id("resp_"),
		model:     x.answerModel(),
		tier:      x.serviceTier("default"),
		created:   x.sim.cfg.Now().Unix(),
		m:         x.members,
		plan:      planText(Responses, x.members, x.d),
		d:         x.d,
		encrypted: strings.Contains(string(x.members["include"]), "reasoning.encrypted_content"),
	}
	x.entry.AnswerID = a.id
	if x.streaming() {
		return x.play(a)
	}

	final := a.final()
	var usage any
	if final.Usage != nil {
		usage = final.Usage
	}

	return x.sendJSON(mustJSON(final), a.plan, usage)
}

// object returns the response object without output, final status and usage. Values of the
// request are copied unchanged.
func (a *responseAnswer) object() responseObject {
	m := a.m
	return responseObject{
		ID:                 a.id,
		Object:             "response",
		CreatedAt:          a.created,
		Status:             "in_progress",
		Model:              a.model,
		Output:             []responseItem{},
		Instructions:       m.raw("instructions", "null"),
		MaxOutputTokens:    m.raw("max_output_tokens", "null"),
		MaxToolCalls:       m.raw("max_tool_calls", "null"),
		ParallelToolCalls:  m.raw("parallel_tool_calls", "true"),
		PreviousResponseID: m.raw("previous_response_id", "null"),
		PromptCacheKey:     m.raw("prompt_cache_key", "null"),
		Reasoning:          m.raw("reasoning", `{"effort":"medium","summary":"auto"}`),
		SafetyIdentifier:   m.raw("safety_identifier", "null"),
		ServiceTier:        m.text("service_tier", "auto"),
		Store:              m.raw("store", "true"),
		Temperature:        m.raw("temperature", "1.0"),
		Text:               m.raw("text", `{"format":{"type":"text"},"verbosity":"medium"}`),
		ToolChoice:         m.raw("tool_choice", `"auto"`),
		Tools:              m.raw("tools", "[]"),
		TopLogprobs:        m.raw("top_logprobs", "0"),
		TopP:               m.raw("top_p", "1.0"),
		Truncation:         m.raw("truncation", `"disabled"`),
		User:               m.raw("user", "null"),
		Metadata:           m.raw("metadata", "{}"),
	}
}

// withStatus returns the object at the end of the answer, with the service tier that was
// used.
func (a *responseAnswer) withStatus(status string) responseObject {
	o := a.object()
	o.Status = status
	o.ServiceTier = a.tier
	return o
}

func (a *responseAnswer) final() responseObject {
	o := a.withStatus(a.status())
	if a.status() == "completed" {
		o.CompletedAt = &a.created
	} else {
		o.IncompleteDetails = &incomplete{Reason: "max_output_tokens"}
		if a.d.filter {
			o.IncompleteDetails.Reason = "content_filter"
		}
	}

	if a.plan.reasoning > 0 {
		o.Output = append(o.Output, a.reasoningItem())
	}

	o.Output = append(o.Output, a.mainItem())
	if !a.d.noUsage {
		u := a.usage()
		o.Usage = &u
	}

	return o
}

func (a *responseAnswer) status() string {
	if a.plan.truncated || a.d.filter {
		return "incomplete"
	}
	return "completed"
}

func (a *responseAnswer) usage() responseUsage {
	u := responseUsage{InputTokens: a.plan.prompt, OutputTokens: a.plan.output(), TotalTokens: a.plan.prompt + a.plan.output()}
	u.InputDetails.CachedTokens = a.plan.cached
	u.InputDetails.CacheWriteTokens = a.plan.cacheWrite
	if a.plan.cacheWrite > 0 {
		u.InputDetails.CacheWriteTTL = &writeTTLs{TTL30m: a.plan.cacheWrite}
	}
	u.OutputDetails.ReasoningTokens = a.plan.reasoning
	return u
}

func (a *responseAnswer) reasoningItem() responseItem {
	text := summary
	item := responseItem{ID: "rs_" + a.id, Type: "reasoning", Summary: &[]responsePart{{Type: "summary_text", Text: &text}}}
	if a.encrypted {
		sealed := "c2ltdWxhdGVkLXJlYXNvbmluZw=="
		item.EncryptedContent = &sealed
	}
	return item
}

// mainItem returns the completed message or function call.
func (a *responseAnswer) mainItem() responseItem {
	if a.calling() {
		return responseItem{
			ID:        "fc_" + a.id,
			Type:      "function_call",
			Status:    a.status(),
			CallID:    "call_" + a.id,
			Name:      a.plan.tool.name,
			Arguments: &a.plan.tool.arguments,
		}
	}
	return responseItem{
		ID:      "msg_" + a.id,
		Type:    "message",
		Status:  a.status(),
		Role:    "assistant",
		Content: &[]responsePart{a.part(words(0, a.plan.text, a.d.wordBytes))},
	}
}

func (a *responseAnswer) calling() bool { return a.plan.tool != nil && !a.d.refuse }

func (a *responseAnswer) part(text string) responsePart {
	if a.d.refuse {
		return responsePart{Type: "refusal", Refusal: &text}
	}
	return responsePart{
		Type:        "output_text",
		Text:        &text,
		Annotations: &[]string{},
		Logprobs:    &[]string{},
	}
}
