package providersim

import (
	"encoding/json"
	"iter"
	"strings"
)

// emptyDelta ends a choice.
var emptyDelta = json.RawMessage("{}")

func (a *chatAnswer) events() iter.Seq[event] {
	return func(yield func(event) bool) {
		if a.d.azureFirst &&
			!yield(event{data: []byte(`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[]}`)}) {
			return
		}
		_ = a.opening(yield) && a.reasoning(yield) && a.content(yield) && a.closing(yield)
	}
}

func (a *chatAnswer) opening(yield func(event) bool) bool {
	content := `""`
	if a.plan.tool != nil || a.d.refuse {
		content = "null"
	}
	delta := json.RawMessage(`{"role":"assistant","content":` + content + `,"refusal":null}`)
	for i := range a.plan.choices {
		c := a.chunk(i, delta)
		if i == 0 && a.d.xGroq {
			c.XGroq = map[string]string{"id": "req_" + a.id}
		}
		if !yield(a.event(c, 0)) {
			return false
		}
	}
	return true
}

func (a *chatAnswer) reasoning(yield func(event) bool) bool {
	if !a.d.reasoningContent {
		a.sent += a.plan.reasoningTotal() // counted, but not in the answer
		return true
	}
	return a.sendWords(yield, "reasoning_content", a.plan.reasoning)
}

func (a *chatAnswer) content(yield func(event) bool) bool {
	switch {
	case a.d.refuse:
		return a.sendWords(yield, "refusal", a.plan.text)
	case a.plan.tool != nil:
		return a.call(yield)
	}
	return a.sendWords(yield, "content", a.plan.text)
}

// sendWords sends tokens word by word, alternating between the choices.
func (a *chatAnswer) sendWords(yield func(event) bool, member string, tokens int64) bool {
	for at := int64(0); at < tokens; at += a.d.perEvent {
		until := min(at+a.d.perEvent, tokens)
		delta := mustJSON(map[string]string{member: words(at, until, a.d.wordBytes)})
		for i := range a.plan.choices {
			c := a.chunk(i, delta)
			if a.obfuscate {
				c.Obfuscation = strings.Repeat("x", int(at%7)+1)
			}
			if !yield(a.event(c, until-at)) {
				return false
			}
		}
	}
	return true
}

// call sends a tool call. All its tokens count with the first piece.
func (a *chatAnswer) call(yield func(event) bool) bool {
	first := int64(0)
	for i := range a.plan.choices {
		call := chatToolCall{Index: &first, ID: "call_" + a.id, Type: "function"}
		call.Function.Name = a.plan.tool.name
		if !yield(a.event(a.chunk(i, toolDelta(call)), a.plan.text)) {
			return false
		}
		for _, piece := range argumentPieces(a.plan.tool.arguments) {
			more := chatToolCall{Index: &first}
			more.Function.Arguments = piece
			if !yield(a.event(a.chunk(i, toolDelta(more)), 0)) {
				return false
			}
		}
	}

	return true
}

func toolDelta(call chatToolCall) json.RawMessage {
	return mustJSON(map[string][]chatToolCall{"tool_calls": {call}})
}

func (a *chatAnswer) closing(yield func(event) bool) bool {
	reason := a.finishReason()
	final := mustJSON(a.usage(a.plan.output(), a.plan.reasoningTotal()))
	for i := range a.plan.choices {
		c := a.chunk(i, emptyDelta)
		c.Choices[0].FinishReason = &reason
		e := a.event(c, 0)
		if i == a.plan.choices-1 {
			e = a.finishChunk(c, final)
		}
		if !yield(e) {
			return false
		}
	}

	if a.usageChunk() {
		c := a.chunk(0, nil)
		c.Choices, c.Usage = []chunkChoice{}, final
		if !yield(a.carrying(c, final)) {
			return false
		}
	}

	return yield(event{data: []byte("[DONE]"), last: true})
}

// usageChunk reports whether the stream has a usage chunk without choices.
func (a *chatAnswer) usageChunk() bool {
	elsewhere := a.d.usageInChoice || a.d.usageOnLast || a.d.xGroq
	return !a.d.noUsage && !elsewhere && (a.includeUsage || a.d.usageEveryChunk)
}

// finishChunk returns the last chunk with a choice, in which some providers report usage.
func (a *chatAnswer) finishChunk(c chatChunk, final json.RawMessage) event {
	switch {
	case a.d.noUsage:
		return a.event(c, 0)
	case a.d.usageInChoice:
		c.Choices[0].Usage = mustJSON(map[string]int64{
			"prompt_tokens": a.plan.prompt, "completion_tokens": a.plan.output(),
			"total_tokens": a.plan.prompt + a.plan.output(), "cached_tokens": a.plan.cached,
		})
		return a.carrying(c, c.Choices[0].Usage)
	case a.d.xGroq:
		c.XGroq = map[string]any{"id": "req_" + a.id, "usage": final}
		if a.includeUsage {
			c.Usage = final
		}
		return a.carrying(c, final)
	case a.d.usageOnLast:
		c.Usage = final
		return a.carrying(c, final)
	}
	return a.event(c, 0)
}

func (a *chatAnswer) chunk(choice int64, delta json.RawMessage) chatChunk {
	c := chatChunk{
		ID:          a.id,
		Object:      "chat.completion.chunk",
		Created:     a.created,
		Model:       a.model,
		ServiceTier: a.tier,
		Choices:     []chunkChoice{{Index: choice, Delta: delta}},
	}
	if a.includeUsage && !a.d.noUsage && !a.d.usageInChoice && !a.d.xGroq {
		c.Usage = json.RawMessage("null")
	}
	return c
}

// event returns the event of a chunk with words, with running totals if every chunk has them.
func (a *chatAnswer) event(c chatChunk, tokens int64) event {
	a.sent += tokens
	if a.d.usageEveryChunk && !a.d.noUsage {
		c.Usage = mustJSON(a.usage(a.sent, min(a.sent, a.plan.reasoningTotal())))
		counts := a.plan.counts(Chat)
		counts.Output, counts.Reasoning = a.sent, min(a.sent, a.plan.reasoningTotal())
		return event{
			data:   mustJSON(c),
			words:  tokens,
			usage:  c.Usage,
			counts: counts,
		}
	}
	return event{data: mustJSON(c), words: tokens}
}

// carrying returns the event of a chunk that contains the final usage.
func (a *chatAnswer) carrying(c chatChunk, usage json.RawMessage) event {
	return event{data: mustJSON(c), usage: usage, counts: a.plan.counts(Chat)}
}

func (a *chatAnswer) keepalive() event { return event{} }

func (a *chatAnswer) failure(f *fault) []event {
	switch a.d.style {
	case "groq":
		c := a.chunk(0, emptyDelta)
		c.XGroq = map[string]string{"id": "req_" + a.id, "error": f.message}
		return []event{{data: mustJSON(c)}}
	case "choice":
		reason := "error"
		c := a.chunk(0, emptyDelta)
		c.Choices[0].FinishReason = &reason
		return []event{{data: mustJSON(struct {
			chatChunk
			Error map[string]any `json:"error"`
		}{c, map[string]any{"code": f.status, "message": f.message}})}}
	}
	return []event{{data: f.envelope(Chat, "")}}
}
