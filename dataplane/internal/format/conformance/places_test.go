package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// placesOf has what stands in the place of the member usage in the last object of an answer, around it, and in its first
// choice, by the place of the report.
var placesOf = map[string]string{
	"of Groq":          `"x_groq":{"id":"g","usage":USAGE}`,
	"camel case":       `"usageMetadata":USAGE`,
	"snake case":       `"usage_metadata":USAGE`,
	"in meta":          `"meta":{"api_version":{},"tokens":USAGE}`,
	"in data":          `"data":{"usage":USAGE}`,
	"in a result":      `"result":{"usage":USAGE}`,
	"in a message":     `"message":{"usage":USAGE}`,
	"in a response":    `"response":{"usage":USAGE}`,
	"null at its own":  `"usage":null,"token_usage":USAGE`,
	"empty at its own": `"usage":{},"usage_metadata":USAGE`,
	"metrics":          `"amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":3,"invocationLatency":1180,"firstByteLatency":512}`,
}

// inPlace puts a report in another place than that of the format.
func inPlace(body, place, usage string) string {
	return strings.ReplaceAll(strings.ReplaceAll(body, `"usage":USAGE`, place), "USAGE", usage)
}

func TestReportIsFoundInPlacesOfOtherProviders(t *testing.T) {
	t.Parallel()
	want := price.Usage{Input: 9, Output: 3}
	for _, f := range []catalogkv.Format{catalogkv.Chat, catalogkv.Responses, catalogkv.Messages} {
		for name, place := range placesOf {
			for _, usage := range []string{
				whole(f, "9", "3", ""), `{"promptTokenCount":9,"candidatesTokenCount":3,"totalTokenCount":12}`,
				`{"inputTokens":9,"outputTokens":3,"totalTokens":12}`, `{"promptTokens":9,"completionTokens":3}`,
			} {
				a, b := newAnswer(t, f, ""), newAnswer(t, f, "")
				for how, got := range map[string]result{
					"in one piece": answerJSON(a, []byte(inPlace(answerWith[f], place, usage))),
					"streamed":     answerStream(b, []byte(inPlace(streamWith[f], place, usage)), oneRead),
				} {
					if diff := cmp.Diff(want, got.Usage); diff != "" || !got.Reported || got.Failed {
						t.Errorf("%s, %s, %s: %s: failed %v, reported %v, want -, got +:\n%s", f, name, how, usage, got.Failed, got.Reported, diff)
					}
				}
				a.Release()
				b.Release()
			}
		}
	}

	for _, place := range []string{`"usage":USAGE,"index"`, `"delta":{"usage":USAGE},"index"`, `"message":{"usage":USAGE},"index"`} {
		a := newAnswer(t, catalogkv.Chat, "")
		stream := `data: {"id":"c","model":"up","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}` + "\n\n" +
			`data: {"id":"c","model":"up","choices":[{` + strings.ReplaceAll(place, "USAGE", whole(catalogkv.Chat, "9", "3", "")) + `:0,"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
		if got := answerStream(a, []byte(stream), oneRead); got.Usage != want || !got.Reported {
			t.Errorf("%s: got %+v, reported %v", place, got.Usage, got.Reported)
		}
		a.Release()
	}
}

// Answers with images have their report in the same places, of each image, or in an event after the images.
func TestReportOfImagesIsFoundInOtherPlaces(t *testing.T) {
	t.Parallel()
	want := price.Usage{Input: 9, Output: 4160, ImageOut: 4160, Images: 1}
	check := func(how string, got result, want price.Usage) {
		t.Helper()
		got.Usage.Size, got.Usage.Quality = "", ""
		if diff := cmp.Diff(want, got.Usage); diff != "" || !got.Reported || got.Failed {
			t.Errorf("%s: failed %v, reported %v, want -, got +:\n%s", how, got.Failed, got.Reported, diff)
		}
	}
	read := func(how, body string, want price.Usage) {
		t.Helper()
		a := newAnswer(t, catalogkv.Images, "")
		defer a.Release()
		check(how, answerJSON(a, []byte(body)), want)
	}

	usages := []string{
		whole(catalogkv.Images, "9", "4160", ""), whole(catalogkv.Chat, "9", "4160", `,"total_tokens":4169`),
		`{"promptTokenCount":9,"candidatesTokenCount":4160,"totalTokenCount":4169}`, `{"inputTokens":9,"outputTokens":4160}`,
	}
	for name, place := range placesOf {
		if name == "metrics" || name == "in data" { // where the images are
			continue
		}
		for _, usage := range usages {
			read(name+": "+usage, inPlace(answerWith[catalogkv.Images], place, usage), want)
			read(name+" before the images: "+usage, strings.ReplaceAll(`{`+place+`,"created":1,"data":[{"url":"https://a.example/1.png"}]}`, "USAGE", usage), want)
		}
	}

	for _, usage := range usages {
		read("of the image: "+usage, `{"created":1,"data":[{"b64_json":"aGk=","usage":`+usage+`}]}`, want)
		read("of each image: "+usage, `{"created":1,"data":[{"b64_json":"aGk=","usage":`+usage+`},{"b64_json":"aGk=","usage":`+usage+`}]}`,
			price.Usage{Input: 18, Output: 8320, ImageOut: 8320, Images: 2})
		read("of the image and of all: "+usage, `{"created":1,"data":[{"b64_json":"aGk=","usage":`+usage+`}],"usage":`+usage+`}`, want)

		const image = "event: image_generation.completed\n" + `data: {"type":"image_generation.completed","b64_json":"aGk="MORE}` + "\n\n"
		for how, stream := range map[string]string{
			"in its event":             strings.Replace(image, "MORE", `,"usage":`+usage, 1),
			"in a response":            strings.Replace(image, "MORE", `,"response":{"usage":`+usage+`}`, 1),
			"after it":                 strings.Replace(image, "MORE", "", 1) + `data: {"usage":` + usage + "}\n\ndata: [DONE]\n\n",
			"after it, in a response":  strings.Replace(image, "MORE", "", 1) + `data: {"type":"response.completed","response":{"usage":` + usage + "}}\n\n",
			"after it, as metadata":    strings.Replace(image, "MORE", `,"usage":null`, 1) + `data: {"usageMetadata":` + usage + "}\n\n",
			"in its event and after":   strings.Replace(image, "MORE", `,"usage":`+usage, 1) + `data: {"usage":` + usage + "}\n\n",
			"beside a part of the way": `data: {"type":"image_generation.partial_image","b64_json":"aA==","usage":{"input_tokens":5,"output_tokens":7}}` + "\n\n" + strings.Replace(image, "MORE", `,"usage":`+usage, 1),
		} {
			a := newAnswer(t, catalogkv.Images, "")
			check("streamed, "+how+": "+usage, answerStream(a, []byte(stream), oneRead), want)
			a.Release()
		}
	}
}

// Words of the model are no report, and neither is what an answer repeats of the request.
func TestWordsOfTheModelAreNoReport(t *testing.T) {
	t.Parallel()
	for _, f := range []catalogkv.Format{catalogkv.Chat, catalogkv.Responses, catalogkv.Messages} {
		const repeated = `"metadata":{"usage":{"prompt_tokens":9,"completion_tokens":3,"input_tokens":9,"output_tokens":3}}`
		text := `{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"input_tokens\":9,\"output_tokens\":3}}`
		a, b := newAnswer(t, f, ""), newAnswer(t, f, "")
		for how, got := range map[string]result{
			"in one piece": answerJSON(a, []byte(strings.ReplaceAll(inPlace(answerWith[f], repeated, ""), "hello", text))),
			"streamed":     answerStream(b, []byte(strings.ReplaceAll(inPlace(streamWith[f], repeated, ""), "hello", text)), oneRead),
		} {
			if got.Reported {
				t.Errorf("%s, %s: reported %+v", f, how, got.Usage)
			}
		}
		a.Release()
		b.Release()
	}
}

// A total that cannot be read, or cannot be true, leaves the counts beside it as they are.
func TestTotalWithoutSenseLeavesTheCounts(t *testing.T) {
	t.Parallel()
	request := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true}
	for _, f := range []catalogkv.Format{catalogkv.Chat, catalogkv.Responses, catalogkv.Messages} {
		for total, reason := range map[string]usagereport.Reason{
			`-1`: usagereport.None, `"NaN"`: usagereport.None, `{}`: usagereport.None, `null`: usagereport.None, `1`: usagereport.None, `0`: usagereport.None,
			`999999999999`: usagereport.Ambiguous, `1e300`: usagereport.Ambiguous,
		} {
			for how, got := range readUsage(t, f, whole(f, "90", "30", `,"total_tokens":`+total)) {
				evidence := usagereport.Evidence{Tokens: 2, Chars: 5, Hidden: max(got.Usage.Output-30, 0)}
				u, doubt := usagereport.Judge(got.Usage, got.Reported, true, &evidence, &request)
				if want := (price.Usage{Input: 90, Output: 30}); u.Input != want.Input || u.Output != want.Output || doubt != reason {
					t.Errorf("%s, %s: total %s: got %+v, %q; want %+v, %q", f, how, total, u, doubt, want, reason)
				}
			}
		}
	}
}

func TestTotalOfMessagesIsRead(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]price.Usage{
		// Beside, as the format has it.
		`{"input_tokens":100,"cache_read_input_tokens":40,"output_tokens":9,"total_tokens":149}`: {Input: 100, CachedInput: 40, Output: 9},
		`{"input_tokens":100,"cache_read_input_tokens":40,"output_tokens":9}`:                    {Input: 100, CachedInput: 40, Output: 9},
		// Inside, as other formats have it.
		`{"input_tokens":100,"cache_read_input_tokens":40,"output_tokens":9,"total_tokens":109}`: {Input: 60, CachedInput: 40, Output: 9},
		// Neither adds up.
		`{"input_tokens":100,"cache_read_input_tokens":40,"output_tokens":9,"total_tokens":120}`: {Input: 100, CachedInput: 40, Output: 9},
		`{"input_tokens":30,"cache_read_input_tokens":40,"output_tokens":9,"total_tokens":39}`:   {Input: 30, CachedInput: 40, Output: 9},
		// What only the total has.
		`{"input_tokens":0,"output_tokens":9,"total_tokens":109}`:   {Input: 100, Output: 9},
		`{"input_tokens":100,"output_tokens":9,"total_tokens":159}`: {Input: 100, Output: 59, Reasoning: 50},
	} {
		checkReading(t, catalogkv.Messages, usage, want)
	}
}
