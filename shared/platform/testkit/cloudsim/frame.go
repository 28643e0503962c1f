package cloudsim

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"slices"
	"strings"
)

// Frame is one message of an AWS event stream.
type Frame struct {
	// Headers are the headers, name and value after one another. All are texts.
	Headers [][2]string
	Payload []byte
}

// AppendTo appends the encoded frame.
func (f Frame) AppendTo(dst []byte) []byte {
	var headers []byte
	for _, h := range f.Headers {
		headers = append(append(headers, byte(len(h[0]))), h[0]...)
		headers = append(headers, 7) // a text
		headers = append(binary.BigEndian.AppendUint16(headers, uint16(len(h[1]))), h[1]...)
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(16+len(headers)+len(f.Payload)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(headers)))
	dst = binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
	dst = append(append(dst, headers...), f.Payload...)
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
}

// Chunk is the frame in which Bedrock sends an event of the model.
func Chunk(event []byte) Frame {
	payload, err := json.Marshal(map[string]string{
		"bytes": base64.StdEncoding.EncodeToString(event), "p": strings.Repeat("abcdefghij", len(event)%4),
	})
	if err != nil {
		panic(err)
	}
	return Frame{[][2]string{{":event-type", "chunk"}, {":content-type", "application/json"}, {":message-type", "event"}}, payload}
}

// Exception is the frame in which Bedrock reports an error inside a stream.
func Exception(kind, message string) Frame {
	payload, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		panic(err)
	}
	return Frame{[][2]string{{":exception-type", kind}, {":content-type", "application/json"}, {":message-type", "exception"}}, payload}
}

// InvocationMetrics is what Bedrock adds to the last event of a stream.
const InvocationMetrics = `,"amazon-bedrock-invocationMetrics":{"inputTokenCount":12,"outputTokenCount":5,` +
	`"invocationLatency":900,"firstByteLatency":300}`

// Frames returns an event stream of Anthropic as Bedrock sends it: a frame for each event, the last one with the metrics of
// the invocation. Bedrock sends no pings.
func Frames(stream []byte) (frames []Frame) {
	for block := range bytes.SplitSeq(stream, []byte("\n\n")) {
		_, data, found := bytes.Cut(block, []byte("data: "))
		if !found || bytes.Contains(block, []byte("event: ping")) {
			continue
		}
		if bytes.Contains(block, []byte("event: message_stop")) {
			data = slices.Concat(bytes.TrimRight(data, " }"), []byte(InvocationMetrics), []byte("}"))
		}
		frames = append(frames, Chunk(data))
	}
	return frames
}

// Encode returns the bytes of frames.
func Encode(frames ...Frame) (encoded []byte) {
	for _, f := range frames {
		encoded = f.AppendTo(encoded)
	}
	return encoded
}
