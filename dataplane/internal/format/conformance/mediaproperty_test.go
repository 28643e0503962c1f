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

// withAudio adds tokens of audio to the details of a usage object.
func (r randomReport) withAudio(usage string) string {
	for _, detail := range []string{`{"cached_tokens"`, `{"reasoning_tokens"`} {
		if audio := r.count(r.size()); r.IntN(3) > 0 {
			usage = strings.Replace(usage, detail, `{"audio_tokens":`+audio+","+detail[1:], 1)
		}
	}
	return usage
}

// tiers are what answers have for the name of a service tier.
var tiers = []string{`"default"`, `"flex"`, `"priority"`, `"Priority"`, `"auto"`, `"on_demand"`, `"standard"`, `""`, "null", "7", "{}"}

// Whatever a provider reports about audio, and whichever service tier it names: the charge has at least half of the delivered
// text and audio, no more than the request allows, and is the same in all formats, streamed or not.
func TestChargeOfAudioFollowsTheAudioAndTheLimits(t *testing.T) {
	t.Parallel()
	request := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true, AudioByToken: true}
	for seed := range uint64(3000) {
		tier := tiers[seed%uint64(len(tiers))]
		spoken := ""
		if n := rand.New(rand.NewPCG(seed, 3)).IntN(40_000); n%3 > 0 {
			spoken = fmt.Sprintf(`,"audio":{"id":"a","data":"%s","transcript":"hello hello"}`, strings.Repeat("A", n))
		}
		results := map[string]charged{}
		named := map[string]string{}
		for _, f := range []catalogkv.Format{catalogkv.Chat, catalogkv.Responses} {
			r := randomReport{rand.New(rand.NewPCG(seed, 1)), wholeNames[f][0], wholeNames[f][1]}
			usage := r.withAudio(r.usage())
			for how, body := range map[string]string{"in one piece": answerWith[f], "streamed": streamWith[f]} {
				body = strings.ReplaceAll(body, `"model":"up"`, `"model":"up","service_tier":`+tier)
				body = strings.ReplaceAll(body, "USAGE", usage)
				if f == catalogkv.Chat {
					body = strings.ReplaceAll(body, `"content":"hello"`, `"content":"hello"`+spoken)
				} else if spoken != "" {
					continue // this format has no audio
				}
				name := string(f) + ", " + how
				results[name], named[name] = chargeOfMedia(t, f, body, &request)
			}
		}
		const first = "chat, in one piece"
		for name, c := range results {
			if c != results[first] || named[name] != named[first] {
				t.Errorf("seed %d, tier %s: %s: %+v, %q, %s: %+v, %q", seed, tier, first, results[first], named[first], name, c, named[name])
			}
		}
		if t.Failed() {
			return
		}
	}
}

// chargeOfMedia returns the charge for an answer, and the service tier that it names. It checks both against what was delivered.
func chargeOfMedia(t *testing.T, f catalogkv.Format, body string, r *usagereport.Request) (c charged, tier string) {
	t.Helper()
	a := newAnswer(t, f, "")
	defer a.Release()
	var got result
	if strings.HasPrefix(body, "{") {
		got = answerJSON(a, []byte(body))
	} else {
		got = answerStream(a, []byte(body), oneRead)
	}
	if got.Failed {
		t.Fatalf("failed: %s", body)
	}
	evidence := a.Evidence()
	c.usage, c.reason = usagereport.Judge(got.Usage, got.Reported, true, &evidence, r)
	if !got.Reported {
		a.AddDelivered(&c.usage)
	}
	u := &c.usage
	if 8*u.Output < evidence.Chars+4*evidence.Audio || 2*u.AudioOut < evidence.Audio || u.Output > 0 && u.TotalInput() == 0 {
		t.Errorf("%+v for %d characters and %d tokens of audio: %s", c, evidence.Chars, evidence.Audio, body)
	}
	if u.AudioOut > u.Output || u.AudioIn > u.TotalInput() {
		t.Errorf("%+v has more audio than tokens: %s", c, body)
	}
	if r.PicturesByToken && 2*u.Output < evidence.Images*leastPicture || r.ImagesByToken && 2*u.ImageOut < evidence.Images*leastPicture {
		t.Errorf("%+v for %d images: %s", c, evidence.Images, body)
	}
	if u.Images != evidence.Images || u.ImageOut > u.Output {
		t.Errorf("%+v for %d images: %s", c, evidence.Images, body)
	}
	e := event.Usage{Usage: *u, MaxInput: r.MaxInput, MaxOutput: r.MaxOutput}
	if _, reason := e.Beyond(); reason != "" {
		t.Errorf("%+v: %s: %s", c, reason, body)
	}
	return c, evidence.ServiceTier
}

// leastPicture is how many tokens the smallest image has.
const leastPicture = 272

// withImages adds tokens of images to the details of a usage object.
func (r randomReport) withImages(usage string) string {
	for _, detail := range []string{`{"cached_tokens"`, `{"reasoning_tokens"`} {
		if images := r.count(r.size()); r.IntN(3) > 0 {
			usage = strings.Replace(usage, detail, `{"image_tokens":`+images+","+detail[1:], 1)
		}
	}
	return usage
}

// Whatever a provider reports about images in a chat answer, and in whichever place it sends them: the charge has at least half of
// them and of the text, no more than the request allows, and is the same in one piece and streamed.
func TestChargeOfImagesInAChatFollowsThem(t *testing.T) {
	t.Parallel()
	requests := []usagereport.Request{
		{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true, PicturesByToken: true},
		{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true, PicturesByToken: true, ImagesByToken: true},
		{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true},
	}
	names := wholeNames[catalogkv.Chat]
	for seed := range uint64(6000) {
		request := &requests[seed%3]
		r := randomReport{rand.New(rand.NewPCG(seed, 1)), names[0], names[1]}
		usage := r.withImages(r.usage())
		count, text := 1+r.IntN(3), strings.Repeat("hello ", r.IntN(30))
		picture := "data:image/png;base64," + strings.Repeat("iVBORw0K", 64+r.IntN(400))
		list := make([]string, count)
		for i := range list {
			list[i] = fmt.Sprintf(`{"type":"image_url","image_url":{"url":"%s"}`, picture)
			if seed%2 == 0 {
				list[i] += fmt.Sprintf(`,"index":%d`, i)
			}
			list[i] += "}"
		}
		var content string
		switch r.IntN(4) {
		case 0:
			content = `"content":"` + text + `","images":[` + strings.Join(list, ",") + `]`
		case 1:
			content = `"content":[{"type":"text","text":"` + text + `"},` + strings.Join(list, ",") + `]`
		case 2:
			content = `"content":"` + text + strings.Repeat("![image]("+picture+") ", count) + `"`
		case 3:
			content = `"content":"` + strings.ReplaceAll(strings.Repeat("![image]("+picture+")", count)+text, "/", `\/`) + `"`
		}

		results := map[string]charged{}
		for how, body := range map[string]string{"in one piece": answerWith[catalogkv.Chat], "streamed": streamWith[catalogkv.Chat]} {
			body = strings.ReplaceAll(strings.ReplaceAll(body, `"content":"hello"`, content), "USAGE", usage)
			results[how], _ = chargeOfMedia(t, catalogkv.Chat, body, request)
			if got := results[how].usage.Images; got != int64(count) {
				t.Errorf("seed %d, %s: got %d images; want %d", seed, how, got, count)
			}
		}
		if results["in one piece"] != results["streamed"] {
			t.Errorf("seed %d: %s: %+v", seed, usage, results)
		}
		if t.Failed() {
			return
		}
	}
}

// Whichever service tier and mode an answer names, before the text or after it: it is the same in one piece and streamed, and a
// name that says nothing does not replace one.
func TestServiceTierOfMessagesIsTheSameStreamed(t *testing.T) {
	t.Parallel()
	speeds := []string{"", `,"speed":"fast"`, `,"speed":"standard"`, `,"speed":null`, `,"speed":7`}
	for seed := range uint64(3000) {
		r := randomReport{rand.New(rand.NewPCG(seed, 1)), "input_tokens", "output_tokens"}
		tier, speed := tiers[r.IntN(len(tiers))], speeds[r.IntN(len(speeds))]
		said := `"service_tier":` + tier + speed
		with := func(usage string, add bool) string {
			if !add {
				return usage
			}
			return strings.TrimSuffix(usage, "}") + "," + said + "}"
		}
		usage := r.usage()
		request := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true}
		read := func(body string) (c charged, tier, speed string) {
			a := newAnswer(t, catalogkv.Messages, "")
			defer a.Release()
			var got result
			if strings.HasPrefix(body, "{") {
				got = answerJSON(a, []byte(body))
			} else {
				got = answerStream(a, []byte(body), oneRead)
			}
			e := a.Evidence()
			c.usage, c.reason = usagereport.Judge(got.Usage, got.Reported, true, &e, &request)
			return c, e.ServiceTier, e.Speed
		}
		wantCharge, wantTier, wantSpeed := read(strings.ReplaceAll(answerWith[catalogkv.Messages], "USAGE", with(usage, true)))
		for _, at := range []struct{ first, last bool }{{true, false}, {false, true}, {true, true}} {
			body := strings.Replace(streamWith[catalogkv.Messages], `{"input_tokens":0,"output_tokens":1}`, with(`{"input_tokens":0,"output_tokens":1}`, at.first), 1)
			body = strings.ReplaceAll(body, "USAGE", with(usage, at.last))
			if c, tier, speed := read(body); c != wantCharge || tier != wantTier || speed != wantSpeed {
				t.Errorf("seed %d, %+v, %s: streamed %+v, %q, %q; in one piece %+v, %q, %q", seed, at, said, c, tier, speed, wantCharge, wantTier, wantSpeed)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// A report of the tokens of an image is believed, although the image is a long text.
func TestImageInATextDoesNotMakeItsReportIncredible(t *testing.T) {
	t.Parallel()
	content := `"content":"![image](data:image/png;base64,` + strings.Repeat("iVBORw0K", 50_000) + `)"`
	request := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true, PicturesByToken: true}
	for how, body := range map[string]string{"in one piece": answerWith[catalogkv.Chat], "streamed": streamWith[catalogkv.Chat]} {
		body = strings.ReplaceAll(body, `"content":"hello"`, content)
		body = strings.ReplaceAll(body, "USAGE", `{"prompt_tokens":10,"completion_tokens":1290,"total_tokens":1300}`)
		c, _ := chargeOfMedia(t, catalogkv.Chat, body, &request)
		if want := (charged{usage: price.Usage{Input: 10, Output: 1290, Images: 1}}); c != want {
			t.Errorf("%s: got %+v; want %+v", how, c, want)
		}
	}
}
