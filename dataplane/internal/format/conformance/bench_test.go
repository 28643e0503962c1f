package conformance

import (
	"fmt"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/catalogkv"
)

// chunk is a chunk of a chat stream, 230 bytes on the wire.
func chunk(tail string) []byte {
	const head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"`
	tail = `"},"finish_reason":null}]` + tail + "}\n\n"
	return []byte(head + strings.Repeat("x", 230-len(head)-len(tail)) + tail)
}

// streams returns one content event of each kind, by the name of the case.
func streams() map[string]struct {
	f      catalogkv.Format
	events []byte
} {
	type stream = struct {
		f      catalogkv.Format
		events []byte
	}
	return map[string]stream{
		"chat":             {catalogkv.Chat, chunk("")},
		"chat null usage":  {catalogkv.Chat, chunk(`,"usage":null`)},
		"chat obfuscation": {catalogkv.Chat, chunk(`,"usage":null,"obfuscation":"x7Qa"`)},
		"responses": {catalogkv.Responses, []byte("event: response.output_text.delta\n" +
			`data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_EX1","output_index":0,"content_index":0,"delta":"` +
			strings.Repeat("x", 50) + `","logprobs":[],"obfuscation":"7hQ"}` + "\n\n")},
		"messages": {catalogkv.Messages, []byte("event: content_block_delta\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + strings.Repeat("x", 50) + `"}}` + "\n\n")},
	}
}

func BenchmarkEvent(b *testing.B) {
	for name, s := range streams() {
		for _, model := range []string{"m", "other"} {
			for _, asked := range []bool{false, true} {
				if s.f != catalogkv.Chat && asked {
					continue
				}
				b.Run(fmt.Sprintf("%s/model=%s/asked=%v", name, model, asked), func(b *testing.B) {
					a := answerFor(b, s.f, model, asked)
					var splitter sse.Splitter
					splitter.Feed(s.events)
					ev, _ := splitter.Next()
					dst := make([]byte, 0, 1024)
					b.SetBytes(int64(len(ev.Raw)))
					b.ReportAllocs()
					for b.Loop() {
						dst, _ = a.Event(dst[:0], ev)
					}
				})
			}
		}
	}
}

// answerFor returns the answer to a request of the format.
func answerFor(tb testing.TB, f catalogkv.Format, model string, wantsUsage bool) format.Answer {
	tb.Helper()
	body := fmt.Sprintf(`{"model":%q,"stream":true,"stream_options":{"include_usage":%v}}`, model, wantsUsage)
	var obj jsonspan.Object
	if err := obj.Parse([]byte(body)); err != nil {
		tb.Fatal(err)
	}
	d := dialects[f]
	r, e := d.Read(&obj)
	if e != nil {
		tb.Fatal(e)
	}
	defer r.Release()
	a := d.NewAnswer(format.AnswerConfig{Request: r})
	tb.Cleanup(a.Release)
	return a
}

// requestBodies returns chat requests of different sizes and kinds of text.
func requestBodies() map[string][]byte {
	plain := strings.Repeat("some words of a prompt without any quotes in it ", 1<<20/48)
	code := strings.Repeat(`if (x[\"name\"] == y) { return \"a long line of program text, with quotes\"; }\n`, 1<<20/80)
	bodies := map[string][]byte{}
	for name, content := range map[string]string{"1KB": plain[:1000], "1MB plain": plain, "1MB code": code} {
		bodies[name] = []byte(`{"model":"m","stream":true,"temperature":1,"user":"u","messages":[{"role":"user","content":"` + content + `"}]}`)
	}
	return bodies
}

func BenchmarkRequest(b *testing.B) {
	d := dialects[catalogkv.Chat]
	target := format.Target{Model: "upstream-name", Policy: d.Policy(), IdentityFunc: func(string) string { return "u_0123456789" }}
	for name, body := range requestBodies() {
		obj := parse(b, string(body))
		run := func(step string, fn func(r *format.Request)) {
			b.Run(name+"/"+step, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					r, e := d.Read(obj)
					if e != nil {
						b.Fatal(e)
					}
					fn(r)
					r.Release()
				}
			})
		}
		run("check", func(r *format.Request) {
			if e := r.Check(d.Policy(), format.Rules{}); e != nil {
				b.Fatal(e)
			}
		})
		dst := make([]byte, 0, len(body)+1024)
		run("upstream", func(r *format.Request) { dst = r.AppendUpstream(dst[:0], target) })
	}
}

func BenchmarkJSON(b *testing.B) {
	bodies := map[catalogkv.Format]string{
		catalogkv.Chat: `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"up","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 120) +
			`","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":150,"total_tokens":400,"prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":"fp"}`,
		catalogkv.Responses: `{"id":"resp_1","object":"response","created_at":1,"status":"completed","error":null,"model":"up","output":[{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"` +
			strings.Repeat("word ", 120) + `","annotations":[]}]}],"usage":{"input_tokens":250,"input_tokens_details":{"cached_tokens":0},"output_tokens":150,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":400}}`,
		catalogkv.Messages: `{"id":"msg_1","type":"message","role":"assistant","model":"up","content":[{"type":"text","text":"` + strings.Repeat("word ", 120) +
			`"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":250,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":150}}`,
	}
	for f, body := range bodies {
		b.Run(string(f), func(b *testing.B) {
			d := dialects[f]
			dst := make([]byte, 0, 2048)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				a := d.NewAnswer(format.AnswerConfig{ClientModel: "m"})
				out, ok := a.JSON(dst[:0], []byte(body))
				if !ok {
					b.Fatal(string(out))
				}
				a.Release()
			}
		})
	}
}
