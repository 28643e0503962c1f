package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// answerWith returns an answer of a format with the text "hello" and a usage object, in one piece. USAGE stands for the
// usage object.
var answerWith = map[catalogkv.Format]string{
	catalogkv.Chat:      `{"id":"c","model":"up","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":USAGE}`,
	catalogkv.Responses: `{"id":"r","model":"up","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}],"usage":USAGE}`,
	catalogkv.Messages:  `{"id":"m","model":"up","type":"message","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":USAGE}`,
	catalogkv.Images:    `{"created":1,"data":[{"b64_json":"aGk="}],"usage":USAGE}`,
}

// streamWith has the same answers as streams.
var streamWith = map[catalogkv.Format]string{
	catalogkv.Chat: `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}

data: {"id":"c","model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c","model":"up","choices":[],"usage":USAGE}

data: [DONE]

`,
	catalogkv.Responses: `event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":1,"delta":"hello"}

event: response.completed
data: {"type":"response.completed","sequence_number":2,"response":{"id":"r","model":"up","status":"completed","output":[],"usage":USAGE}}

`,
	catalogkv.Messages: `event: message_start
data: {"type":"message_start","message":{"id":"m","model":"up","content":[],"usage":{"input_tokens":0,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":USAGE}

event: message_stop
data: {"type":"message_stop"}

`,
}

// readUsage returns the results for a usage object in one piece and, if the format has streams, streamed.
func readUsage(t *testing.T, f catalogkv.Format, usage string) map[string]result {
	t.Helper()
	results := map[string]result{}
	a := newAnswer(t, f, "")
	defer a.Release()
	results["in one piece"] = answerJSON(a, []byte(strings.ReplaceAll(answerWith[f], "USAGE", usage)))
	if stream, ok := streamWith[f]; ok {
		b := newAnswer(t, f, "")
		defer b.Release()
		results["streamed"] = answerStream(b, []byte(strings.ReplaceAll(stream, "USAGE", usage)), oneRead)
	}
	return results
}

// checkReading checks that a usage object is read as wanted, in one piece and streamed.
func checkReading(t *testing.T, f catalogkv.Format, usage string, want price.Usage) {
	t.Helper()
	for how, got := range readUsage(t, f, usage) {
		got.Usage.Size, got.Usage.Quality = "", ""
		if f == catalogkv.Images {
			want.Images = 1
		}
		if diff := cmp.Diff(want, got.Usage); diff != "" || !got.Reported || got.Failed {
			t.Errorf("%s, %s: %s: failed %v, reported %v, want -, got +:\n%s", f, how, usage, got.Failed, got.Reported, diff)
		}
	}
}

// names of the counts of the whole in each format.
var wholeNames = map[catalogkv.Format][2]string{
	catalogkv.Chat:      {"prompt_tokens", "completion_tokens"},
	catalogkv.Responses: {"input_tokens", "output_tokens"},
	catalogkv.Messages:  {"input_tokens", "output_tokens"},
	catalogkv.Images:    {"input_tokens", "output_tokens"},
}

// whole returns a usage object with the counts of the whole.
func whole(f catalogkv.Format, input, output, add string) string {
	return `{"` + wholeNames[f][0] + `":` + input + `,"` + wholeNames[f][1] + `":` + output + add + `}`
}

func TestCountsThatAreNoIntegersAreReadInAllFormats(t *testing.T) {
	t.Parallel()
	for f := range wholeNames {
		for _, tt := range []struct {
			in, out string
			want    price.Usage
		}{
			{`57.0`, `14417.92`, price.Usage{Input: 57, Output: 14418}},
			{`"10"`, `"5"`, price.Usage{Input: 10, Output: 5}},
			{`10.7`, `5.9`, price.Usage{Input: 11, Output: 6}},
			{`10.0`, `5`, price.Usage{Input: 10, Output: 5}},
			{`1e1`, `5e0`, price.Usage{Input: 10, Output: 5}},
		} {
			if f == catalogkv.Images {
				tt.want.ImageOut = tt.want.Output
			}
			checkReading(t, f, whole(f, tt.in, tt.out, ""), tt.want)
		}
	}
	checkReading(t, catalogkv.Chat, `{"prompt_tokens":57.0,"completion_tokens":14417.92,"total_tokens":14474.92}`, price.Usage{Input: 57, Output: 14418})
	checkReading(t, catalogkv.Images, `{"input_tokens":57.0,"output_tokens":14417.92,"total_tokens":14474.92}`, price.Usage{Input: 57, Output: 14418, ImageOut: 14418})
}

// A report without a count, or with one that cannot be read, is none.
func TestReportThatCannotBeReadIsNone(t *testing.T) {
	t.Parallel()
	for f := range wholeNames {
		for _, usage := range []string{
			whole(f, `-5`, `3`, ``), whole(f, `10`, `-3`, ``), whole(f, `"ten"`, `3`, ``), whole(f, `10`, `true`, ``), whole(f, `[10]`, `3`, ``),
			whole(f, `10`, `{}`, ``), whole(f, `10`, `""`, ``), whole(f, `10`, `3`, `,"input_tokens_details":{"image_tokens":"many"}`),
			`{}`, `[]`, `"none"`, `7`, `null`, `{"unit":"tokens"}`,
		} {
			for how, got := range readUsage(t, f, usage) {
				none := usage[0] != '{' || !strings.Contains(usage, "_tokens")
				if f == catalogkv.Images && none {
					continue // an answer with images that are priced by piece
				}
				if got.Reported || got.Usage.Output != 0 {
					t.Errorf("%s, %s: %s: got %+v", f, how, usage, got.Usage)
				}
				if f != catalogkv.Images && got.Delivered != 2 {
					t.Errorf("%s, %s: %s: %d tokens of text were delivered; want 2", f, how, usage, got.Delivered)
				}
			}
		}
	}
}

// A stream of which an earlier report covers the whole text keeps it.
func TestReportThatCannotBeReadDoesNotReplaceAnEarlierOne(t *testing.T) {
	t.Parallel()
	for _, last := range []string{`{"prompt_tokens":"?"}`, `{"prompt_tokens":9,"completion_tokens":-1}`, `{}`, `null`} {
		a := newAnswer(t, catalogkv.Chat, "")
		got := answerStream(a, []byte(chatStream(`{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}`, last)), oneRead)
		a.Release()
		if diff := cmp.Diff(price.Usage{Input: 9, Output: 3}, got.Usage); diff != "" || !got.Reported {
			t.Errorf("%s: reported %v, want -, got +:\n%s", last, got.Reported, diff)
		}
	}
}

// chatStream returns a stream with usage in the chunk with the stop reason and in the last one.
func chatStream(finish, last string) string {
	return `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"c","model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":` + finish + "}\n\n" +
		`data: {"id":"c","model":"up","choices":[],"usage":` + last + "}\n\ndata: [DONE]\n\n"
}

// messageStream returns a stream with usage at its beginning and with the stop reason.
func messageStream(start, end string) string {
	return "event: message_start\n" +
		`data: {"type":"message_start","message":{"id":"m","model":"up","content":[],"usage":` + start + "}}\n\n" +
		"event: content_block_delta\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}` + "\n\n" +
		"event: message_delta\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + end + "}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}

// Some providers send a last report of placeholders.
func TestZeroReplacesNoCount(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, first, last string
		want              price.Usage
	}{
		{"all zero", `{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}`, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, price.Usage{Input: 9, Output: 3}},
		{"input zero", `{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}`, `{"prompt_tokens":0,"completion_tokens":4,"total_tokens":4}`, price.Usage{Input: 9, Output: 4}},
		{
			"cached zero", `{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":5}}`, `{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}`,
			price.Usage{Input: 4, CachedInput: 5, Output: 4},
		},
		{"the total of the earlier report covers nothing of the later", `{"prompt_tokens":90,"completion_tokens":3,"total_tokens":93}`, `{"prompt_tokens":9,"completion_tokens":3}`, price.Usage{Input: 9, Output: 3}},
		{"counts after zeros", `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, `{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}`, price.Usage{Input: 9, Output: 3}},
	} {
		a := newAnswer(t, catalogkv.Chat, "")
		got := answerStream(a, []byte(chatStream(tt.first, tt.last)), oneRead)
		a.Release()
		if diff := cmp.Diff(tt.want, got.Usage); diff != "" || !got.Reported {
			t.Errorf("chat, %s: reported %v, want -, got +:\n%s", tt.name, got.Reported, diff)
		}
	}
	const start = `{"input_tokens":15,"cache_read_input_tokens":9000,"cache_creation_input_tokens":700,"output_tokens":1}`
	for _, tt := range []struct {
		name, first, last string
		want              price.Usage
	}{
		{
			"zeros beside the output", start, `{"input_tokens":0,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":12}`,
			price.Usage{Input: 15, CachedInput: 9000, CacheWrite5m: 700, Output: 12},
		},
		{"input zero", `{"input_tokens":15,"output_tokens":1}`, `{"input_tokens":0,"output_tokens":12}`, price.Usage{Input: 15, Output: 12}},
		{"the cache only", start, `{"input_tokens":0,"cache_read_input_tokens":9000,"output_tokens":12}`, price.Usage{Input: 15, CachedInput: 9000, CacheWrite5m: 700, Output: 12}},
		{"output only", start, `{"output_tokens":12}`, price.Usage{Input: 15, CachedInput: 9000, CacheWrite5m: 700, Output: 12}},
		{"zeros at the beginning", `{"input_tokens":0,"output_tokens":0}`, `{"input_tokens":15,"output_tokens":12}`, price.Usage{Input: 15, Output: 12}},
		{"writes at the end", `{"input_tokens":15,"output_tokens":1}`, `{"cache_creation_input_tokens":700,"output_tokens":12}`, price.Usage{Input: 15, CacheWrite5m: 700, Output: 12}},
		{
			"a split of zeros", `{"input_tokens":15,"cache_creation_input_tokens":700,"cache_creation":{"ephemeral_5m_input_tokens":200,"ephemeral_1h_input_tokens":500},"output_tokens":1}`,
			`{"cache_creation_input_tokens":700,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":12}`,
			price.Usage{Input: 15, CacheWrite5m: 200, CacheWrite1h: 500, Output: 12},
		},
		{"the output of the beginning is a placeholder", `{"input_tokens":15,"output_tokens":1}`, `{"output_tokens":0}`, price.Usage{Input: 15}},
		{"the input shrinks", `{"input_tokens":1500,"output_tokens":1}`, `{"input_tokens":15,"output_tokens":12}`, price.Usage{Input: 15, Output: 12}},
	} {
		a := newAnswer(t, catalogkv.Messages, "")
		got := answerStream(a, []byte(messageStream(tt.first, tt.last)), oneRead)
		a.Release()
		if diff := cmp.Diff(tt.want, got.Usage); diff != "" || !got.Reported {
			t.Errorf("messages, %s: reported %v, want -, got +:\n%s", tt.name, got.Reported, diff)
		}
	}
}

// The total says which parts of a report are beside its input and output.
func TestPartsAreReadAsTheTotalAddsUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		usage string
		want  price.Usage
	}{
		"cached beside, and smaller than the input": {
			`{"prompt_tokens":12000,"completion_tokens":19,"total_tokens":22019,"prompt_tokens_details":{"cached_tokens":10000}}`,
			price.Usage{Input: 12000, CachedInput: 10000, Output: 19},
		},
		"cached beside, and larger": {
			`{"prompt_tokens":120,"completion_tokens":19,"total_tokens":10139,"prompt_tokens_details":{"cached_tokens":10000}}`,
			price.Usage{Input: 120, CachedInput: 10000, Output: 19},
		},
		"cached inside": {
			`{"prompt_tokens":12000,"completion_tokens":19,"total_tokens":12019,"prompt_tokens_details":{"cached_tokens":10000}}`,
			price.Usage{Input: 2000, CachedInput: 10000, Output: 19},
		},
		"cached inside, without a total": {
			`{"prompt_tokens":12000,"completion_tokens":19,"prompt_tokens_details":{"cached_tokens":10000}}`,
			price.Usage{Input: 2000, CachedInput: 10000, Output: 19},
		},
		"cached inside, writes beside": {
			`{"prompt_tokens":3000,"completion_tokens":19,"total_tokens":3719,"cache_read_input_tokens":2000,"cache_creation_input_tokens":700}`,
			price.Usage{Input: 1000, CachedInput: 2000, CacheWrite5m: 700, Output: 19},
		},
		"both beside": {
			`{"prompt_tokens":3000,"completion_tokens":19,"total_tokens":5719,"cache_read_input_tokens":2000,"cache_creation_input_tokens":700}`,
			price.Usage{Input: 3000, CachedInput: 2000, CacheWrite5m: 700, Output: 19},
		},
		"all inside": {
			`{"prompt_tokens":3000,"completion_tokens":19,"total_tokens":3019,"cache_read_input_tokens":2000,"cache_creation_input_tokens":700}`,
			price.Usage{Input: 300, CachedInput: 2000, CacheWrite5m: 700, Output: 19},
		},
		"cached and reasoning beside": {
			`{"prompt_tokens":3000,"completion_tokens":19,"total_tokens":5119,"cached_tokens":2000,"completion_tokens_details":{"reasoning_tokens":100}}`,
			price.Usage{Input: 3000, CachedInput: 2000, Output: 119, Reasoning: 100},
		},
		"reasoning beside": {
			`{"prompt_tokens":3000,"completion_tokens":190,"total_tokens":3290,"cached_tokens":2000,"completion_tokens_details":{"reasoning_tokens":100}}`,
			price.Usage{Input: 1000, CachedInput: 2000, Output: 290, Reasoning: 100},
		},
		"reasoning in the total only": {
			`{"prompt_tokens":3000,"completion_tokens":190,"total_tokens":3987,"cached_tokens":2000}`,
			price.Usage{Input: 1000, CachedInput: 2000, Output: 987, Reasoning: 797},
		},
		"reasoning larger than the output, in no total": {
			`{"prompt_tokens":108,"completion_tokens":3256,"total_tokens":3364,"citation_tokens":7299,"num_search_queries":74,"reasoning_tokens":73248}`,
			price.Usage{Input: 7407, Output: 76504, Reasoning: 73248, ServerToolRequests: 74},
		},
		"audio beside": {
			`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":720,"prompt_tokens_details":{"audio_tokens":600}}`,
			price.Usage{Input: 700, AudioIn: 600, Output: 20},
		},
		"audio of the answer beside": {
			`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":170,"completion_tokens_details":{"audio_tokens":50}}`,
			price.Usage{Input: 100, AudioOut: 50, Output: 70},
		},
		"audio or images of the answer larger than the output, in no total": {
			`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"completion_tokens_details":{"audio_tokens":500,"image_tokens":1290}}`,
			price.Usage{Input: 100, AudioOut: 500, ImageOut: 1290, Output: 1810},
		},
		"input in the total only": {
			`{"completion_tokens":20,"total_tokens":1020}`,
			price.Usage{Input: 1000, Output: 20},
		},
		"input in the total only, beside the cached": {
			`{"prompt_tokens":0,"completion_tokens":20,"total_tokens":1020,"cached_tokens":600}`,
			price.Usage{Input: 400, CachedInput: 600, Output: 20},
		},
		"a total alone": {`{"total_tokens":1020}`, price.Usage{}},
		"a total that is too small": {
			`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":100,"cached_tokens":60}`,
			price.Usage{Input: 40, CachedInput: 60, Output: 20},
		},
		"cached or reasoning beside: the cheaper": {
			`{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1250,"cached_tokens":50,"completion_tokens_details":{"reasoning_tokens":50}}`,
			price.Usage{Input: 1000, CachedInput: 50, Output: 200, Reasoning: 50},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkReading(t, catalogkv.Chat, tt.usage, tt.want)
			checkReading(t, catalogkv.Responses, tt.usage, tt.want)
			checkReading(t, catalogkv.Responses, strings.NewReplacer("prompt_tokens", "input_tokens", "completion_tokens", "output_tokens").Replace(tt.usage), tt.want)
		})
	}
}

// Each family of providers has names of its own. They are read in all formats.
func TestNamesOfAllFamiliesAreRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		usage string
		want  price.Usage
	}{
		"cache writes of resold messages models": {
			`{"prompt_tokens":1204,"completion_tokens":10,"total_tokens":1214,"prompt_cache_hit_tokens":800,"prompt_cache_write_tokens":200}`,
			price.Usage{Input: 204, CachedInput: 800, CacheWrite5m: 200, Output: 10},
		},
		"cache writes among the details": {
			`{"prompt_tokens":1204,"completion_tokens":10,"total_tokens":1214,"prompt_tokens_details":{"cached_tokens":800,"cache_creation_tokens":200}}`,
			price.Usage{Input: 204, CachedInput: 800, CacheWrite5m: 200, Output: 10},
		},
		"cache writes under two names": {
			`{"prompt_tokens":1204,"completion_tokens":10,"total_tokens":1214,"cache_creation_input_tokens":200,"cache_read_input_tokens":800,"prompt_tokens_details":{"cached_tokens":800,"cache_creation_tokens":200,"cache_write_tokens":200}}`,
			price.Usage{Input: 204, CachedInput: 800, CacheWrite5m: 200, Output: 10},
		},
		"cache writes by lifetime": {
			`{"prompt_tokens":1204,"completion_tokens":10,"total_tokens":1214,"prompt_tokens_details":{"cached_tokens":800,"cache_creation_input_tokens":200,"cache_creation":{"ephemeral_5m_input_tokens":150,"ephemeral_1h_input_tokens":50},"cache_type":"ephemeral"}}`,
			price.Usage{Input: 204, CachedInput: 800, CacheWrite5m: 150, CacheWrite1h: 50, Output: 10},
		},
		"hits beside zeros": {
			`{"prompt_tokens":300,"completion_tokens":9,"total_tokens":309,"prompt_cache_hit_tokens":256,"prompt_cache_miss_tokens":44,"prompt_tokens_details":{"cached_tokens":0}}`,
			price.Usage{Input: 44, CachedInput: 256, Output: 9},
		},
		"hits and misses only": {
			`{"completion_tokens":9,"prompt_cache_hit_tokens":256,"prompt_cache_miss_tokens":44}`,
			price.Usage{Input: 44, CachedInput: 256, Output: 9},
		},
		"cached audio": {
			`{"prompt_tokens":1000,"completion_tokens":10,"total_tokens":1010,"prompt_tokens_details":{"cached_tokens":512,"text_tokens":400,"audio_tokens":600,"cached_tokens_details":{"text_tokens":0,"audio_tokens":512}}}`,
			price.Usage{Input: 488, CachedInput: 512, AudioIn: 88, Output: 10},
		},
		"cached pictures": {
			`{"prompt_tokens":1000,"completion_tokens":10,"total_tokens":1010,"prompt_tokens_details":{"cached_tokens":512,"image_tokens":600,"cached_tokens_details":{"image_tokens":512}}}`,
			price.Usage{Input: 488, CachedInput: 512, ImageIn: 88, Output: 10},
		},
		"thoughts and pages beside": {
			`{"promptTokenCount":100,"candidatesTokenCount":20,"thoughtsTokenCount":300,"toolUsePromptTokenCount":50,"cachedContentTokenCount":60,"totalTokenCount":470}`,
			price.Usage{Input: 90, CachedInput: 60, Output: 320, Reasoning: 300},
		},
		"a picture in the answer": {
			`{"prompt_tokens":100,"completion_tokens":1310,"total_tokens":1410,"completion_tokens_details":{"image_tokens":1290}}`,
			price.Usage{Input: 100, Output: 1310, ImageOut: 1290},
		},
		"searches of a plugin": {
			`{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"plugins":{"search":{"count":2,"strategy":"turbo"}}}`,
			price.Usage{Input: 100, Output: 10, ServerToolRequests: 2},
		},
		"calls of tools, and pages": {
			`{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"num_sources_used":12,"num_server_side_tools_used":2}`,
			price.Usage{Input: 100, Output: 10, ServerToolRequests: 2},
		},
		"a reseller": {
			`{"prompt_tokens":500,"completion_tokens":5,"total_tokens":505,"cost":0.1,"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":300}}`,
			price.Usage{Input: 100, CachedInput: 100, CacheWriteOther: 300, Output: 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkReading(t, catalogkv.Chat, tt.usage, tt.want)
			checkReading(t, catalogkv.Responses, tt.usage, tt.want)
			checkReading(t, catalogkv.Responses, strings.NewReplacer("prompt_tokens", "input_tokens", "completion_tokens", "output_tokens").Replace(tt.usage), tt.want)
		})
	}
	checkReading(t, catalogkv.Images, `{"prompt_tokens":57,"completion_tokens":4160,"total_tokens":4217}`, price.Usage{Input: 57, Output: 4160, ImageOut: 4160})
	checkReading(t, catalogkv.Images, `{"input_tokens":57,"output_tokens":4180,"total_tokens":4237,"input_tokens_details":{"image_tokens":40,"cached_tokens":20},"output_tokens_details":{"image_tokens":4160}}`,
		price.Usage{Input: 37, CachedInput: 20, ImageIn: 40, Output: 4180, ImageOut: 4160})
	checkReading(t, catalogkv.Messages, `{"prompt_tokens":57,"completion_tokens":10,"cache_read_input_tokens":100}`, price.Usage{Input: 57, CachedInput: 100, Output: 10})
}

func TestOnlySearchesThatWereMadeAreCalls(t *testing.T) {
	t.Parallel()
	const call = `{"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}`
	for items, want := range map[string]int64{
		call: 1,
		call + `,{"type":"web_search_call","status":"completed","action":{"type":"open_page","url":"https://a.example"}}`:                                     1,
		call + `,{"type":"web_search_call","status":"completed","action":{"type":"find_in_page","pattern":"x"}},` + call:                                      2,
		call + `,{"type":"web_search_call","status":"failed","action":{"type":"search","query":"q"}}`:                                                         1,
		`{"type":"web_search_call","status":"completed"}`:                                                                                                     1,
		`{"type":"web_search_call","status":"completed","action":null}`:                                                                                       1,
		call + `,{"type":"code_interpreter_call","status":"completed"},{"type":"web_search_call","status":"completed","action":{"type":"open_page"}},` + call: 3,
	} {
		const body = `{"id":"r","model":"up","status":"completed","output":[ITEMS],"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}`
		whole := strings.ReplaceAll(body, "ITEMS", items)
		a, b := newAnswer(t, catalogkv.Responses, ""), newAnswer(t, catalogkv.Responses, "")
		one := answerJSON(a, []byte(whole))
		streamed := answerStream(b, []byte("event: response.completed\ndata: "+`{"type":"response.completed","sequence_number":1,"response":`+whole+"}\n\n"), oneRead)
		a.Release()
		b.Release()
		if one.Usage.ServerToolRequests != want || streamed.Usage.ServerToolRequests != want {
			t.Errorf("%s: got %d, streamed %d; want %d", items, one.Usage.ServerToolRequests, streamed.Usage.ServerToolRequests, want)
		}
	}
}
