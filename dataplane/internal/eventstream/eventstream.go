// Package eventstream turns the event streams of AWS, in which Bedrock sends the answers of models, into the event streams
// that the models' maker sends itself.
//
// It owns the frames and what Bedrock puts around an event: the event itself is passed on byte for byte, but for the figures
// that Bedrock adds to the last one. An exception becomes the error event of the same meaning. It does not interpret events.
//
// Invariants:
//
//   - What a client sees does not depend on how the stream was split into reads.
//   - A frame is passed on when it is complete and its checksums are right. A broken frame, or an end within one, is an error
//     behind all events before it.
//   - A stream that waits between two frames holds no buffer; within a frame, one of at most maxFrame bytes.
package eventstream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/sse"
)

// MediaType is the media type of an event stream of AWS.
const MediaType = "application/vnd.amazon.eventstream"

const (
	// maxFrame bounds a frame in bytes. AWS sends at most 16 MiB in one.
	maxFrame = 17 << 20
	// preludeSize is the length of the part of a frame that says how long it is.
	preludeSize = 12
	// readSize is the most that is read at once, and what a pooled buffer keeps, in bytes.
	readSize = 16 << 10
)

var (
	// What follows a broken frame cannot be read, so the stream ends too early.
	errFrame = fmt.Errorf("eventstream: a frame is broken: %w", io.ErrUnexpectedEOF)
	buffers  = sync.Pool{New: func() any { b := make([]byte, 0, readSize); return &b }}
)

// Body is the body of an answer, read as an event stream of the models' maker.
type Body struct {
	source  provider.AnswerBody
	decoder *aws.Decoder
	// in has the bytes of an incomplete frame, out the events that have not been read. Both are nil without any.
	in, out *[]byte
	// read is how much of out was read.
	read int
	err  error
}

// NewBody returns a Body that reads from source, which it closes.
func NewBody(source provider.AnswerBody) *Body {
	return &Body{source: source, decoder: aws.NewDecoder()}
}

// Await implements provider.AnswerBody.
func (b *Body) Await() error {
	if b.out != nil || b.err != nil {
		return nil //nolint:nilerr // Read returns it
	}
	return b.source.Await()
}

func (b *Body) Read(p []byte) (int, error) {
	for b.out == nil {
		if b.err != nil {
			return 0, b.err
		}
		b.fill()
	}

	n := copy(p, (*b.out)[b.read:])
	if b.read += n; b.read == len(*b.out) {
		put(&b.out)
		b.read = 0
	}

	return n, nil
}

// Close closes the source.
func (b *Body) Close() error {
	put(&b.in)
	put(&b.out)
	if b.err == nil {
		b.err = io.ErrClosedPipe
	}
	return b.source.Close() //nolint:wrapcheck // passed through as the body's own
}

// put returns a buffer.
func put(b **[]byte) {
	if *b == nil {
		return
	}
	if cap(**b) <= readSize {
		**b = (**b)[:0]
		buffers.Put(*b)
	}
	*b = nil
}

// fill reads once and decodes the frames that are complete then.
func (b *Body) fill() {
	if b.in == nil {
		b.in = buffers.Get().(*[]byte)
	}
	in := b.grown()
	n, err := b.source.Read(in[len(in):cap(in)])
	in = in[:len(in)+n]
	rest, broken := b.decode(in)
	*b.in = in[:copy(in, rest)]
	empty := len(rest) == 0
	switch {
	case broken != nil:
		b.err = broken
	case errors.Is(err, io.EOF) && !empty:
		b.err = io.ErrUnexpectedEOF
	default:
		b.err = err
	}
	if empty || b.err != nil {
		put(&b.in)
	}
}

// grown returns the input with room for the rest of its frame, or for a read.
func (b *Body) grown() []byte {
	in := *b.in
	want := len(in) + 1
	if size, err := frameSize(in); err == nil && size > 0 {
		want = size
	}
	// In steps, because the length may be a lie.
	if want = min(want, max(2*len(in), readSize)); cap(in) < want {
		in = append(make([]byte, 0, want), in...)
	}
	return in
}

// frameSize returns the length of the frame that begins a text, zero if more of it is needed.
func frameSize(in []byte) (int, error) {
	if len(in) < preludeSize {
		return 0, nil
	}
	size, headers := binary.BigEndian.Uint32(in), binary.BigEndian.Uint32(in[4:])
	if size > maxFrame || size < preludeSize+4 || headers > size-preludeSize-4 {
		return 0, errFrame
	}
	return int(size), nil
}

// decode appends the events of the complete frames to the output and returns the bytes behind them.
func (b *Body) decode(in []byte) (rest []byte, err error) {
	for {
		size, err := frameSize(in)
		if err != nil {
			return nil, err
		}
		if size == 0 || len(in) < size {
			return in, nil
		}
		frame, err := b.decoder.Decode(bytes.NewReader(in[:size]), nil)
		if err != nil {
			return nil, errFrame // the cause may have parts of the stream
		}
		in = in[size:]
		if err := b.event(&frame); err != nil {
			return nil, err
		}
	}
}

// event appends the event of a frame.
func (b *Body) event(frame *aws.Message) error {
	switch header(frame, ":message-type") {
	case "event":
		if header(frame, ":event-type") != "chunk" {
			return nil // of a later version
		}
		var chunk struct {
			Bytes []byte `json:"bytes"`
		}
		if json.Unmarshal(frame.Payload, &chunk) != nil || chunk.Bytes == nil {
			return errFrame
		}
		b.appendEvent(chunk.Bytes)
	case "exception", "error":
		b.append("error", exception(frame))
	}
	return nil
}

func (b *Body) append(name string, data []byte) {
	if b.out == nil {
		b.out = buffers.Get().(*[]byte)
	}
	*b.out = sse.AppendEvent(*b.out, name, data)
}

// header returns a header of a frame, empty if it has none of the name or no text.
func header(frame *aws.Message, name string) string {
	text, _ := frame.Headers.Get(name).(aws.StringValue)
	return string(text)
}

// metrics is the member that Bedrock adds to the last event.
const metrics = "amazon-bedrock-invocationMetrics"

// appendEvent appends an event as the models' maker sends it: its name is its type.
func (b *Body) appendEvent(data []byte) {
	object := jsonspan.Acquire()
	defer object.Release()
	if object.Parse(data) != nil {
		b.append("", data)
		return
	}

	name, _ := jsonspan.Text(nil, object.Value("type"))
	if object.Index(metrics) >= 0 {
		var edit jsonspan.Edit
		edit.Begin(object)
		edit.Drop(metrics)
		data = edit.Append(nil)
	}
	b.append(string(name), data)
}

// errorTypes has the type of the models' maker for each exception. What is not listed is its api_error.
var errorTypes = map[string]string{
	"throttlingexception":           "rate_limit_error",
	"servicequotaexceededexception": "rate_limit_error",
	"serviceunavailableexception":   "overloaded_error",
	"modelnotreadyexception":        "overloaded_error",
	"modeltimeoutexception":         "timeout_error",
	"validationexception":           "invalid_request_error",
	"accessdeniedexception":         "permission_error",
	"resourcenotfoundexception":     "not_found_error",
}

// exception returns the data of the error event for a frame that reports an error.
func exception(frame *aws.Message) []byte {
	kind := header(frame, ":exception-type")
	if kind == "" {
		kind = header(frame, ":error-code")
	}
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(frame.Payload, &said) != nil || said.Message == "" {
		said.Message = header(frame, ":error-message")
	}
	class := errorTypes[strings.ToLower(kind)]
	if class == "" {
		class = "api_error"
	}
	if said.Message == "" {
		said.Message = kind
	}
	data := jsonspan.AppendString([]byte(`{"type":"error","error":{"type":`), class)
	data = jsonspan.AppendString(append(data, `,"message":`...), said.Message)
	data = append(data, "}}"...)
	return data
}
