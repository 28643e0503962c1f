package jsonspan

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// bodies returns request bodies of the shapes that matter for speed.
func bodies() map[string][]byte {
	request := func(content string) []byte {
		return []byte(`{"model":"demo-chat","messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"` +
			content + `"}],"temperature":0.7,"max_tokens":256,"stream":true,"stream_options":{"include_usage":true}}`)
	}
	line := strings.Repeat("x", 78)
	var turns strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&turns, `,{"role":"user","content":[{"type":"text","text":"turn %d, %s"}]}`, i, line)
	}
	return map[string][]byte{
		"1KB":            request(strings.Repeat("a prompt of words ", 50)),
		"1MB_words":      request(words(1 << 20)),
		"1MB_plain":      request(strings.Repeat("x", 1<<20)),
		"1MB_escape80":   request(strings.Repeat(line+`\"`, 1<<20/80)),
		"1MB_cyrillic":   request(strings.Repeat("привет мир, ", 1<<20/21)),
		"1MB_cjk":        request(strings.Repeat("漢字かな。", 1<<20/15)),
		"1MB_u_escapes":  request(strings.Repeat(`\u043f\u0440`, 1<<20/12)),
		"1MB_turns":      []byte(`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(turns.String()[1:]+",", 8), ",") + `]}`),
		"1MB_image":      []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo` + strings.Repeat("QUJD", 1<<18) + `"}}]}]}`),
		"150KB_turns":    []byte(`{"model":"m","messages":[` + turns.String()[1:] + `]}`),
		"200KB_logits":   []byte(numbered(16000, func(i int) string { return strconv.Itoa(i + 100000) })),
		"16MB_data_url":  request("data:image/png;base64," + strings.Repeat("QUJD", 4<<20)),
		"response_small": []byte(`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."}}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}`),
	}
}

// words returns about n bytes of words of random lengths, which a processor cannot foresee.
func words(n int) string {
	var b strings.Builder
	r := rand.New(rand.NewPCG(1, 1))
	for b.Len() < n {
		b.WriteString("internationalisation"[:1+r.IntN(6)+r.IntN(6)])
		b.WriteByte(' ')
	}
	return b.String()
}

func TestOperationsDoNotAllocate(t *testing.T) {
	all := bodies()
	body := all["1MB_escape80"]
	var o Object
	var e Edit
	out := make([]byte, 0, len(body)+1024)
	model := []byte(`"gpt-upstream-name"`)
	options := []byte(`{"include_usage":true}`)
	scratch := make([]byte, 0, 64)
	tests := []struct {
		name string
		run  func()
	}{
		{"parse", func() { must(t, o.Parse(body) == nil) }},
		{"parse turns", func() { must(t, o.Parse(all["150KB_turns"]) == nil) }},
		{"parse logits", func() { must(t, o.Parse(all["200KB_logits"]) == nil) }},
		{"edit", func() {
			must(t, o.Parse(body) == nil)
			e.Begin(&o)
			e.Set("model", model)
			e.Drop("temperature")
			e.Set("added", options)
			must(t, len(e.Append(out)) > len(body)/2)
		}},
		{"find", func() {
			raw, ok := Find(all["response_small"], "usage", "prompt_tokens_details", "cached_tokens")
			must(t, ok)
			n, ok := Int64(raw)
			must(t, ok && n == 4)
			_, ok = Find(all["response_small"], "choices", "0", "index")
			must(t, ok)
		}},
		{"walk", func() {
			n := 0
			for name, value := range Members(all["response_small"]) {
				n += len(name)
				for element := range Elements(value) {
					n += len(element)
				}
			}
			must(t, n > 0)
		}},
		{"text", func() {
			_, ok := Text(nil, []byte(`"plain"`))
			must(t, ok)
			_, ok = Text(scratch, []byte(`"esc\u0061ped"`))
			must(t, ok)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(10, tt.run); n != 0 {
				t.Errorf("%v allocations; want 0", n)
			}
		})
	}
}

func must(t *testing.T, ok bool) {
	t.Helper()
	if !ok {
		t.Fatal("the measured call failed")
	}
}

func BenchmarkParse(b *testing.B) {
	for name, body := range bodies() {
		b.Run(name, func(b *testing.B) {
			var o Object
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := o.Parse(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEdit(b *testing.B) {
	all := bodies()
	for _, name := range []string{"1KB", "1MB_plain"} {
		b.Run(name, func(b *testing.B) {
			body := all[name]
			var o Object
			if err := o.Parse(body); err != nil {
				b.Fatal(err)
			}
			var e Edit
			model := []byte(`"gpt-upstream-name"`)
			out := make([]byte, 0, len(body)+1024)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				e.Begin(&o)
				e.Set("model", model)
				e.Drop("temperature")
				out = e.Append(out[:0])
			}
		})
	}
}

func BenchmarkFind(b *testing.B) {
	body := bodies()["response_small"]
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Find(body, "usage", "prompt_tokens_details", "cached_tokens"); !ok {
			b.Fatal("not found")
		}
	}
}
