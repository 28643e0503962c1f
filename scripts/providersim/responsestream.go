package providersim

import (
	"iter"
	"strings"
)

// responseEvent is an event of the responses format. Its members depend on Type.
type responseEvent struct {
	Type           string          `json:"type"`
	SequenceNumber int64           `json:"sequence_number"`
	Response       *responseObject `json:"response,omitempty"`
	ItemID         string          `json:"item_id,omitempty"`
	OutputIndex    *int            `json:"output_index,omitempty"`
	ContentIndex   *int            `json:"content_index,omitempty"`
	SummaryIndex   *int            `json:"summary_index,omitempty"`
	Item           *responseItem   `json:"item,omitempty"`
	Part           *responsePart   `json:"part,omitempty"`
	Name           string          `json:"name,omitempty"`
	Delta          *string         `json:"delta,omitempty"`
	Text           *string         `json:"text,omitempty"`
	Refusal        *string         `json:"refusal,omitempty"`
	Arguments      *string         `json:"arguments,omitempty"`
	Logprobs       *[]string       `json:"logprobs,omitempty"`
	Error          *errorDetail    `json:"error,omitempty"`
	Obfuscation    string          `json:"obfuscation,omitempty"`
}

var zero = 0

// number gives the event the next sequence number.
func (a *responseAnswer) number(e responseEvent) event {
	e.SequenceNumber = a.seq
	a.seq++
	return event{name: e.Type, data: mustJSON(e)}
}

func (a *responseAnswer) events() iter.Seq[event] {
	return func(yield func(event) bool) {
		for _, kind := range []string{"response.created", "response.in_progress"} {
			o := a.object()
			if !yield(a.number(responseEvent{Type: kind, Response: &o})) {
				return
			}
		}

		index := 0
		if a.plan.reasoning > 0 {
			if !a.reasoning(yield, index) {
				return
			}
			index++
		}

		if a.calling() {
			if !a.call(yield, index) {
				return
			}
		} else if !a.message(yield, index) {
			return
		}

		yield(a.closing())
	}
}

func (a *responseAnswer) reasoning(yield func(event) bool, index int) bool {
	done := a.reasoningItem()
	begun := done
	begun.Summary = &[]responsePart{}
	if a.encrypted {
		begun.EncryptedContent = new(string)
	}

	text, none := summary, ""
	at := responseEvent{ItemID: done.ID, OutputIndex: &index, SummaryIndex: &zero}
	steps := []responseEvent{
		{Type: "response.output_item.added", OutputIndex: &index, Item: &begun},
		at.with(
			"response.reasoning_summary_part.added",
			func(e *responseEvent) { e.Part = &responsePart{Type: "summary_text", Text: &none} },
		),
		at.with("response.reasoning_summary_text.delta", func(e *responseEvent) { e.Delta, e.Obfuscation = &text, "xxx" }),
		at.with("response.reasoning_summary_text.done", func(e *responseEvent) { e.Text = &text }),
		at.with(
			"response.reasoning_summary_part.done",
			func(e *responseEvent) { e.Part = &responsePart{Type: "summary_text", Text: &text} },
		),
		{Type: "response.output_item.done", OutputIndex: &index, Item: &done},
	}
	return a.all(yield, steps)
}

// with returns another event at the same position.
func (e responseEvent) with(kind string, fill func(*responseEvent)) responseEvent {
	e.Type = kind
	fill(&e)
	return e
}

func (a *responseAnswer) all(yield func(event) bool, steps []responseEvent) bool {
	for _, step := range steps {
		if !yield(a.number(step)) {
			return false
		}
	}
	return true
}

func (a *responseAnswer) message(yield func(event) bool, index int) bool {
	done := a.mainItem()
	begun := done
	begun.Status, begun.Content = "in_progress", &[]responsePart{}
	at := responseEvent{ItemID: done.ID, OutputIndex: &index, ContentIndex: &zero}
	empty, full := a.part(""), (*done.Content)[0]
	ok := a.all(yield, []responseEvent{
		{Type: "response.output_item.added", OutputIndex: &index, Item: &begun},
		at.with("response.content_part.added", func(e *responseEvent) { e.Part = &empty }),
	})
	return ok && a.deltas(yield, at) && a.all(yield, []responseEvent{
		a.textDone(at, full),
		at.with("response.content_part.done", func(e *responseEvent) { e.Part = &full }),
		{Type: "response.output_item.done", OutputIndex: &index, Item: &done},
	})
}

func (a *responseAnswer) deltas(yield func(event) bool, at responseEvent) bool {
	for from := int64(0); from < a.plan.text; from += a.d.perEvent {
		until := min(from+a.d.perEvent, a.plan.text)
		text := words(from, until, a.d.wordBytes)
		at.Type, at.Delta, at.Obfuscation = "response.refusal.delta", &text, ""
		if !a.d.refuse {
			at.Type, at.Logprobs, at.Obfuscation = "response.output_text.delta", &[]string{}, strings.Repeat("x", int(from%7)+1)
		}
		e := a.number(at)
		e.words = until - from
		if !yield(e) {
			return false
		}
	}
	return true
}

// textDone returns the event with the whole text, which follows the deltas.
func (a *responseAnswer) textDone(at responseEvent, full responsePart) responseEvent {
	if a.d.refuse {
		return at.with("response.refusal.done", func(e *responseEvent) { e.Refusal = full.Refusal })
	}
	return at.with("response.output_text.done", func(e *responseEvent) { e.Text, e.Logprobs = full.Text, &[]string{} })
}

func (a *responseAnswer) call(yield func(event) bool, index int) bool {
	done := a.mainItem()
	begun := done
	begun.Status, begun.Arguments = "in_progress", new(string)
	added := a.number(responseEvent{Type: "response.output_item.added", OutputIndex: &index, Item: &begun})
	added.words = a.plan.text
	if !yield(added) {
		return false
	}

	at := responseEvent{ItemID: done.ID, OutputIndex: &index}
	var steps []responseEvent
	for _, piece := range argumentPieces(a.plan.tool.arguments) {
		steps = append(
			steps,
			at.with("response.function_call_arguments.delta", func(e *responseEvent) { e.Delta, e.Obfuscation = &piece, "xx" }),
		)
	}

	steps = append(steps,
		at.with("response.function_call_arguments.done", func(e *responseEvent) { e.Name, e.Arguments = done.Name, done.Arguments }),
		responseEvent{Type: "response.output_item.done", OutputIndex: &index, Item: &done})
	return a.all(yield, steps)
}

func (a *responseAnswer) closing() event {
	o := a.final()
	e := a.number(responseEvent{Type: "response." + o.Status, Response: &o})
	e.last = true
	if o.Usage != nil {
		e.usage, e.counts = o.Usage, a.plan.counts(Responses)
	}
	return e
}

func (a *responseAnswer) keepalive() event { return a.number(responseEvent{Type: "keepalive"}) }

func (a *responseAnswer) failure(f *fault) []event {
	detail := f.detail()
	if a.d.style == "flat" {
		e := event{name: "error", data: mustJSON(struct {
			Type           string  `json:"type"`
			SequenceNumber int64   `json:"sequence_number"`
			Code           *string `json:"code"`
			Message        string  `json:"message"`
			Param          *string `json:"param"`
		}{"error", a.seq, detail.Code, detail.Message, detail.Param})}
		a.seq++
		return []event{e}
	}

	o := a.withStatus("failed")
	o.Error = &responseError{Code: f.code, Message: f.message}
	return []event{
		a.number(responseEvent{Type: "error", Error: &detail}),
		a.number(responseEvent{Type: "response.failed", Response: &o}),
	}
}
