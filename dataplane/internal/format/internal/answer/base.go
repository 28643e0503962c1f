// Package answer has the parts that the answers of all formats share.
package answer

import (
	"bytes"
	"cmp"
	"strings"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/price"
)

// Base is embedded in the readers of all formats. Reusing it reuses its memory.
type Base struct {
	// Model is the client's name of the model, as JSON.
	Model []byte
	// Echo has the client's values of parameters that were replaced for the provider.
	Echo Echo
	// Counts are the counts that the provider has reported so far, Total is the usage that they make. Reported reports
	// whether it is final, Ambiguous whether the counts have several meanings.
	Counts              usagereport.Counts
	Total               price.Usage
	Reported, Ambiguous bool
	// Unreadable reports whether there was a report that could not be read.
	Unreadable bool
	// Delivered is the size of the delivered text, Audio that of the audio in base64. Images counts the images of the model,
	// ToolImages those of the image tool, and Calls the calls of tools that the provider runs and charges.
	Delivered                        Size
	Audio, Images, ToolImages, Calls int64
	// Now is how far a stream is.
	Now format.Progress
	// Tier is the service tier that the answer names, format.AutoTier if it says so far only that the provider chooses one; Speed
	// is the mode of the messages format that it says it was made in.
	Tier, Speed string

	id      []byte
	failure []byte
	failed  bool
	frame   []byte
	visible []byte
}

// maxPooledBytes is the capacity up to which a buffer is kept for another answer.
const maxPooledBytes = 64 << 10

// Begin prepares the Base for another answer.
func (b *Base) Begin(cfg format.AnswerConfig) {
	model := cfg.ClientModel
	if model == "" && cfg.Request != nil {
		model = cfg.Request.Model
	}
	*b = Base{
		Model:   jsonspan.AppendString(b.Model[:0], model),
		Echo:    b.Echo.reset(),
		id:      b.id[:0],
		failure: Trim(b.failure),
		frame:   Trim(b.frame),
		visible: Trim(b.visible),
	}
}

// Trim empties a buffer for another answer, and drops it if it has grown large.
func Trim(buf []byte) []byte {
	if cap(buf) > maxPooledBytes {
		return nil
	}
	return buf[:0]
}

// Found is what a usage object turned out to be.
type Found uint8

const (
	// Nothing means that it is no object, or has no count.
	Nothing Found = iota
	// Unreadable means that one of its counts cannot be read.
	Unreadable
	// Placeholder means that it has no output, although an earlier report had some.
	Placeholder
	// Counts means that it covers the answer so far.
	Counts
)

// Report updates the counts from a usage object that can be read.
func (b *Base) Report(raw []byte) Found { return b.update(usagereport.Read(raw)) }

// ReportElsewhere is Report for an answer or event that has no usage object in the place of its format.
func (b *Base) ReportElsewhere(answer []byte) Found { return b.Report(usagereport.Elsewhere(answer)) }

// ReportTimings is Report for the object of servers that have no usage object.
func (b *Base) ReportTimings(raw []byte) Found { return b.update(usagereport.ReadTimings(raw)) }

func (b *Base) update(c usagereport.Counts, found, readable bool) Found {
	switch {
	case !found:
		return Nothing
	case !readable:
		b.Unreadable = true
		return Unreadable
	}
	known := b.Counts.Output
	b.Counts.Update(&c)
	if c.Output == 0 && known > 0 {
		return Placeholder
	}
	return Counts
}

func (b *Base) Usage() (usage price.Usage, reported bool) { return b.Total, b.Reported }

func (b *Base) DeliveredTokens() int64 { return format.EstimateTokens(b.Delivered.Bytes) }

func (b *Base) Evidence() usagereport.Evidence {
	return usagereport.Evidence{
		ServiceTier: b.Tier,
		Speed:       b.Speed,
		Unreadable:  b.Unreadable,
		Ambiguous:   b.Ambiguous,
		Tokens:      b.DeliveredTokens(),
		Chars:       b.Delivered.Chars,
		Audio:       b.audioTokens(),
		Images:      b.images(),
		Hidden:      b.Counts.Hidden(),
	}
}

// SetServiceTier notes the service tier that an answer names. Providers have several names for the default one; a stream may
// begin with what was asked for.
func (b *Base) SetServiceTier(raw []byte) {
	switch name := tierName(raw); name {
	case "":
	case format.AutoTier:
		b.Tier = cmp.Or(b.Tier, name)
	case price.DefaultTier, "standard", "standard_only", "on_demand":
		b.Tier = price.DefaultTier
	default:
		b.Tier = name
	}
}

// SetSpeed notes the mode that an answer of the messages format says it was made in.
func (b *Base) SetSpeed(raw []byte) {
	if name := tierName(raw); name != "" {
		b.Speed = name
	}
}

// tierName returns the name of a service tier in the spelling of price sheets.
func tierName(raw []byte) string {
	name, _ := jsonspan.Text(nil, raw)
	return strings.ReplaceAll(strings.ToLower(format.Label(name)), "-", "_")
}

const (
	// audioPerToken is the length of the audio of one token in base64: streams have 24,000 samples of two bytes a second,
	// for which models count about 20 tokens.
	audioPerToken = 3000
	// tokensPerImage is what an image of usual size and high quality takes.
	tokensPerImage = 4160
)

// images returns the number of delivered images of the model, of which some may be in its text.
func (b *Base) images() int64 { return b.Images + b.Delivered.Images }

// audioTokens returns the estimate of the tokens of the delivered audio.
func (b *Base) audioTokens() int64 { return (b.Audio + audioPerToken - 1) / audioPerToken }

func (b *Base) AddDelivered(u *price.Usage) {
	audio, images := b.audioTokens(), b.images()*tokensPerImage
	u.AudioOut, u.ImageOut, u.Images = max(u.AudioOut, audio), max(u.ImageOut, images), max(u.Images, b.images())
	u.Output = max(u.Output, b.DeliveredTokens()+audio+images)
	u.ServerToolRequests = max(u.ServerToolRequests, b.Calls)
	if b.ToolImages > u.Secondary.Images {
		tokens := b.ToolImages * tokensPerImage
		u.Secondary = price.Secondary{
			Kind:     price.ImageTool,
			Images:   b.ToolImages,
			Output:   tokens,
			ImageOut: tokens,
		}
	}
}

func (b *Base) Progress() format.Progress { return b.Now }

func (b *Base) ProviderID() string { return string(b.id) }

func (b *Base) Failure() []byte {
	if !b.failed {
		return nil
	}
	return b.failure
}

// SetID sets the provider's id. The first id that is not empty is kept.
func (b *Base) SetID(raw []byte) {
	if len(b.id) > 0 {
		return
	}
	if id, ok := jsonspan.Text(nil, raw); ok && format.IsLabel(id) {
		b.id = append(b.id, id...)
	}
}

// RecordFailure records the payload that came instead of an answer, without the parts that the client or the model has
// written. The first failure is kept, because later ones are usually less specific.
func (b *Base) RecordFailure(payload []byte) {
	if !b.failed {
		b.failure, b.failed = appendOwnWords(b.failure[:0], payload), true
	}
}

// RecordNothing records that an answer without an error has nothing in it. The classifier sees an empty list beside the
// words in which the provider may say why.
func (b *Base) RecordNothing(body []byte) {
	if b.failed {
		return
	}
	b.failure, b.failed = append(b.failure[:0], `{"data":[],"answer":`...), true
	b.failure = append(appendOwnWords(b.failure, body), '}')
}

// Fail records the payload of an event that is an error. The client does not get the event.
func (b *Base) Fail(dst, payload []byte) ([]byte, format.Kind) {
	b.RecordFailure(payload)
	return dst, format.Failure
}

// Failed reports whether a failure was recorded.
func (b *Base) Failed() bool { return b.failed }

// BeginRewrite starts to rewrite an event. The splicer copies the whole event to dst; the cursor visits the members
// of its data, which end at the end of text.
func (b *Base) BeginRewrite(dst []byte, ev sse.Event) (w jsonspan.Splicer, c jsonspan.ObjectCursor, text []byte) {
	frame, data := eventFrame(&b.frame, ev)
	text = frame[:data.End]
	return jsonspan.NewSplicer(dst, frame), jsonspan.ObjectAt(text, data.Start), text
}

// AddTexts adds the lengths of the texts in the value at or after index at to the delivered text, see SumTexts. It
// returns the added length.
func (b *Base) AddTexts(text []byte, at int, counts func(name []byte) bool) int64 {
	var sum TextSum
	SumTexts(&sum, text, at, counts)
	b.Delivered.Add(sum.Size)
	return sum.Bytes
}

// Visible returns an event without what a client must not see, because it can disclose the provider: the text of a comment,
// and all lines but the event and data fields. An error without the framing of an event is returned as it is.
func (b *Base) Visible(ev sse.Event) sse.Event {
	switch {
	case ev.Comment:
		ev.Raw = bareComment
	case ev.Bare || !ev.Extra:
	case ev.Data == nil:
		ev.Raw = nil
	default:
		b.visible = sse.AppendEvent(b.visible[:0], string(ev.Name), ev.Data)
		ev.Raw, ev.Extra = b.visible, false
	}
	return ev
}

var bareComment = []byte(":\n")

// IsIgnored reports whether an event says nothing: it has no data, or they are null, or truncated, or there is an error in it
// without the framing of an event. PassThrough handles such an event.
func IsIgnored(ev sse.Event) bool {
	return len(ev.Data) == 0 || ev.Bare || isNull(ev) || ev.Partial && IsTruncated(ev)
}

// isNull reports whether the data of an event are null, which no client expects in place of an object.
func isNull(ev sse.Event) bool {
	return len(ev.Data) > 0 && ev.Data[0] != '{' && string(bytes.TrimSpace(ev.Data)) == "null"
}

// PassThrough returns the client's copy of an event that IsIgnored. An event whose data are null, or that the end of the stream
// truncated, is left out. A bare object is an error of the provider, because no format has such lines.
func (b *Base) PassThrough(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	switch {
	case ev.Bare:
		return b.Fail(dst, ev.Raw)
	case isNull(ev), ev.Partial && !ev.Comment:
		return dst, format.Other
	}
	return ev.AppendTerminated(dst), format.Other
}

// Done is the data of the event that ends the streams of some formats.
const Done = "[DONE]"

// IsDone reports whether the data of an event are Done.
func IsDone(data []byte) bool {
	return len(data) > 0 && data[0] != '{' && string(bytes.TrimSpace(data)) == Done
}

// IsTruncated reports whether the end of the stream truncated the data of the event. If the data are a complete JSON
// text, or Done, only the empty line is missing.
func IsTruncated(ev sse.Event) bool {
	if !ev.Partial || IsDone(ev.Data) {
		return false
	}
	obj := jsonspan.Acquire()
	defer obj.Release()
	return obj.Parse(ev.Data) != nil
}

// IsOwn reports whether an event is one of the format's own, known or not, rather than an error without the form of an
// event: its data state its type, which is its name or, if it has none, one that known accepts.
func IsOwn(ev sse.Event, known func(kind []byte) bool) bool {
	raw, _ := jsonspan.Find(ev.Data, "type")
	kind, _ := jsonspan.Text(nil, raw)
	if len(kind) == 0 {
		return false
	}
	return known(kind) || bytes.Equal(kind, ev.Name)
}

// Type returns the type of an event: its name or, if it has none, the member "type" of its data.
func Type(ev sse.Event) []byte {
	if len(ev.Name) > 0 {
		return ev.Name
	}
	raw, _ := jsonspan.Find(ev.Data, "type")
	text, _ := jsonspan.Text(nil, raw)
	return text
}
