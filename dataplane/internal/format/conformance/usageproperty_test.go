package conformance

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// randomReport makes the members of a usage object under the names of a format. The same seed gives the same counts in
// every format.
type randomReport struct {
	*rand.Rand
	input, output string
}

// count writes a count in one of the ways of providers, or something that is no count.
func (r randomReport) count(n int64) string {
	switch r.IntN(24) {
	case 0:
		return "null"
	case 1:
		return "0"
	case 2:
		return strconv.Quote(strconv.FormatInt(n, 10))
	case 3:
		return fmt.Sprintf("%d.0", n)
	case 4:
		return fmt.Sprintf("%d.37", n)
	case 5:
		return fmt.Sprintf("%d0e-1", n)
	case 6:
		if r.IntN(4) == 0 {
			return []string{"-3", `"?"`, "true", "{}", "[]", "1e99", `""`}[r.IntN(7)]
		}
	}
	return strconv.FormatInt(n, 10)
}

// size returns a count, most often a usual one.
func (r randomReport) size() int64 {
	switch r.IntN(12) {
	case 0:
		return 0
	case 1:
		return r.Int64N(1 << 50)
	case 2:
		return r.Int64N(1 << 20)
	}
	return r.Int64N(300)
}

// usage returns a usage object whose total may add up in several ways, or in none.
func (r randomReport) usage() string {
	in, out, cached, created, reasoning := r.size(), r.size(), r.size(), r.size(), r.size()
	total := in + out
	for _, part := range []int64{cached, created, reasoning} {
		if r.IntN(3) == 0 {
			total += part
		}
	}
	if r.IntN(8) == 0 {
		total = r.size()
	}
	members := []string{
		`"` + r.input + `":` + r.count(in),
		`"` + r.output + `":` + r.count(out),
	}
	add := func(format string, n int64) {
		if text := r.count(n); r.IntN(2) == 0 {
			members = append(members, fmt.Sprintf(format, text))
		}
	}
	add(`"total_tokens":%s`, total)
	add(`"`+r.input+`_details":{"cached_tokens":%s}`, cached)
	add(`"cache_creation_input_tokens":%s`, created)
	add(`"`+r.output+`_details":{"reasoning_tokens":%s}`, reasoning)
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// charged is what is charged for an answer.
type charged struct {
	usage  price.Usage
	reason usagereport.Reason
}

// Whatever a provider reports: the charge has at least half of the delivered text, no more than the request allows, and is
// the same in all formats that have the same counts, streamed or not.
func TestChargeFollowsTheDeliveredTextAndTheLimits(t *testing.T) {
	t.Parallel()
	request := usagereport.Request{Input: 40, MaxInput: 8000, MaxOutput: 1000, ByToken: true}
	for seed := range uint64(3000) {
		text := strings.Repeat([]string{"a", "word ", "ภาษา", "é"}[seed%4], rand.New(rand.NewPCG(seed, 2)).IntN(200))
		results := map[string]charged{}
		first := ""
		for _, f := range []catalogkv.Format{catalogkv.Chat, catalogkv.Responses, catalogkv.Messages} {
			usage := randomReport{rand.New(rand.NewPCG(seed, 1)), wholeNames[f][0], wholeNames[f][1]}.usage()
			for how, body := range map[string]string{"in one piece": answerWith[f], "streamed": streamWith[f]} {
				body = strings.ReplaceAll(strings.ReplaceAll(body, "hello", text), "USAGE", usage)
				a := newAnswer(t, f, "")
				var got result
				if how == "streamed" {
					got = answerStream(a, []byte(body), oneRead)
				} else {
					got = answerJSON(a, []byte(body))
				}
				evidence := a.Evidence()
				a.Release()
				if got.Failed {
					t.Fatalf("seed %d, %s, %s: failed: %s", seed, f, how, body)
				}
				var c charged
				c.usage, c.reason = usagereport.Judge(got.Usage, got.Reported, true, &evidence, &request)
				results[string(f)+", "+how] = c
				first = string(catalogkv.Chat) + ", in one piece"
				if 8*c.usage.Output < evidence.Chars || c.usage.Output > 0 && c.usage.TotalInput() == 0 {
					t.Errorf("seed %d, %s, %s: %s: %+v for %d characters", seed, f, how, usage, c, evidence.Chars)
				}
				e := event.Usage{Usage: c.usage, MaxInput: request.MaxInput, MaxOutput: request.MaxOutput}
				if _, reason := e.Beyond(); reason != "" {
					t.Errorf("seed %d, %s, %s: %s: %s", seed, f, how, usage, reason)
				}
			}
		}
		for name, c := range results {
			if want := results[first]; c != want && !strings.HasPrefix(name, string(catalogkv.Messages)) {
				t.Errorf("seed %d: %s: %+v, %s: %+v", seed, first, want, name, c)
			}
		}
		if one, streamed := results["messages, in one piece"], results["messages, streamed"]; one != streamed {
			t.Errorf("seed %d: messages in one piece: %+v, streamed: %+v", seed, one, streamed)
		}
		if t.Failed() {
			return
		}
	}
}
