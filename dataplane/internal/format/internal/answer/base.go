// Package answer holds what the answers of all formats keep while they are read.
package answer

import (
	"bytes"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/price"
)

// Base is embedded in the answers of the formats. It is reused with its memory.
type Base struct {
	// Model is the client's name of the model, as JSON.
	Model []byte
	// Echo is what the client sent where the provider got something else.
	Echo Echo
	// Used is what the provider has reported, and Reported tells that the report is
	// complete.
	Used     price.Usage
	Reported bool
	// Bytes is the length of the text delivered.
	Bytes int64

	id      []byte
	failure []byte
	failed  bool
	frame   []byte
}

// keepBytes bounds what is kept of a buffer for another answer.
const keepBytes = 64 << 10

// Begin makes the Base one for another answer.
func (b *Base) Begin(cfg format.AnswerConfig) {
	model := cfg.ClientModel
	if model == "" && cfg.Request != nil {
		model = cfg.Request.Model
	}
	*b = Base{
		Model: jsonspan.AppendString(b.Model[:0], model),
		Echo:  b.Echo.empty(),
		id:    b.id[:0], failure: Trim(b.failure), frame: Trim(b.frame),
	}
}

// Trim empties a buffer that is kept for another answer, and drops one that has grown
// large.
func Trim(buf []byte) []byte {
	if cap(buf) > keepBytes {
		return nil
	}
	return buf[:0]
}

// Usage is format.Answer's.
func (b *Base) Usage() (usage price.Usage, reported bool) { return b.Used, b.Reported }

// DeliveredTokens is format.Answer's.
func (b *Base) DeliveredTokens() int64 { return format.Tokens(b.Bytes) }

// ProviderID is format.Answer's.
func (b *Base) ProviderID() string { return string(b.id) }

// Failure is format.Answer's.
func (b *Base) Failure() []byte {
	if !b.failed {
		return nil
	}
	return b.failure
}

// SetID notes the provider's id, the first that is not empty.
func (b *Base) SetID(raw []byte) {
	if len(b.id) > 0 {
		return
	}
	if id, ok := jsonspan.Text(nil, raw); ok && format.IsLabel(id) {
		b.id = append(b.id, id...)
	}
}

// Fail notes what came in place of an answer. The first says most.
func (b *Base) Fail(payload []byte) {
	if !b.failed {
		b.failure, b.failed = append(b.failure[:0], payload...), true
	}
}

// Failed tells whether there was a failure.
func (b *Base) Failed() bool { return b.failed }

// Open begins to rewrite an event: w copies the whole of it to dst, and text is what w
// copies, up to the end of the data, in which c visits the members.
func (b *Base) Open(dst []byte, ev sse.Event) (w jsonspan.Splicer, c jsonspan.ObjectCursor, text []byte) {
	frame, data := eventFrame(&b.frame, ev)
	text = frame[:data.End]
	return jsonspan.NewSplicer(dst, frame), jsonspan.ObjectAt(text, data.Start), text
}

// AddTexts adds the text of the members that count, inside the value at or after index
// at, to what was delivered. It returns how much that is.
func (b *Base) AddTexts(text []byte, at int, counts func(name []byte) bool) int64 {
	var sum TextSum
	SumTexts(&sum, text, at, counts)
	b.Bytes += sum.Len
	return sum.Len
}

// Pass is the event as the client gets it if nothing concerns it. One that was cut
// off with the stream is left out, as clients leave it out.
func Pass(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if ev.Partial && !ev.Comment {
		return dst, format.Other
	}
	return ev.AppendTerminated(dst), format.Other
}

// Done is the word that ends the streams of some formats.
const Done = "[DONE]"

// IsDone tells whether the data of an event are that word.
func IsDone(data []byte) bool {
	return len(data) > 0 && data[0] != '{' && string(bytes.TrimSpace(data)) == Done
}

// CutOff tells whether the event was cut within its data by the end of the stream: a
// whole JSON text, or the last word, lacks only its empty line.
func CutOff(ev sse.Event) bool {
	if !ev.Partial || IsDone(ev.Data) {
		return false
	}
	obj := jsonspan.Acquire()
	defer obj.Release()
	return obj.Parse(ev.Data) != nil
}

// Type returns the type of a named event, which its data repeat.
func Type(ev sse.Event) []byte {
	if len(ev.Name) > 0 {
		return ev.Name
	}
	raw, _ := jsonspan.Find(ev.Data, "type")
	text, _ := jsonspan.Text(nil, raw)
	return text
}
