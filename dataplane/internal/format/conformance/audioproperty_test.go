package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
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

// Whatever a provider reports about audio, and whichever service tier it names: the charge has at least half of the delivered
// text and audio, no more than the request allows, and is the same in all formats, streamed or not.
func TestChargeOfAudioFollowsTheAudioAndTheLimits(t *testing.T) {
	t.Parallel()
	tiers := []string{`"default"`, `"flex"`, `"priority"`, `"Priority"`, `"auto"`, `"on_demand"`, `"standard"`, `""`, "null", "7", "{}"}
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
				results[name], named[name] = chargeOfAudio(t, f, body, &request)
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

// chargeOfAudio returns the charge for an answer, and the service tier that it names. It checks both against what was delivered.
func chargeOfAudio(t *testing.T, f catalogkv.Format, body string, r *usagereport.Request) (c charged, tier string) {
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
	e := event.Usage{Usage: *u, MaxInput: r.MaxInput, MaxOutput: r.MaxOutput}
	if _, reason := e.Beyond(); reason != "" {
		t.Errorf("%+v: %s: %s", c, reason, body)
	}
	return c, evidence.ServiceTier
}
