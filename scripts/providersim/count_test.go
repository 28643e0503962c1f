package providersim

import (
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTokensOf(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int64{0: 0, 1: 1, 4: 1, 5: 2, 8: 2, 4001: 1001} {
		if got := TokensOf(n); got != want {
			t.Errorf("TokensOf(%d) = %d; want %d", n, got, want)
		}
	}
}

func TestContentBytes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		format Format
		body   string
		want   int64
	}{
		{"chat counts its four members", Chat, `{"model":"m","messages":[1],"tools":[22],"functions":[],"response_format":{},"user":"ignored"}`, 3 + 4 + 2 + 2},
		{"white space around a value is not counted", Chat, `{ "messages" :  [ 1, 2 ]  , "tools": null }`, 8},
		{"escapes count as received", Responses, `{"input":"\u00e9","instructions":"é"}`, 8 + 4},
		{"responses counts text and tools", Responses, `{"input":"ab","text":{},"tools":[{}],"reasoning":{}}`, 4 + 2 + 4},
		{"messages counts system", Messages, `{"system":"abc","messages":[{}],"tools":[],"metadata":{}}`, 5 + 4 + 2},
		{"images counts the prompt", Images, `{"prompt":"abcd","n":3}`, 6},
		{"videos count nothing", Videos, `{"prompt":"abcd"}`, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ContentBytes(tt.format, []byte(tt.body))
			if err != nil || got != tt.want {
				t.Errorf("ContentBytes = %d, %v; want %d", got, err, tt.want)
			}
		})
	}
}

func TestContentBytesFailsWithoutAnObject(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `[]`, `{"a":1`, `{"a":1}x`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":}`} {
		if n, err := ContentBytes(Chat, []byte(body)); err == nil {
			t.Errorf("ContentBytes(%q) = %d; want an error", body, n)
		}
	}
}

func TestOutputTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		want, limit, n int64
		truncated      bool
	}{
		{16, NoLimit, 16, false},
		{16, 16, 16, false},
		{16, 15, 15, true},
		{16, 0, 0, true},
		{100, 1000, 100, false},
	}
	for _, tt := range tests {
		n, truncated := OutputTokens(tt.want, tt.limit)
		if n != tt.n || truncated != tt.truncated {
			t.Errorf("OutputTokens(%d, %d) = %d, %t; want %d, %t", tt.want, tt.limit, n, truncated, tt.n, tt.truncated)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format Format
		body   string
		want   int64
	}{
		{Chat, `{}`, NoLimit},
		{Chat, `{"max_tokens":5}`, 5},
		{Chat, `{"max_tokens":5,"max_completion_tokens":3}`, 3},
		{Chat, `{"max_completion_tokens":null,"max_tokens":5}`, 5},
		{Responses, `{"max_output_tokens":20}`, 20},
		{Messages, `{"max_tokens":0}`, 0},
	}
	for _, tt := range tests {
		if got, err := OutputLimit(tt.format, []byte(tt.body)); err != nil || got != tt.want {
			t.Errorf("OutputLimit(%s, %s) = %d, %v; want %d", tt.format, tt.body, got, err, tt.want)
		}
	}
}

// JSON answers and streams of every format report the usage that Predict returns.
func TestAnswersReportThePredictedUsage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		format Format
		change map[string]string
		want   Counts
	}{
		{"chat default", Chat, nil, Counts{Input: 8, Output: 16}},
		{"chat limit", Chat, map[string]string{"max_tokens": "5"}, Counts{Input: 8, Output: 5}},
		{"chat choices", Chat, map[string]string{"n": "3", "max_completion_tokens": "5"}, Counts{Input: 8, Output: 15}},
		{"chat cache and reasoning", Chat, model("cached=3,cache_write=2,reasoning=7"), Counts{Input: 3, CachedInput: 3, CacheWrite30m: 2, Output: 23, Reasoning: 7}},
		{"chat cannot cache more than the prompt", Chat, model("cached=100,cache_write=5"), Counts{CachedInput: 8, Output: 16}},
		{"chat limit bounds reasoning", Chat, map[string]string{"model": `"sim@reasoning=20"`, "max_tokens": "10"}, Counts{Input: 8, Output: 10, Reasoning: 10}},
		{"responses default", Responses, nil, Counts{Input: 1, Output: 16}},
		{"responses limit", Responses, map[string]string{"model": `"sim@out=50"`, "max_output_tokens": "20"}, Counts{Input: 1, Output: 20}},
		{"responses cache and reasoning", Responses, map[string]string{"model": `"sim@cached=1,cache_write=1,reasoning=4"`, "instructions": `"be kind"`}, Counts{Input: 2, CachedInput: 1, CacheWrite30m: 1, Output: 20, Reasoning: 4}},
		{"messages default", Messages, nil, Counts{Input: 8, Output: 16}},
		{"messages limit", Messages, map[string]string{"max_tokens": "3"}, Counts{Input: 8, Output: 3}},
		{"messages cache and thinking", Messages, model("cached=3,cache_write=2,reasoning=7"), Counts{Input: 3, CachedInput: 3, CacheWrite5m: 2, Output: 23, Reasoning: 7}},
		{"images", Images, map[string]string{"n": "2"}, Counts{Input: 2, Output: 544, ImageOut: 544, Images: 2}},
		{"fewer images", Images, map[string]string{"n": "4", "model": `"sim@images=1"`}, Counts{Input: 2, Output: 272, ImageOut: 272, Images: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			predicted, err := Predict(tt.format, []byte(bodyOf(tt.format, tt.change)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, predicted); diff != "" {
				t.Errorf("Predict (-want +got):\n%s", diff)
			}
			if status, body := b.ask(t, tt.format, tt.change); status != http.StatusOK {
				t.Fatalf("answered %d %s", status, body)
			}
			if diff := cmp.Diff(&tt.want, b.last(t).Counts); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			change := map[string]string{"stream": "true"}
			if tt.format == Chat {
				change["stream_options"] = `{"include_usage":true}`
			}
			maps.Copy(change, tt.change)
			b.stream(t, tt.format, change)
			if diff := cmp.Diff(&tt.want, b.last(t).Counts); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
}
