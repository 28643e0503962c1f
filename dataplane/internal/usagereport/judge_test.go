package usagereport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/price"
)

// A request with an estimated input of 40 tokens. The answers are 400 characters long.
var (
	asked     = Request{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true}
	delivered = Evidence{Tokens: 100, Chars: 400}
)

func TestReportIsBelievedIfItCanBeTrue(t *testing.T) {
	t.Parallel()
	thai := Evidence{Tokens: 300, Chars: 400} // three bytes a character
	for name, tt := range map[string]struct {
		usage    price.Usage
		evidence Evidence
	}{
		"the usual number":                    {price.Usage{Input: 50, Output: 100}, delivered},
		"a little more than half":             {price.Usage{Input: 50, Output: 50}, delivered},
		"hidden reasoning":                    {price.Usage{Input: 50, Output: 20_000, Reasoning: 19_900}, delivered},
		"a cached input":                      {price.Usage{CachedInput: 50, Output: 100}, delivered},
		"an input far below its estimate":     {price.Usage{Input: 1, Output: 100}, delivered},
		"long characters":                     {price.Usage{Input: 50, Output: 60}, thai},
		"nothing was delivered":               {price.Usage{}, Evidence{}},
		"nothing was delivered for the input": {price.Usage{Input: 50}, Evidence{}},
		"searches":                            {price.Usage{Input: 15_000, Output: 100, ServerToolRequests: 1}, delivered},
	} {
		if u, reason := Judge(tt.usage, true, true, &tt.evidence, &asked); reason != None || u != tt.usage {
			t.Errorf("%s: got %+v, %q", name, u, reason)
		}
	}
	u := price.Usage{Input: 50, Output: 100}
	if got, reason := Judge(u, true, true, &Evidence{Ambiguous: true, Tokens: 100, Chars: 400}, &asked); reason != Ambiguous || reason.Estimated() || got != u {
		t.Errorf("ambiguous: got %+v, %q", got, reason)
	}
}

func TestReportThatCannotBeTrueIsEstimated(t *testing.T) {
	t.Parallel()
	type given struct {
		usage              price.Usage
		reported, complete bool
		evidence           Evidence
	}
	report := func(u price.Usage) given { return given{u, true, true, delivered} }
	for name, tt := range map[string]struct {
		given

		want   price.Usage
		reason Reason
	}{
		"no report":              {given{evidence: delivered, complete: true}, price.Usage{Input: 40, Output: 100}, Missing},
		"broken off":             {given{evidence: delivered}, price.Usage{Input: 40, Output: 100}, Interrupted},
		"broken off after input": {given{usage: price.Usage{Input: 50, CachedInput: 7}, evidence: delivered}, price.Usage{Input: 50, CachedInput: 7, Output: 100}, Interrupted},
		"unreadable":             {given{evidence: Evidence{Unreadable: true, Tokens: 100, Chars: 400}, complete: true}, price.Usage{Input: 40, Output: 100}, Unreadable},

		"zeros":                     {report(price.Usage{}), price.Usage{Input: 40, Output: 100}, LowOutput},
		"no input":                  {report(price.Usage{Output: 120}), price.Usage{Input: 40, Output: 120}, NoInput},
		"no output":                 {report(price.Usage{Input: 50}), price.Usage{Input: 50, Output: 100}, LowOutput},
		"less than half":            {report(price.Usage{Input: 50, Output: 49}), price.Usage{Input: 50, Output: 100}, LowOutput},
		"no input and no text":      {given{price.Usage{Output: 12}, true, true, Evidence{}}, price.Usage{Input: 40, Output: 12}, NoInput},
		"a character":               {given{price.Usage{Input: 50}, true, true, Evidence{Tokens: 1, Chars: 1}}, price.Usage{Input: 50, Output: 1}, LowOutput},
		"too much output":           {report(price.Usage{Input: 50, Output: 100_000}), price.Usage{Input: 50, Output: 100}, HighOutput},
		"absurd reasoning":          {report(price.Usage{Input: 50, Output: 1 << 40, Reasoning: 1 << 40}), price.Usage{Input: 50, Output: 100}, HighOutput},
		"too much input":            {report(price.Usage{Input: 50, CachedInput: 100_000, Output: 100}), price.Usage{Input: 40, Output: 100}, HighInput},
		"both":                      {report(price.Usage{Input: 100_000, AudioIn: 7, Output: 100_000}), price.Usage{Input: 40, Output: 100}, HighOutput},
		"an absurd number of calls": {report(price.Usage{Input: 50, Output: 100, ServerToolRequests: 1 << 40}), price.Usage{Input: 50, Output: 100}, HighOther},
		"a part of a report that is too much": {
			given{usage: price.Usage{Input: 1 << 40}, evidence: delivered}, price.Usage{Input: 40, Output: 100}, Interrupted,
		},
	} {
		got, reason := Judge(tt.usage, tt.reported, tt.complete, &tt.evidence, &asked)
		if diff := cmp.Diff(tt.want, got); diff != "" || reason != tt.reason || !reason.Estimated() {
			t.Errorf("%s: reason %q; want %q, want -, got +:\n%s", name, reason, tt.reason, diff)
		}
	}
}

// Audio has few characters of transcript and many tokens, which may have a price of their own.
func TestReportWithoutTheDeliveredAudioIsEstimated(t *testing.T) {
	t.Parallel()
	spoken := Evidence{Tokens: 10, Chars: 40, Audio: 200}
	plain := asked
	priced := asked
	priced.AudioByToken = true
	for name, tt := range map[string]struct {
		request     Request
		usage, want price.Usage
	}{
		"all of it":                {priced, price.Usage{Input: 50, Output: 210, AudioOut: 200}, price.Usage{Input: 50, Output: 210, AudioOut: 200}},
		"half of it":               {priced, price.Usage{Input: 50, Output: 110, AudioOut: 100}, price.Usage{Input: 50, Output: 110, AudioOut: 100}},
		"only text":                {priced, price.Usage{Input: 50, Output: 10}, price.Usage{Input: 50, Output: 210, AudioOut: 200}},
		"none of audio":            {priced, price.Usage{Input: 50, Output: 210}, price.Usage{Input: 50, Output: 210, AudioOut: 200}},
		"less than half of audio":  {priced, price.Usage{Input: 50, Output: 150, AudioOut: 99}, price.Usage{Input: 50, Output: 150, AudioOut: 150}},
		"too much":                 {priced, price.Usage{Input: 50, Output: 1 << 40, AudioOut: 1 << 40}, price.Usage{Input: 50, Output: 210, AudioOut: 200}},
		"only text, no price":      {plain, price.Usage{Input: 50, Output: 10}, price.Usage{Input: 50, Output: 210}},
		"none of audio, no price":  {plain, price.Usage{Input: 50, Output: 210}, price.Usage{Input: 50, Output: 210}},
		"tokens without any price": {Request{}, price.Usage{Input: 50, Output: 10}, price.Usage{Input: 50, Output: 10}},
	} {
		got, reason := Judge(tt.usage, true, true, &spoken, &tt.request)
		if diff := cmp.Diff(tt.want, got); diff != "" || reason.Estimated() != (tt.usage != tt.want) {
			t.Errorf("%s: reason %q, want -, got +:\n%s", name, reason, diff)
		}
	}
	if u, _ := Judge(price.Usage{Input: 50}, false, false, &spoken, &priced); u != (price.Usage{Input: 50, Output: 10}) {
		t.Errorf("broken off: got %+v; the audio is added elsewhere", u)
	}
}

// A tokenizer with a large vocabulary makes long tokens of text that repeats itself, and a provider may leave most of a prompt
// out. One token for thousands of bytes is neither.
func TestInputFarBelowTheTextOfTheRequestIsEstimated(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  int64
		usage price.Usage
		want  int64 // total input
	}{
		{512, price.Usage{Input: 1, Output: 100}, 128},
		{256, price.Usage{Input: 1, Output: 100}, 1},
		{40_000, price.Usage{Input: 1, Output: 100}, 10_000},
		{40_000, price.Usage{Input: 100, Output: 100}, 10_000},
		{40_000, price.Usage{Input: 157, Output: 100}, 157},
		{40_000, price.Usage{CachedInput: 157, Output: 100}, 157},
		{40_000, price.Usage{Input: 1, CacheWrite5m: 156, Output: 100}, 157},
		{0, price.Usage{Input: 1, Output: 100}, 1},
	} {
		request := asked
		request.Text, request.Input, request.MaxInput = tt.text, tt.text/4, 1_000_000
		want := None
		if tt.want != tt.usage.TotalInput() {
			want = LowInput
		}
		if u, reason := Judge(tt.usage, true, true, &delivered, &request); reason != want || u.TotalInput() != tt.want {
			t.Errorf("%d bytes: %+v: got %+v, %q; want %d, %q", tt.text, tt.usage, u, reason, tt.want, want)
		}
		request.ByToken = false
		if u, reason := Judge(tt.usage, true, true, &delivered, &request); reason != None || u != tt.usage {
			t.Errorf("%d bytes, by piece: got %+v, %q", tt.text, u, reason)
		}
	}
}

// The answer of an image model has no text. Its usage matters only if the model is priced by tokens.
func TestUsageOfImagesIsEstimatedIfTokensHaveAPrice(t *testing.T) {
	t.Parallel()
	byPiece := Request{Input: 10}
	byToken := Request{Input: 10, ByToken: true, PicturesByToken: true}
	both := Request{Input: 10, ByToken: true}
	for _, tt := range []struct {
		request Request
		usage   price.Usage
		want    price.Usage
		reason  Reason
	}{
		{byPiece, price.Usage{Images: 2}, price.Usage{Images: 2}, None},
		{both, price.Usage{Images: 2}, price.Usage{Images: 2}, None},
		{byToken, price.Usage{Images: 2, Input: 12, Output: 2000, ImageOut: 2000}, price.Usage{Images: 2, Input: 12, Output: 2000, ImageOut: 2000}, None},
		{byToken, price.Usage{Images: 2}, price.Usage{Images: 2, Input: 10, Output: 2112, ImageOut: 2112}, Missing},
		{byToken, price.Usage{Images: 1, Input: 12, Quality: "high"}, price.Usage{Images: 1, Input: 12, Output: 4160, ImageOut: 4160, Quality: "high"}, LowOutput},
		{byToken, price.Usage{Images: 1, Input: 12, Quality: "low"}, price.Usage{Images: 1, Input: 12, Output: 272, ImageOut: 272, Quality: "low"}, LowOutput},
	} {
		got, reason := Judge(tt.usage, true, true, &Evidence{}, &tt.request)
		if diff := cmp.Diff(tt.want, got); diff != "" || reason != tt.reason {
			t.Errorf("%+v: reason %q; want %q, want -, got +:\n%s", tt.usage, reason, tt.reason, diff)
		}
	}
}

func TestLengthOfAVideoIsThatOfTheRequestUnlessTheReportIsBelieved(t *testing.T) {
	t.Parallel()
	for reported, want := range map[int64]struct {
		seconds int64
		reason  Reason
	}{
		0: {4, Missing}, 1: {1, None}, 4: {4, None}, 8: {8, None}, 61: {4, HighOther}, 1 << 40: {4, HighOther},
	} {
		if got, reason := JudgeVideo(reported, 4); got != want.seconds || reason != want.reason {
			t.Errorf("%d seconds: got %d, %q; want %d, %q", reported, got, reason, want.seconds, want.reason)
		}
	}
}
