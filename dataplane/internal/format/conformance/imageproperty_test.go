package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// Whatever a provider reports about images: each delivered image is charged, by token never without tokens and never beyond the
// limits, and the same under the names of every format, in one piece or streamed.
func TestChargeOfImagesFollowsTheImagesAndTheLimits(t *testing.T) {
	t.Parallel()
	byToken := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 20000, ByToken: true, PicturesByToken: true}
	byPiece := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 20000}
	for seed := range uint64(3000) {
		count := int64(1 + seed%3)
		pictures := strings.TrimSuffix(strings.Repeat(`{"b64_json":"aGk="},`, int(count)), ",")
		var first charged
		for i, names := range [][2]string{{"input_tokens", "output_tokens"}, {"prompt_tokens", "completion_tokens"}} {
			usage := randomReport{rand.New(rand.NewPCG(seed, 1)), names[0], names[1]}.usage()
			body := fmt.Sprintf(`{"created":1,"data":[%s],"usage":%s}`, pictures, usage)
			c := chargeOfImages(t, body, false, &byToken)
			u := c.usage
			e := event.Usage{Usage: u, MaxInput: byToken.MaxInput, MaxOutput: byToken.MaxOutput}
			if _, reason := e.Beyond(); reason != "" {
				t.Errorf("seed %d: %s: %s", seed, usage, reason)
			}
			if u.Images != count || u.Output == 0 || u.ImageOut > u.Output || u.TotalInput() == 0 {
				t.Errorf("seed %d: %s: %+v for %d images", seed, usage, c, count)
			}
			if i == 0 {
				first = c
			} else if c != first {
				t.Errorf("seed %d: %s: %+v, under the other names %+v", seed, usage, c, first)
			}
			// Images have no service tiers: none of their charges depends on one.
			named := strings.Replace(body, `"created":1`, `"created":1,"service_tier":`+tiers[seed%uint64(len(tiers))], 1)
			if got := chargeOfImages(t, named, false, &byToken); got != c {
				t.Errorf("seed %d: %s: with a service tier %+v, without %+v", seed, usage, got, c)
			}
			if got := chargeOfImages(t, body, false, &byPiece); got.usage.Images != count {
				t.Errorf("seed %d: %s: %+v for %d images at a price for each", seed, usage, got, count)
			}
			if count > 1 {
				continue // each event of a stream has a report of its own
			}
			stream := "event: image_generation.completed\n" +
				`data: {"type":"image_generation.completed","b64_json":"aGk=","usage":` + usage + "}\n\n"
			if got := chargeOfImages(t, stream, true, &byToken); got != c {
				t.Errorf("seed %d: %s: streamed %+v, in one piece %+v", seed, usage, got, c)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// chargeOfImages returns the charge for an answer with images.
func chargeOfImages(t *testing.T, body string, streamed bool, r *usagereport.Request) charged {
	t.Helper()
	a := newAnswer(t, catalogkv.Images, "")
	defer a.Release()
	var got result
	if streamed {
		got = answerStream(a, []byte(body), oneRead)
	} else {
		got = answerJSON(a, []byte(body))
	}
	if got.Failed {
		t.Fatalf("failed: %s", body)
	}
	evidence := a.Evidence()
	var c charged
	c.usage, c.reason = usagereport.Judge(got.Usage, got.Reported, true, &evidence, r)
	return c
}

// Only what is an image counts as one, in one piece and streamed.
func TestOnlyImagesAreCounted(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]int64{
		`"b64_json":"aGk="`:                                  1,
		`"url":"https://x.example/1.png"`:                    1,
		`"b64_json":"aGk=","url":"https://x.example/1.png"`:  1,
		`"b64_json":"","url":"https://x.example/1.png"`:      1,
		`"b64_json":null,"url":"data:image/png;base64,aGk="`: 1,
		`"b64_json":null`:                                    0,
		`"b64_json":""`:                                      0,
		`"b64_json":7`:                                       0,
		`"url":" "`:                                          0,
		`"url":{}`:                                           0,
		`"revised_prompt":"x"`:                               0,
	} {
		for how, text := range map[string]string{
			"in one piece": `{"created":1,"data":[{` + members + `}]}`,
			"streamed":     "event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\"," + members + "}\n\n",
		} {
			a := newAnswer(t, catalogkv.Images, "")
			var got result
			var complete bool
			if how == "streamed" {
				got = answerStream(a, []byte(text), oneRead)
				complete = got.OK
			} else {
				got = answerJSON(a, []byte(text))
				complete = !got.Failed
			}
			if got.Usage.Images != want || complete != (want > 0) {
				t.Errorf("%s, %s: got %d images, complete %v; want %d", how, members, got.Usage.Images, complete, want)
			}
			a.Release()
		}
	}
}

// The image tool of the responses format: a call that has failed, and an event without an image, count as none. Without details,
// all of its output is the image, as it is in the answer of an image model.
func TestOnlyImagesOfTheToolAreCounted(t *testing.T) {
	t.Parallel()
	const event = "event: %[1]s\ndata: {\"type\":\"%[1]s\",%[2]s}\n\n"
	call := func(members string) string { return `{"type":"image_generation_call",` + members + `}` }
	for _, tt := range []struct {
		call string
		want int64
	}{
		{call(`"status":"completed","result":"aGk="`), 1},
		{call(`"status":"completed"`), 1},
		{call(`"status":"failed","result":null`), 0},
	} {
		body := `{"id":"r","model":"up","status":"completed","output":[` + tt.call + `],"usage":{"input_tokens":9,"output_tokens":3},` +
			`"tool_usage":{"image_gen":{"input_tokens":5,"output_tokens":272}}}`
		for how, text := range map[string]string{
			"in one piece": body,
			"streamed":     fmt.Sprintf(event, "response.completed", `"response":`+body),
		} {
			a := newAnswer(t, catalogkv.Responses, "")
			var got result
			if how == "streamed" {
				got = answerStream(a, []byte(text), oneRead)
			} else {
				got = answerJSON(a, []byte(text))
			}
			want := price.Secondary{
				Kind:     price.ImageTool,
				Input:    5,
				Output:   272,
				ImageOut: 272,
				Images:   tt.want,
			}
			if got.Usage.Secondary != want || got.Failed {
				t.Errorf("%s, %s: got %+v, failed %v; want %+v", how, tt.call, got.Usage.Secondary, got.Failed, want)
			}
			a.Release()
		}
	}

	for members, want := range map[string]int64{
		`"partial_image_b64":"aGk="`: 1, `"partial_image_b64":null`: 0, `"partial_image_b64":""`: 0, `"partial_image_b64":7`: 0,
		`"item":` + call(`"result":"aGk="`): 1, `"item":` + call(`"result":null`): 0, `"item":` + call(`"result":""`): 0,
	} {
		kind := "response.image_generation_call.partial_image"
		if strings.HasPrefix(members, `"item"`) {
			kind = "response.output_item.done"
		}
		a := newAnswer(t, catalogkv.Responses, "")
		answerStream(a, fmt.Appendf(nil, event, kind, members), oneRead)
		var u price.Usage
		if a.AddDelivered(&u); u.Secondary.Images != want {
			t.Errorf("%s: %d images were delivered; want %d", members, u.Secondary.Images, want)
		}
		a.Release()
	}
}
