package eventstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/platform/testkit/cloudsim"
	"modelgateway/shared/platform/testkit/wiresample"
)

// ping is what the models' maker sends between events, and Bedrock does not.
var ping = regexp.MustCompile(`event: ping\ndata: [^\n]*\n\n`)

// read reads a stream of frames through a Body.
func read(r io.Reader) (string, error) {
	b := NewBody(provider.NoAwait{ReadCloser: io.NopCloser(r)})
	out, err := io.ReadAll(b)
	return string(out), err
}

// samples returns the streams of the models' maker without their pings.
func samples(t testing.TB) map[string]string {
	t.Helper()
	streams := map[string]string{}
	names, err := fs.Glob(wiresample.Files(), "messages/*.sse")
	if err != nil || len(names) == 0 {
		t.Fatalf("samples: %d, %v", len(names), err)
	}
	for _, name := range names {
		streams[name] = ping.ReplaceAllString(string(wiresample.Read(t, name)), "")
	}
	return streams
}

func TestFramesBecomeTheEventsOfTheMaker(t *testing.T) {
	t.Parallel()
	for name, want := range samples(t) {
		frames := cloudsim.Encode(cloudsim.Frames([]byte(want))...)
		for how, reader := range map[string]io.Reader{
			"at once": bytes.NewReader(frames), "byte by byte": iotest.OneByteReader(bytes.NewReader(frames)), "in halves": iotest.HalfReader(bytes.NewReader(frames)),
			"with the end": iotest.DataErrReader(bytes.NewReader(frames)),
		} {
			if got, err := read(reader); err != nil || got != want {
				t.Errorf("%s, %s: %v\ngot  %s\nwant %s", name, how, err, got, want)
			}
		}
	}
}

func TestMetricsAloneAreRemoved(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"a":1}}`:              `{"type":"message_stop"}`,
		`{"amazon-bedrock-invocationMetrics":{"a":1}, "type":"message_stop" }`:            `{"type":"message_stop" }`,
		`{"type":"x","text":"amazon-bedrock-invocationMetrics", "n" : 1.0}`:               `{"type":"x","text":"amazon-bedrock-invocationMetrics", "n" : 1.0}`,
		`{"type":"x","deeper":{"amazon-bedrock-invocationMetrics":1}}`:                    `{"type":"x","deeper":{"amazon-bedrock-invocationMetrics":1}}`,
		`{"a":1,"type":"message_stop","amazon-bedrock-invocationMetrics":null,"b":"ü\n"}`: `{"a":1,"type":"message_stop","b":"ü\n"}`,
	} {
		got, err := read(bytes.NewReader(cloudsim.Encode(cloudsim.Chunk([]byte(in)))))
		if _, data, _ := strings.Cut(got, "data: "); err != nil || data != want+"\n\n" {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestExceptionsBecomeErrorsOfTheMaker(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"throttlingException":         "rate_limit_error",
		"serviceUnavailableException": "overloaded_error",
		"internalServerException":     "api_error",
		"modelStreamErrorException":   "api_error",
		"modelTimeoutException":       "timeout_error",
		"validationException":         "invalid_request_error",
		"accessDeniedException":       "permission_error",
		"somethingNewException":       "api_error",
	} {
		frames := cloudsim.Encode(cloudsim.Chunk([]byte(`{"type":"x"}`)), cloudsim.Exception(kind, "It \"failed\"."))
		got, err := read(bytes.NewReader(frames))
		wanted := "event: x\ndata: {\"type\":\"x\"}\n\n" + `event: error` + "\n" + `data: {"type":"error","error":{"type":"` + want + `","message":"It \"failed\"."}}` + "\n\n"
		if err != nil || got != wanted {
			t.Errorf("%s: got %s, %v; want %s", kind, got, err, wanted)
		}
	}

	unmodelled := cloudsim.Frame{Headers: [][2]string{{":message-type", "error"}, {":error-code", "InternalError"}, {":error-message", "Sorry"}}}
	if got, err := read(bytes.NewReader(cloudsim.Encode(unmodelled))); err != nil || !strings.Contains(got, `"type":"api_error","message":"Sorry"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

// What came before a broken frame is passed on, and then there is an error.
func TestBrokenFramesEndTheStream(t *testing.T) {
	t.Parallel()
	good := cloudsim.Encode(cloudsim.Chunk([]byte(`{"type":"x"}`)))
	const first = "event: x\ndata: {\"type\":\"x\"}\n\n"
	change := func(at int) []byte {
		broken := bytes.Clone(good)
		broken[at] ^= 1
		return broken
	}
	length := func(n uint32) []byte {
		broken := bytes.Clone(good)
		binary.BigEndian.PutUint32(broken, n)
		return broken
	}
	tests := map[string]struct {
		second []byte
		want   error
	}{
		"cut in its length":        {good[:3], io.ErrUnexpectedEOF},
		"cut in its payload":       {good[:len(good)-5], io.ErrUnexpectedEOF},
		"a changed checksum":       {change(9), errFrame},
		"a changed header":         {change(20), errFrame},
		"a changed payload":        {change(len(good) - 10), errFrame},
		"a changed last checksum":  {change(len(good) - 1), errFrame},
		"a length of nothing":      {length(0), errFrame},
		"a length of the smallest": {length(15), errFrame},
		"a length beyond reason":   {length(1 << 31), errFrame},
		"no event in it":           {cloudsim.Encode(cloudsim.Frame{Headers: [][2]string{{":message-type", "event"}, {":event-type", "chunk"}}, Payload: []byte(`{}`)}), errFrame},
		"no base64":                {cloudsim.Encode(cloudsim.Frame{Headers: [][2]string{{":message-type", "event"}, {":event-type", "chunk"}}, Payload: []byte(`{"bytes":"?"}`)}), errFrame},
		"text":                     {[]byte("data: {\"type\":\"error\"}\n\n"), errFrame},
	}
	for name, tt := range tests {
		got, err := read(iotest.HalfReader(bytes.NewReader(append(bytes.Clone(good), tt.second...))))
		if got != first || !errors.Is(err, tt.want) {
			t.Errorf("%s: got %q, %v; want %v", name, got, err, tt.want)
		}
	}
	if _, err := read(iotest.ErrReader(provider.ErrIdleTimeout)); !errors.Is(err, provider.ErrIdleTimeout) {
		t.Errorf("got %v; want the error of the source", err)
	}
}

func TestFramesOfOtherEventsAreLeftOut(t *testing.T) {
	t.Parallel()
	frames := cloudsim.Encode(
		cloudsim.Frame{Headers: [][2]string{{":message-type", "event"}, {":event-type", "later"}}, Payload: []byte("{}")},
		cloudsim.Frame{Headers: [][2]string{{":message-type", "later"}}},
		cloudsim.Chunk([]byte(`{"type":"x"}`)),
	)
	if got, err := read(bytes.NewReader(frames)); err != nil || got != "event: x\ndata: {\"type\":\"x\"}\n\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestEventThatIsNoObjectIsPassedOn(t *testing.T) {
	t.Parallel()
	if got, err := read(bytes.NewReader(cloudsim.Encode(cloudsim.Chunk([]byte("no\njson"))))); err != nil || got != "data: no\ndata: json\n\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// oneRead is a source that gives its bytes with one read and then waits for ever.
type oneRead struct {
	io.Reader
	awaited, closed bool
}

func (o *oneRead) Await() error { o.awaited = true; return nil }
func (o *oneRead) Close() error { o.closed = true; return nil }

func TestNoBufferIsHeldBetweenFrames(t *testing.T) {
	t.Parallel()
	frame := cloudsim.Encode(cloudsim.Chunk([]byte(`{"type":"x"}`)))
	source := &oneRead{Reader: bytes.NewReader(frame)}
	b := NewBody(source)
	p := make([]byte, 10)
	if _, err := b.Read(p); err != nil {
		t.Fatal(err)
	}
	if err := b.Await(); err != nil || source.awaited {
		t.Errorf("awaits more, though a part of an event is left: %v", err)
	}
	for b.out != nil {
		if _, err := b.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Await(); err != nil || !source.awaited || b.in != nil {
		t.Errorf("got %v, awaited %v, in %v", err, source.awaited, b.in)
	}
	if err := b.Close(); err != nil || !source.closed {
		t.Errorf("got %v, closed %v", err, source.closed)
	}
	if _, err := b.Read(p); err == nil {
		t.Error("read after Close")
	}
}

// A frame that claims to be large takes no memory before its bytes have come, and a large one is passed on.
func TestMemoryIsBounded(t *testing.T) {
	claim := bytes.Clone(cloudsim.Encode(cloudsim.Chunk([]byte(`{"type":"x"}`))))
	binary.BigEndian.PutUint32(claim, maxFrame)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := read(bytes.NewReader(claim)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("used %d bytes", used)
	}
	text := strings.Repeat("a", 4<<20)
	if got, err := read(bytes.NewReader(cloudsim.Encode(cloudsim.Chunk([]byte(`{"type":"x","t":"` + text + `"}`))))); err != nil || !strings.Contains(got, text) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// No bytes break the framing of the event stream, whatever the size of reads.
func FuzzBody(f *testing.F) {
	for _, stream := range samples(f) {
		f.Add(cloudsim.Encode(cloudsim.Frames([]byte(stream))...), uint16(7))
	}
	f.Add(cloudsim.Encode(cloudsim.Exception("throttlingException", "x")), uint16(1))
	f.Add(cloudsim.Encode(cloudsim.Chunk([]byte("a\r\nb"))), uint16(100))
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		whole, wholeErr := read(bytes.NewReader(stream))
		parts, partsErr := read(&sizedReader{bytes.NewReader(stream), int(size)%1000 + 1})
		if whole != parts || !errors.Is(partsErr, wholeErr) {
			t.Errorf("got %q, %v at once and %q, %v in parts", whole, wholeErr, parts, partsErr)
		}
		if whole != "" && !strings.HasSuffix(whole, "\n\n") {
			t.Errorf("the last event is not complete: %q", whole)
		}
	})
}

type sizedReader struct {
	r    io.Reader
	size int
}

func (s *sizedReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.size)]) }

func BenchmarkBody(b *testing.B) {
	frame := cloudsim.Encode(cloudsim.Chunk([]byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word"}}`)))
	b.ReportAllocs()
	source := &oneRead{Reader: bytes.NewReader(bytes.Repeat(frame, b.N))}
	body := NewBody(source)
	p := make([]byte, readSize)
	for {
		if _, err := body.Read(p); err != nil {
			break
		}
	}
}
