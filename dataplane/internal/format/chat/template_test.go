package chat

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/sse"
)

func feed(a format.Answer, stream []byte) (out []byte) {
	var s sse.Splitter
	defer s.Close()
	s.Feed(stream)
	for ev, ok := s.Next(); ok; ev, ok = s.Next() {
		out, _ = a.Event(out, ev)
	}
	if ev, ok := s.Flush(); ok {
		out, _ = a.Event(out, ev)
	}
	return out
}

// withoutTemplate returns a reader that parses every chunk.
func withoutTemplate(wantsUsage bool) *reader {
	a := Dialect{}.NewAnswer(format.AnswerConfig{ClientModel: "m"}).(*reader)
	a.wantsUsage, a.template.builds = wantsUsage, maxTemplateBuilds
	return a
}

// compare feeds a stream to a reader with a template and to one without.
func compare(t *testing.T, stream []byte, wantsUsage bool) {
	t.Helper()
	slow := withoutTemplate(wantsUsage)
	defer slow.Release()
	want := feed(slow, stream)
	fast := Dialect{}.NewAnswer(format.AnswerConfig{ClientModel: "m"}).(*reader)
	defer fast.Release()
	fast.wantsUsage = wantsUsage
	got := feed(fast, stream)
	if !bytes.Equal(want, got) {
		t.Errorf("without a template:\n%s\nwith one:\n%s", want, got)
	}
	wantUsage, _ := slow.Usage()
	gotUsage, _ := fast.Usage()
	if wantUsage != gotUsage || slow.Delivered != fast.Delivered || slow.ended != fast.ended || slow.Failed() != fast.Failed() {
		t.Errorf("without a template: %+v, %d bytes, %d ended; with one: %+v, %d, %d",
			wantUsage, slow.Delivered.Bytes, slow.ended, gotUsage, fast.Delivered.Bytes, fast.ended)
	}
}

const (
	chunkHead = `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"content":"`
	chunkTail = `"},"finish_reason":null}],"usage":null`
)

var templateStreams = map[string]string{
	"same":                    chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + `\"b\\` + chunkTail + "}\n\n",
	"empty text":              chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + chunkTail + "}\n\n",
	"padding":                 chunkHead + `a` + chunkTail + `,"obfuscation":"x"}` + "\n\n" + chunkHead + `b` + chunkTail + `,"obfuscation":"\"y"}` + "\n\n",
	"padding first":           `data: {"obfuscation":"x","model":"up","choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"obfuscation":"y","model":"up","choices":[{"delta":{"content":"b"}}]}` + "\n\n",
	"padding missing":         chunkHead + `a` + chunkTail + `,"obfuscation":"x"}` + "\n\n" + chunkHead + `b` + chunkTail + "}\n\n",
	"an end":                  chunkHead + `a` + chunkTail + "}\n\n" + `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],"usage":null}` + "\n\n",
	"an additional member":    chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + `b","refusal":"c` + chunkTail + "}\n\n",
	"an error":                chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + `b` + chunkTail + `,"error":{"message":"x"}}` + "\n\n",
	"usage":                   chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + `b"},"finish_reason":null}],"usage":{"prompt_tokens":3}}` + "\n\n",
	"cut":                     chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + `b` + chunkTail + "}\n",
	"cut within":              chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + `b`,
	"two lines":               chunkHead + `a` + chunkTail + "}\n\n" + chunkHead + "b\ndata: c" + chunkTail + "}\n\n",
	"another line":            chunkHead + `a` + chunkTail + "}\n\n" + "id: 7\n" + chunkHead + `b` + chunkTail + "}\n\n",
	"no space":                `data:{"model":"up","choices":[{"delta":{"content":"a"}}]}` + "\r\n\r\n" + `data:{"model":"up","choices":[{"delta":{"content":"b"}}]}` + "\r\n\r\n",
	"reasoning":               `data: {"model":"up","choices":[{"delta":{"content":"","reasoning":"a","reasoning_content":"a"}}]}` + "\n\n" + `data: {"model":"up","choices":[{"delta":{"content":"","reasoning":"a","reasoning_content":"bcd"}}]}` + "\n\n",
	"arguments":               `data: {"model":"up","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}` + "\n\n" + `data: {"model":"up","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}` + "\n\n",
	"model after the choices": `data: {"choices":[{"delta":{"content":"a"}}],"model":"up"}` + "\n\n" + `data: {"choices":[{"delta":{"content":"b"}}],"model":"up"}` + "\n\n",
	"error null":              `data: {"error":null,"choices":[{"delta":{"content":"a"}}],"model":"up"}` + "\n\n" + `data: {"error":null,"choices":[{"delta":{"content":"b"}}],"model":"up"}` + "\n\n",
	"after a failure":         chunkHead + `a` + chunkTail + "}\n\ndata: {\"error\":\"x\"}\n\n" + chunkHead + `b` + chunkTail + "}\n\n",
}

func TestTemplateDoesNotChangeTheResult(t *testing.T) {
	t.Parallel()
	for name, stream := range templateStreams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, []byte(stream), false)
			compare(t, []byte(stream), true)
		})
	}
}

func TestTemplateMatchesOrdinaryChunks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"same", "padding", "no space", "arguments", "model after the choices", "error null"} {
		a := Dialect{}.NewAnswer(format.AnswerConfig{ClientModel: "m"}).(*reader)
		feed(a, []byte(templateStreams[name]))
		if a.template.builds != 1 {
			t.Errorf("%s: the template was built %d times", name, a.template.builds)
		}
		a.Release()
	}
}

// All chunks of the stream differ.
func TestTemplateIsBuiltALimitedNumberOfTimes(t *testing.T) {
	t.Parallel()
	a := Dialect{}.NewAnswer(format.AnswerConfig{ClientModel: "m"}).(*reader)
	defer a.Release()
	for i := range 100 {
		feed(a, []byte(`data: {"created":1`+string(rune('0'+i%10))+`,"model":"up","choices":[{"delta":{"content":"a"}}]}`+"\n\n"))
	}
	if a.template.builds != maxTemplateBuilds || a.Delivered.Bytes != 100 {
		t.Errorf("built %d times, %d bytes", a.template.builds, a.Delivered.Bytes)
	}
}

// FuzzTemplate searches for a stream that a template changes.
func FuzzTemplate(f *testing.F) {
	for _, stream := range templateStreams {
		f.Add([]byte(stream), false)
	}
	files, err := filepath.Glob("../conformance/testdata/chat/*.sse")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream, true)
	}
	f.Fuzz(compare)
}
