package conformance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/catalogkv"
)

// readEvents reads a stream and returns what the client gets, and whether the stream has failed.
func readEvents(a format.Answer, stream string) (out string, failed bool) {
	r := answerStream(a, []byte(stream), oneRead)
	return string(r.out), r.Failed
}

// beginnings holds the first events of a stream of each text format, up to some output.
var beginnings = map[catalogkv.Format]string{
	catalogkv.Chat: `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}` + "\n\n",
	catalogkv.Responses: "event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","model":"up","status":"in_progress","output":[]}}` + "\n\n" +
		"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"delta":"Hello"}` + "\n\n",
	catalogkv.Messages: "event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message","model":"up","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}` + "\n\n" +
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}` + "\n\n",
}

func TestErrorAtAnyPlaceOfAStreamIsAFailure(t *testing.T) {
	t.Parallel()
	const secret = "account 123456789012"
	events := []string{
		`data: {"object":"error","message":"Engine of ` + secret + ` died","type":"InternalServerError","param":null,"code":500}` + "\n\n",
		`data: {"message":"Insufficient balance of ` + secret + `","code":402}` + "\n\n",
		"event: error\n" + `data: {"message":"Insufficient balance of ` + secret + `"}` + "\n\n",
		"event: error\ndata: The engine of " + secret + " died\n\n",
		"data: The engine of " + secret + " died\n\n",
		`data: "The engine of ` + secret + ` died"` + "\n\n",
		`data: {"code":"1113","msg":"` + secret + `"}` + "\n\n",
		`data: {"detail":"` + secret + `"}` + "\n\n",
		`data: {"errors":[{"message":"` + secret + `"}]}` + "\n\n",
		`data: {"err\u006fr":{"message":"` + secret + `"}}` + "\n\n",
		`data: {"base_resp":{"status_code":1004,"status_msg":"` + secret + `"}}` + "\n\n",
		`data: {"error":{"message":"` + secret + `"}}` + "\n\n",
		`data: {"type":"error","error":{"message":"` + secret + `"}}` + "\n\n",
		`{"error":{"message":"` + secret + `"}}` + "\n\n",
		`{"error":{"message":"` + secret + `"}}` + "\n",
		"{\n  \"error\": {\"message\": \"" + secret + "\"}\n}\n\n",
		`{"error":{"message":"` + secret + `"}}` + "\ndata: [DONE]\n\n",
	}
	for f, head := range beginnings {
		for _, event := range events {
			for _, before := range []string{"", head} {
				a := newAnswer(t, f, "")
				out, failed := readEvents(a, before+event)
				if !failed || strings.Contains(out, secret) || strings.Contains(out, "DONE") {
					t.Errorf("%s: %q after %d bytes: failed %v, the client gets %q", f, event, len(before), failed, out)
				}
				if got := string(a.Failure()); !strings.Contains(got, secret) {
					t.Errorf("%s: %q: Failure is %q", f, event, got)
				}
				if want := int64(min(len(before), 2)); a.DeliveredTokens() != want {
					t.Errorf("%s: %q: delivered %d tokens; want %d", f, event, a.DeliveredTokens(), want)
				}
				a.Release()
			}
		}
	}
}

func TestReasonThatFollowsAFailedResponseIsRead(t *testing.T) {
	t.Parallel()
	failed := "event: response.failed\n" + `data: {"type":"response.failed","sequence_number":2,"response":{"id":"resp_1","object":"response","status":"failed","output":[]}}` + "\n\n"
	reason := "event: error\n" + `data: {"type":"error","sequence_number":3,"error":{"code":"too_many_requests","message":"Too Many Requests"}}` + "\n"
	a := newAnswer(t, catalogkv.Responses, "")
	defer a.Release()
	out, isFailed := readEvents(a, beginnings[catalogkv.Responses]+failed+reason)
	if !isFailed || !strings.Contains(string(a.Failure()), "too_many_requests") || strings.Contains(out, "failed") {
		t.Errorf("failed %v with %s, the client gets %q", isFailed, a.Failure(), out)
	}
	without := newAnswer(t, catalogkv.Responses, "")
	defer without.Release()
	if r := answerStream(without, []byte(beginnings[catalogkv.Responses]+failed), oneRead); r.OK || strings.Contains(string(r.out), "failed") {
		t.Errorf("a failed response without a reason is complete: %q", r.out)
	}
}

func TestEventsThatOnlyResembleErrorsPass(t *testing.T) {
	t.Parallel()
	tests := map[catalogkv.Format][]string{
		catalogkv.Chat: {
			`data: {"id":"x","choices":[],"prompt_filter_results":[]}` + "\n\n",
			`data: {"id":"x","code":0,"message":"","choices":[]}` + "\n\n",
			`data: {"id":"x","base_resp":{"status_code":0,"status_msg":""},"choices":[]}` + "\n\n",
			`data: {"id":"x","message":"Success","choices":[{"index":0,"delta":{"content":"Hi"}}]}` + "\n\n",
			":\n", "event: ping\n\n",
		},
		catalogkv.Responses: {
			"event: response.new_kind\n" + `data: {"type":"response.new_kind","message":"a text"}` + "\n\n",
			"event: response.output_item.done\n" + `data: {"type":"response.output_item.done","item":{"type":"mcp_call","error":"x"}}` + "\n\n",
			"event: response.mcp_call.failed\n" + `data: {"type":"response.mcp_call.failed","item_id":"m","error":{"type":"mcp_tool_execution_error"}}` + "\n\n",
			`data: {"type":"response.future_widget.error","error":{"code":"x"},"object":"error"}` + "\n\n",
			"event: future_event\n" + `data: {"type":"future_event","error":"x","message":"y"}` + "\n\n",
			`data: {"note":"a","error":null}` + "\n\n", `data: {"note":"a","error":{"code":0}}` + "\n\n",
		},
		catalogkv.Messages: {
			"event: ping\n" + `data: {"type": "ping"}` + "\n\n",
			"event: future_event\n" + `data: {"type":"future_event","error":{"message":"x"}}` + "\n\n",
			`data: {"note":"a","error":null}` + "\n\n", `data: {"note":"a","error":{"code":0}}` + "\n\n",
			`data: {"type":"content_block_stop","index":0,"error":"x"}` + "\n\n",
			"event: content_block_start\n" + `data: {"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","content":{"type":"web_search_tool_result_error","error_code":"unavailable"}}}` + "\n\n",
		},
	}
	for f, events := range tests {
		for _, event := range events {
			a := newAnswer(t, f, "")
			if out, failed := readEvents(a, event); failed || out != event {
				t.Errorf("%s: %q: failed %v, the client gets %q", f, event, failed, out)
			}
			a.Release()
		}
	}
}

// Some servers write the member "error" into every answer, empty if there is none.
func TestEmptyErrorIsNoFailure(t *testing.T) {
	t.Parallel()
	const usage = `{"prompt_tokens":9,"completion_tokens":2,"input_tokens":9,"output_tokens":2}`
	for value, want := range map[string]bool{
		`null`: false, `{}`: false, `""`: false, `false`: false, `0`: false, `[]`: false,
		`{"message":"","type":null,"code":0,"details":[],"metadata":{"raw":""}}`: false,

		`{"message":"died"}`: true, `{"message":"","code":500}`: true, `{"metadata":{"raw":"died"}}`: true,
		`"died"`: true, `true`: true, `500`: true, `["died"]`: true,
	} {
		for f, body := range answerWith {
			body = strings.ReplaceAll(strings.TrimSuffix(body, "}")+`,"error":`+value+"}", "USAGE", usage)
			a := newAnswer(t, f, "")
			if got := answerJSON(a, []byte(body)); got.Failed != want {
				t.Errorf("%s: %s: failed %v", f, body, got.Failed)
			}
			a.Release()
		}
		chunk := `data: {"id":"chatcmpl-1","model":"up","choices":[{"index":0,"delta":{"content":"Hi"}}],"error":` + value + "}\n\n"
		inChoice := `data: {"id":"chatcmpl-1","model":"up","choices":[{"index":0,"delta":{"content":"Hi"},"error":` + value + "}]}\n\n"
		for _, event := range []string{chunk, inChoice} {
			a := newAnswer(t, catalogkv.Chat, "")
			if _, failed := readEvents(a, event); failed != want {
				t.Errorf("%s: failed %v", event, failed)
			}
			a.Release()
		}
	}
}

// Some servers write an empty reason into every chunk.
func TestEmptyReasonEndsNothing(t *testing.T) {
	t.Parallel()
	ends := map[catalogkv.Format]string{
		catalogkv.Chat:     `data: {"id":"chatcmpl-1","model":"up","choices":[{"index":0,"delta":{},"finish_reason":"REASON"}]}` + "\n\n",
		catalogkv.Messages: "event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"REASON"},"usage":{"output_tokens":2}}` + "\n\n",
	}
	for f, end := range ends {
		for reason, want := range map[string]bool{"": false, "stop": true} {
			a := newAnswer(t, f, "")
			stream := beginnings[f] + strings.ReplaceAll(end, "REASON", reason)
			if got := answerStream(a, []byte(stream), oneRead); got.Failed || got.OK != want || want != (strings.Contains(string(got.out), "DONE") || strings.Contains(string(got.out), "message_stop")) {
				t.Errorf("%s, reason %q: complete %v; want %v: %s", f, reason, got.OK, want, got.out)
			}
			a.Release()
		}
	}
}

// One choice that names its reason twice is not two choices.
func TestStreamOfTwoChoicesEndsWithBoth(t *testing.T) {
	t.Parallel()
	end := `data: {"id":"chatcmpl-1","model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for stream, want := range map[string]bool{end + end: false, end + strings.Replace(end, `"index":0`, `"index":1`, 1): true} {
		a := newAnswer(t, catalogkv.Chat, `,"n":2`)
		if got := answerStream(a, []byte(stream), oneRead); got.OK != want {
			t.Errorf("complete %v; want %v", got.OK, want)
		}
		a.Release()
	}
}

func TestAnswerWithNothingInItIsAFailure(t *testing.T) {
	t.Parallel()
	const usage = `"usage":{"prompt_tokens":9,"completion_tokens":3,"input_tokens":9,"output_tokens":3}`
	tests := map[catalogkv.Format][]string{
		catalogkv.Chat: {
			`{"id":"c","object":"chat.completion","choices":[],` + usage + `}`,
			`{"id":"c","object":"chat.completion","choices":null}`,
			"data: [DONE]\n\n", ": waiting\n\ndata: [DONE]\n\n", "data: [DONE]", `data: {"id":"c","choices":[],` + usage + "}\n\ndata: [DONE]\n\n",
		},
		catalogkv.Responses: {
			`{"id":"r","object":"response","status":"completed","output":[],` + usage + `}`,
			"event: response.completed\n" + `data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[],` + usage + "}}\n\n",
		},
		catalogkv.Messages: {
			`{"id":"m","type":"message","content":[],"stop_reason":null,` + usage + `}`,
			"event: message_start\n" + `data: {"type":"message_start","message":{"id":"m","content":[]}}` + "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		},
	}
	for f, bodies := range tests {
		for _, body := range bodies {
			a := newAnswer(t, f, "")
			var got result
			if strings.HasPrefix(body, "{") {
				got = answerJSON(a, []byte(body))
			} else {
				got = answerStream(a, []byte(body), oneRead)
			}
			if !got.Failed || strings.Contains(string(got.out), "DONE") || strings.Contains(string(got.out), "stop") {
				t.Errorf("%s: %s is an answer: %s", f, body, got.out)
			}
			if v := classify.Classify(classify.Answer{Format: string(f), Status: 200, Body: a.Failure(), Stream: true}); v.Class != classify.Unavailable || !v.Failover {
				t.Errorf("%s: %s is %s", f, body, v.Class)
			}
			a.Release()
		}
	}
}

// A model may end without a word, and says so.
func TestAnswerWithoutTextButWithAReasonIsOne(t *testing.T) {
	t.Parallel()
	for f, body := range map[catalogkv.Format]string{
		catalogkv.Chat:      `{"id":"c","choices":[{"index":0,"message":{"content":""},"finish_reason":"length"}]}`,
		catalogkv.Responses: `{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`,
		catalogkv.Messages:  `{"id":"m","type":"message","content":[],"stop_reason":"end_turn"}`,
	} {
		a := newAnswer(t, f, "")
		if got := answerJSON(a, []byte(body)); got.Failed {
			t.Errorf("%s: %s is no answer", f, body)
		}
		a.Release()
	}
}

func TestErrorInsideAChoiceIsAFailure(t *testing.T) {
	t.Parallel()
	for _, choice := range []string{
		`{"index":0,"message":{"content":"a"},"delta":{"content":"a"},"finish_reason":"error","error":{"code":429,"message":"Rate limit reached"}}`,
		`{"index":0},{"index":1,"error":{"code":429,"message":"Rate limit reached"}}`,
		`{"index":0,"message":{"content":""},"delta":{},"finish_reason":"error"}`,
	} {
		body := `{"id":"c","object":"chat.completion","choices":[` + choice + `]}`
		for _, before := range []string{"", beginnings[catalogkv.Chat]} {
			a, b := newAnswer(t, catalogkv.Chat, ""), newAnswer(t, catalogkv.Chat, "")
			if got := answerJSON(a, []byte(body)); !got.Failed {
				t.Errorf("%s is an answer", body)
			}
			out, failed := readEvents(b, before+"data: "+body+"\n\ndata: [DONE]\n\n")
			if !failed || strings.Contains(out, "DONE") || strings.Contains(out, "error") || b.DeliveredTokens() != int64(min(len(before), 2)) {
				t.Errorf("after %d bytes: failed %v, delivered %d, the client gets %q", len(before), failed, b.DeliveredTokens(), out)
			}
			want := classify.Unavailable
			if strings.Contains(choice, "Rate limit") {
				want = classify.RateLimit
			}
			for _, reader := range []format.Answer{a, b} {
				if v := classify.Classify(classify.Answer{Format: "chat", Status: 200, Body: reader.Failure(), Stream: true}); v.Class != want {
					t.Errorf("%s is %s; want %s", reader.Failure(), v.Class, want)
				}
				reader.Release()
			}
		}
	}
}

func TestAnswerOfAnImageModelWithoutAnImageIsOneFailure(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]classify.Class{
		`{"created":1,"data":[]}`:                classify.NoImage,
		`{"created":1,"data":null}`:              classify.NoImage,
		`{"created":1}`:                          classify.NoImage,
		`{}`:                                     classify.NoImage,
		`{"created":1,"data":[{"b64_json":""}]}`: classify.NoImage,
		`{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"Incorrect API key provided"},"finish_reason":"stop"}]}`: classify.NoImage,
		`{"object":"response","output":[{"content":[{"text":"Rate limit reached"}]}]}`:                                                            classify.NoImage,
		`{"error":{"message":"Rate limit reached"}}`:                                                                                              classify.RateLimit,
		`{"code":429,"message":"Rate limit reached"}`:                                                                                             classify.RateLimit,
		`{"created":1,"data":null,"error":{"message":"The server died"}}`:                                                                         classify.Unavailable,
		`<html>Bad gateway</html>`: classify.Unavailable,
		`null`:                     classify.Unavailable,
	} {
		a := newAnswer(t, catalogkv.Images, "")
		got := answerJSON(a, []byte(body))
		v := classify.Classify(classify.Answer{Format: "images", Status: 200, Body: a.Failure(), Stream: true})
		if !got.Failed || v.Class != want || got.Usage.Images != 0 {
			t.Errorf("%s: failed %v, %s, usage %+v; want %s", body, got.Failed, v.Class, got.Usage, want)
		}
		a.Release()
	}
}

func TestClientsGetNoCommentsOrIDsOfTheProvider(t *testing.T) {
	t.Parallel()
	for f, events := range beginnings {
		stream := ": x-relay-provider=vendor\n\n" + strings.ReplaceAll(events, "data: ", "id: vendor/7\nretry: 5\n: vendor\ndata: ")
		a := newAnswer(t, f, "")
		out, failed := readEvents(a, stream)
		if failed || out != ":\n\n"+strings.ReplaceAll(events, `"up"`, `"my-model"`) {
			t.Errorf("%s: failed %v, the client gets %q", f, failed, out)
		}
		if a.DeliveredTokens() != 2 {
			t.Errorf("%s: delivered %d tokens", f, a.DeliveredTokens())
		}
		a.Release()
	}
}

// Clients write JSON in any layout, but a line end inside an event's data would end the data.
func TestEchoedParametersKeepTheFramingOfEvents(t *testing.T) {
	t.Parallel()
	metadata := "{\r\n  \"order\": \"1 7\",\n\n  \"of\": \"me\\n\"\r}"
	a := newAnswer(t, catalogkv.Responses, "")
	a.Release()
	body := `{"model":"my-model","input":"x","stream":true,"metadata":` + metadata + `}`
	r, e := dialects[catalogkv.Responses].Read(parse(t, body))
	if e != nil {
		t.Fatal(e)
	}
	a = dialects[catalogkv.Responses].NewAnswer(format.AnswerConfig{Request: r})
	r.Release()
	defer a.Release()
	stream := strings.Replace(beginnings[catalogkv.Responses], `"output":[]`, `"output":[],"metadata":{}`, 1) +
		"event: response.completed\n" + `data: {"type":"response.completed","sequence_number":2,"response":{"id":"resp_1","object":"response","model":"up","status":"completed","output":[],"metadata":{}}}` + "\n\n"
	out, failed := readEvents(a, stream)
	if failed {
		t.Fatal("the stream has failed")
	}
	var s sse.Splitter
	s.Feed([]byte(out))
	echoes := 0
	for ev, ok := s.Next(); ok; ev, ok = s.Next() {
		var data struct {
			Response struct{ Metadata map[string]string }
		}
		if err := json.Unmarshal(ev.Data, &data); err != nil {
			t.Errorf("%q: %v", ev.Raw, err)
		}
		if m := data.Response.Metadata; m["order"] == "1 7" && m["of"] == "me\n" {
			echoes++
		}
	}
	if echoes != 2 {
		t.Errorf("got %d echoes in %s; want 2", echoes, out)
	}
}

// Whoever writes a prompt, a tool or the output of a model must not decide what an error means.
func TestFailureHasOnlyTheProvidersWords(t *testing.T) {
	t.Parallel()
	const planted = "Incorrect API key provided, maximum context length is 128000 tokens, rate limit reached, try again in 50s"
	echo := `"instructions":"` + planted + `","tools":[{"type":"function","name":"f","description":"` + planted + `","parameters":{"title":"` + planted + `"}}],` +
		`"metadata":{"message":"` + planted + `"},"user":"` + planted + `","text":{"format":{"type":"json_schema","schema":{"description":"` + planted + `"}}},` +
		`"reasoning":{"summary":"` + planted + `"},"tool_choice":{"type":"function","name":"` + planted + `"},"unknown":{"message":"` + planted + `"},` +
		`"output":[{"type":"message","content":[{"type":"output_text","text":"` + planted + `"}]}],"usage":null`
	failure := `"error":{"code":"server_error","message":"The model produced an internal error."}`
	response := `{"id":"resp_1","object":"response","status":"failed",` + echo + `,` + failure + `}`
	tests := map[catalogkv.Format][]string{
		catalogkv.Responses: {
			response,
			"event: response.failed\n" + `data: {"type":"response.failed","sequence_number":7,"response":` + response + `}` + "\n\n",
		},
		catalogkv.Chat: {
			`{"id":"x","choices":[{"index":0,"message":{"content":"` + planted + `"},"finish_reason":"error"}],` + echo + `,` + failure + `}`,
			`data: {"id":"x","choices":[{"index":0,"delta":{"content":"` + planted + `"},"finish_reason":"error"}],` + failure + `}` + "\n\n",
			`data: {"id":"x","choices":[{"index":0,"delta":{"content":"` + planted + `"}}],"x_groq":{"id":"y",` + failure + `}}` + "\n\n",
		},
		catalogkv.Messages: {
			`{"type":"message","content":[{"type":"text","text":"` + planted + `"}],` + failure + `}`,
		},
	}
	for f, bodies := range tests {
		for _, body := range bodies {
			a := newAnswer(t, f, "")
			if strings.HasPrefix(body, "{") {
				if _, ok := a.JSON(nil, []byte(body)); ok {
					t.Errorf("%s: accepted %s", f, body)
				}
			} else if _, failed := readEvents(a, body); !failed {
				t.Errorf("%s: accepted %s", f, body)
			}
			got := a.Failure()
			if bytes.Contains(got, []byte("Incorrect")) || !bytes.Contains(got, []byte("The model produced an internal error.")) || !json.Valid(got) {
				t.Errorf("%s: the classifier gets %s", f, got)
			}
			v := classify.Classify(classify.Answer{Format: string(f), Status: 200, Body: got, Stream: true})
			if v.Class != classify.Unavailable {
				t.Errorf("%s: class %s", f, v.Class)
			}
			a.Release()
		}
	}
}

func TestNamesInAnswersMayBeWrittenWithEscapes(t *testing.T) {
	t.Parallel()
	tests := map[catalogkv.Format]string{
		catalogkv.Chat:      `{"mod\u0065l":"up","ch\u006fices":[{"m\u0065ssage":{"content":"Hi"}}],"us\u0061ge":{"prompt_tokens":9,"completion_tokens":1}}`,
		catalogkv.Responses: `{"mod\u0065l":"up","outp\u0075t":[{}],"us\u0061ge":{"input_tokens":9,"output_tokens":1}}`,
		catalogkv.Messages:  `{"mod\u0065l":"up","cont\u0065nt":[{}],"us\u0061ge":{"input_tokens":9,"output_tokens":1}}`,
		catalogkv.Images:    `{"mod\u0065l":"up","d\u0061ta":[{"\u0075rl":"x"}],"us\u0061ge":{"input_tokens":9,"output_tokens":1}}`,
	}
	for f, body := range tests {
		a := newAnswer(t, f, "")
		out, ok := a.JSON(nil, []byte(body))
		usage, _ := a.Usage()
		if !ok || bytes.Contains(out, []byte(`"up"`)) || usage.Input != 9 || usage.Output != 1 {
			t.Errorf("%s: ok %v, usage %+v, the client gets %s", f, ok, usage, out)
		}
		a.Release()
	}
}

func TestTwoDocumentsInOneBodyAreNoAnswer(t *testing.T) {
	t.Parallel()
	fixtures(t, testdata, func(name string, f catalogkv.Format, body []byte) {
		if !strings.HasSuffix(name, ".json") || f == catalogkv.Videos {
			return
		}
		for _, rest := range []string{string(body), `{"model":"up"}`, "x"} {
			a, b := newAnswer(t, f, ""), newAnswer(t, f, "")
			if _, ok := a.JSON(nil, body); ok {
				if out, ok := b.JSON(nil, slices.Concat(body, []byte("\n"+rest))); ok {
					t.Errorf("%s: two documents are an answer: %s", name, out)
				}
			}
			a.Release()
			b.Release()
		}
	})
}
