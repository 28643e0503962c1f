package providersim

import (
	"encoding/json"
	"iter"
)

// The objects of the messages format.
type (
	message struct {
		ID           string         `json:"id"`
		Type         string         `json:"type"`
		Role         string         `json:"role"`
		Model        string         `json:"model"`
		Content      []messageBlock `json:"content"`
		StopReason   *string        `json:"stop_reason"`
		StopSequence *string        `json:"stop_sequence"`
		StopDetails  *stopDetails   `json:"stop_details"`
		Container    *string        `json:"container"`
		Usage        *messageUsage  `json:"usage,omitempty"`
	}
	stopDetails struct {
		Type        string  `json:"type"`
		Category    *string `json:"category"`
		Explanation *string `json:"explanation"`
	}
	// messageBlock is an entry of content. Its members depend on Type.
	messageBlock struct {
		Type      string          `json:"type"` // thinking, text, tool_use
		Thinking  *string         `json:"thinking,omitempty"`
		Signature *string         `json:"signature,omitempty"`
		Text      *string         `json:"text,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
	}
	// messageUsage is the usage object. The last members are missing in message_delta.
	messageUsage struct {
		InputTokens      int64            `json:"input_tokens"`
		CacheWriteTokens *int64           `json:"cache_creation_input_tokens,omitempty"`
		CacheReadTokens  *int64           `json:"cache_read_input_tokens,omitempty"`
		CacheCreation    *cacheCreation   `json:"cache_creation,omitempty"`
		OutputTokens     int64            `json:"output_tokens"`
		ServiceTier      string           `json:"service_tier,omitempty"`
		Speed            string           `json:"speed,omitempty"`
		InferenceGeo     string           `json:"inference_geo,omitempty"`
		OutputDetails    *thinkingTokens  `json:"output_tokens_details,omitempty"`
		ServerToolUse    *json.RawMessage `json:"server_tool_use,omitempty"`
	}
	cacheCreation struct {
		Ephemeral5m int64 `json:"ephemeral_5m_input_tokens"`
		Ephemeral1h int64 `json:"ephemeral_1h_input_tokens"`
	}
	thinkingTokens struct {
		ThinkingTokens int64 `json:"thinking_tokens"`
	}
)

const signature = "c2ltdWxhdGVkLXNpZ25hdHVyZQ=="

// messageAnswer is one answer of the messages format, as JSON or as a stream.
type messageAnswer struct {
	id        string
	requestID string
	model     string
	// tier and speed are those of the usage; speed is empty if the request has none.
	tier, speed string
	plan        textPlan
	d           *directives
}

func (x *exchange) messages() error {
	a := &messageAnswer{
		id:        x.id("msg_"),
		requestID: x.entry.RequestID,
		model:     x.answerModel(),
		tier:      x.serviceTier("standard"),
		speed:     x.members.text("speed", ""),
		plan:      planText(Messages, x.members, x.d),
		d:         x.d,
	}
	if a.speed != "" && x.d.tier != "" {
		a.speed = "standard"
	}

	x.entry.AnswerID = a.id
	if x.streaming() {
		return x.play(a)
	}

	whole := a.start()
	whole.Content = a.blocks()
	whole.StopReason, whole.StopDetails = a.stop()
	var usage any
	if !a.d.noUsage {
		whole.Usage = a.finalUsage()
		whole.Usage.CacheCreation = &cacheCreation{Ephemeral5m: a.plan.cacheWrite}
		whole.Usage.ServiceTier, whole.Usage.Speed, whole.Usage.InferenceGeo = a.tier, a.speed, "not_available"
		none := json.RawMessage("null")
		whole.Usage.ServerToolUse = &none
		usage = whole.Usage
	}

	return x.sendJSON(mustJSON(whole), a.plan, usage)
}

// start returns the message without content, for message_start.
func (a *messageAnswer) start() message {
	m := message{
		ID:      a.id,
		Type:    "message",
		Role:    "assistant",
		Model:   a.model,
		Content: []messageBlock{},
	}

	switch {
	case a.d.noUsage:
	case a.d.zeroStart:
		m.Usage = &messageUsage{}
	default:
		c := a.plan.counts(Messages)
		m.Usage = &messageUsage{
			InputTokens:      c.Input,
			CacheWriteTokens: &c.CacheWrite5m,
			CacheReadTokens:  &c.CachedInput,
			CacheCreation:    &cacheCreation{Ephemeral5m: c.CacheWrite5m},
			OutputTokens:     min(1, c.Output),
			ServiceTier:      a.tier,
			Speed:            a.speed,
			InferenceGeo:     "not_available",
		}
	}

	return m
}

func (a *messageAnswer) finalUsage() *messageUsage {
	c := a.plan.counts(Messages)
	return &messageUsage{
		InputTokens:      c.Input,
		CacheWriteTokens: &c.CacheWrite5m,
		CacheReadTokens:  &c.CachedInput,
		OutputTokens:     c.Output,
		OutputDetails:    &thinkingTokens{c.Reasoning},
	}
}

// blocks returns the content, which is empty for a refusal.
func (a *messageAnswer) blocks() []messageBlock {
	blocks := []messageBlock{}
	if a.d.refuse {
		return blocks
	}

	if a.plan.reasoning > 0 {
		thought, sig := words(0, a.plan.reasoning, a.d.wordBytes), signature
		blocks = append(blocks, messageBlock{Type: "thinking", Thinking: &thought, Signature: &sig})
	}

	switch {
	case a.plan.tool != nil:
		blocks = append(blocks, messageBlock{
			Type:  "tool_use",
			ID:    "toolu_" + a.id,
			Name:  a.plan.tool.name,
			Input: json.RawMessage(a.plan.tool.arguments),
		})
	case a.plan.text > 0:
		text := words(0, a.plan.text, a.d.wordBytes)
		blocks = append(blocks, messageBlock{Type: "text", Text: &text})
	}

	return blocks
}

func (a *messageAnswer) stop() (*string, *stopDetails) {
	reason := "end_turn"
	switch {
	case a.d.refuse || a.d.filter:
		reason = "refusal"
		return &reason, &stopDetails{Type: "refusal"}
	case a.plan.truncated:
		reason = "max_tokens"
	case a.plan.tool != nil:
		reason = "tool_use"
	}
	return &reason, nil
}

// Events of the messages format.
type (
	messageStart struct {
		Type    string  `json:"type"`
		Message message `json:"message"`
	}
	blockStart struct {
		Type         string       `json:"type"`
		Index        int          `json:"index"`
		ContentBlock messageBlock `json:"content_block"`
	}
	blockDelta struct {
		Type  string       `json:"type"`
		Index int          `json:"index"`
		Delta messageDelta `json:"delta"`
	}
	messageDelta struct {
		Type        string  `json:"type"`
		Text        *string `json:"text,omitempty"`
		Thinking    *string `json:"thinking,omitempty"`
		Signature   *string `json:"signature,omitempty"`
		PartialJSON *string `json:"partial_json,omitempty"`
	}
	blockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	messageEnd struct {
		Type  string `json:"type"`
		Delta struct {
			StopReason   *string      `json:"stop_reason"`
			StopSequence *string      `json:"stop_sequence"`
			StopDetails  *stopDetails `json:"stop_details"`
			Container    *string      `json:"container"`
		} `json:"delta"`
		Usage *messageUsage `json:"usage,omitempty"`
	}
)

func (a *messageAnswer) events() iter.Seq[event] {
	return func(yield func(event) bool) {
		_ = yield(a.opening()) && a.content(yield) && yield(a.closing()) &&
			yield(event{name: "message_stop", data: []byte(`{"type":"message_stop"}`), last: true})
	}
}

func (a *messageAnswer) opening() event {
	m := a.start()
	e := event{name: "message_start", data: mustJSON(messageStart{"message_start", m})}
	if m.Usage != nil {
		e.usage, e.counts = m.Usage, a.plan.counts(Messages)
		e.counts.Output, e.counts.Reasoning = m.Usage.OutputTokens, 0
		if a.d.zeroStart {
			e.counts = Counts{}
		}
	}
	return e
}

func (a *messageAnswer) content(yield func(event) bool) bool {
	for i, block := range a.blocks() {
		if !yield(event{name: "content_block_start", data: mustJSON(blockStart{"content_block_start", i, emptyBlock(block)})}) {
			return false
		}
		if i == 0 && !yield(a.keepalive()) {
			return false
		}
		if !a.deltas(yield, i, block) {
			return false
		}
		if !yield(event{name: "content_block_stop", data: mustJSON(blockStop{"content_block_stop", i})}) {
			return false
		}
	}
	return true
}

// emptyBlock returns a block without its content, for content_block_start.
func emptyBlock(b messageBlock) messageBlock {
	none := ""
	switch b.Type {
	case "thinking":
		b.Thinking, b.Signature = &none, &none
	case "text":
		b.Text = &none
	case "tool_use":
		b.Input = json.RawMessage("{}")
	}
	return b
}

func (a *messageAnswer) deltas(yield func(event) bool, index int, block messageBlock) bool {
	send := func(d messageDelta, tokens int64) bool {
		return yield(event{name: "content_block_delta", data: mustJSON(blockDelta{"content_block_delta", index, d}), words: tokens})
	}

	sendWords := func(total int64, delta func(text *string) messageDelta) bool {
		for from := int64(0); from < total; from += a.d.perEvent {
			until := min(from+a.d.perEvent, total)
			text := words(from, until, a.d.wordBytes)
			if !send(delta(&text), until-from) {
				return false
			}
		}
		return true
	}

	switch block.Type {
	case "thinking":
		return sendWords(
			a.plan.reasoning,
			func(text *string) messageDelta { return messageDelta{Type: "thinking_delta", Thinking: text} },
		) &&
			send(messageDelta{Type: "signature_delta", Signature: block.Signature}, 0)
	case "text":
		return sendWords(a.plan.text, func(text *string) messageDelta { return messageDelta{Type: "text_delta", Text: text} })
	}

	tokens := a.plan.text // all tokens count with the first piece
	for _, piece := range append([]string{""}, argumentPieces(string(block.Input))...) {
		if !send(messageDelta{Type: "input_json_delta", PartialJSON: &piece}, tokens) {
			return false
		}
		tokens = 0
	}

	return true
}

func (a *messageAnswer) closing() event {
	end := messageEnd{Type: "message_delta"}
	end.Delta.StopReason, end.Delta.StopDetails = a.stop()
	if a.d.noUsage {
		return event{name: end.Type, data: mustJSON(end)}
	}
	end.Usage = a.finalUsage()
	return event{
		name:   end.Type,
		data:   mustJSON(end),
		usage:  end.Usage,
		counts: a.plan.counts(Messages),
	}
}

func (a *messageAnswer) keepalive() event {
	return event{name: "ping", data: []byte(`{"type":"ping"}`)}
}

func (a *messageAnswer) failure(f *fault) []event {
	return []event{{name: "error", data: mustJSON(f.messagesError(a.requestID))}}
}
