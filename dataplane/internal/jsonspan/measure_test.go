package jsonspan

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSizeCountsMediaSeparately(t *testing.T) {
	t.Parallel()
	base64 := strings.Repeat("QUJD", 300)
	text := strings.Repeat("some text, ", 120)
	png := "iVBORw0KGgo" + base64
	tests := []struct {
		name, raw string
		media     int
		parts     int
		files     int
	}{
		{"text", `[{"role":"user","content":"` + text + `"}]`, 0, 0, 0},
		{"data url", `[{"image_url":{"url":"data:image/png;base64,` + base64 + `"}}]`, len(base64) + 22, 1, 0},
		{"data url of a part", `[{"type":"input_image","image_url":"data:image/png;base64,` + base64 + `"}]`, len(base64) + 22, 1, 0},
		{"data url with escaped slash", `[{"image_url":"data:image\/png;base64,` + base64 + `"}]`, len(base64) + 23, 1, 0},
		{"data url of a text", `[{"file_data":"data:text/plain; charset=utf-8;base64,` + base64 + `"}]`, len(base64) + 38, 1, len(base64) + 38},
		{"document", `[{"file":{"file_data":"data:application/pdf;base64,` + base64 + `"}}]`, len(base64) + 28, 1, len(base64) + 28},
		{"short data url", `[{"image_url":"data:image/png;base64,QUJD"}]`, 26, 1, 0},
		{"address", `[{"image_url":{"url":"https://example.org/1.png"}}]`, 25, 1, 0},
		{"address in a source", `[{"source":{"type":"url","url":"https://example.org/1.png"}}]`, 25, 1, 0},
		{"base64 data", `{"source":{"type":"base64","data":"` + base64 + `"}}`, len(base64), 1, len(base64)},
		{"audio", `{"input_audio":{"data":"` + base64 + `"}}`, len(base64), 1, len(base64)},
		{"escaped name", `{"source":{"d\u0061ta":"` + png + `"}}`, len(png), 1, 0},
		{"b64_json, spaced", `{ "b64_json" : "` + base64 + `" }`, len(base64), 1, len(base64)},
		{"drawing in the history", `[{"type":"image_generation_call","result":"` + png + `"}]`, len(png), 1, 0},
		{"result in a history", `[{"type":"some_call","result":"` + base64 + `"}]`, 0, 0, 0},
		{"PNG", `{"source":{"data":"` + png + `"}}`, len(png), 1, 0},
		{"JPEG", `{"source":{"data":"\/9j\/` + base64 + `"}}`, len(base64) + 6, 1, 0},
		{"WebP", `{"source":{"data":"UklGRiQAAABXRUJQ` + base64 + `"}}`, len(base64) + 16, 1, 0},
		{"WAV", `{"source":{"data":"UklGRiQAAABXQVZF` + base64 + `"}}`, len(base64) + 16, 1, len(base64) + 16},
		{"two", `[{"source":{"data":"` + base64 + `"}},{"source":{"data":"` + base64 + `"}}]`, 2 * len(base64), 2, 2 * len(base64)},

		// A prompt that looks like media is text.
		{"text member", `[{"type":"text","text":"data:image/png;base64,` + base64 + `"}]`, 0, 0, 0},
		{"content", `[{"role":"user","content":"data:image/png;base64,` + base64 + `"}]`, 0, 0, 0},
		{"output of a call", `[{"type":"function_call_output","output":"data:image/png;base64,` + base64 + `"}]`, 0, 0, 0},
		{"string alone", `"data:image/png;base64,` + base64 + `"`, 0, 0, 0},
		{"string in an array", `["data:image/png;base64,` + base64 + `","x"]`, 0, 0, 0},
		{"words behind the head", `[{"image_url":"data:image/png;base64,` + text + `"}]`, 0, 0, 0},
		{"words in the middle", `[{"image_url":"data:image/png;base64,` + base64 + text + base64 + `"}]`, 0, 0, 0},
		{"escaped words", `[{"image_url":"data:image/png;base64,` + strings.Repeat(`please\u0020read`, 100) + `"}]`, 0, 0, 0},
		{"percent-encoded text", `[{"file_data":"data:text/plain,` + base64 + `"}]`, 0, 0, 0},
		{"drawing as text", `[{"image_url":"data:image/svg+xml;utf8,` + base64 + `"}]`, 0, 0, 0},
		{"plain source", `{"source":{"type":"text","data":"` + png + `"}}`, 0, 0, 0},
		{"plain source, other order", `{"source":{"data":"` + png + `","type":"text"},"image_url":"https:x"}`, 7, 1, 0},
		{"url outside of a carrier", `[{"url":"data:image/png;base64,` + base64 + `"}]`, 0, 0, 0},
		{"data outside of a carrier", `{"data":"` + png + `"}`, 0, 0, 0},
		{"arguments of a tool", `[{"type":"tool_use","input":{"source":{"data":"` + png + `"}}}]`, 0, 0, 0},
		{"definition of a tool", `[{"tools":[{"parameters":{"image_url":"data:image/png;base64,` + base64 + `"}}]}]`, 0, 0, 0},
		{"name of the array", `{"data":["` + base64 + `"]}`, 0, 0, 0},
		{"long name", `{"data:,` + base64 + `":1}`, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := Size{Bytes: len(tt.raw), MediaBytes: tt.media, MediaParts: tt.parts, FileBytes: tt.files}
			withoutAddresses := func(s Size) Size { s.Addresses, s.FileAddresses, s.PlainBytes, s.DenseBytes = 0, 0, 0, 0; return s }
			if got := withoutAddresses(measure("messages", []byte(tt.raw))); got != want {
				t.Errorf("measure = %+v; want %+v", got, want)
			}
			var o Object
			if err := o.Parse([]byte(`{"other":["` + text + `"],"messages":` + tt.raw + `,"tools":` + tt.raw + `,"last":1}`)); err != nil {
				t.Fatalf("Parse: %v", err)
			}
			if it, _ := o.Get("messages"); withoutAddresses(it.Size) != want {
				t.Errorf("Member.Size = %+v; want %+v", it.Size, want)
			}
			if tools, _ := o.Get("tools"); withoutAddresses(tools.Size) != (Size{Bytes: len(tt.raw)}) {
				t.Errorf("the Size of tools = %+v; want text only", tools.Size)
			}
			if last, _ := o.Get("last"); last.Size != (Size{Bytes: 1}) {
				t.Errorf("the next member's Size = %+v; want one byte", last.Size)
			}
		})
	}
}

func TestTextWithoutWordsIsDense(t *testing.T) {
	t.Parallel()
	base64 := strings.Repeat("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0Njc4", 40) // 1600 bytes
	for name, tt := range map[string]struct {
		raw  string
		want int
	}{
		"words":             {`[{"role":"user","content":"` + strings.Repeat("the internationalisation of a name ", 99) + `"}]`, 0},
		"code":              {`[{"role":"user","content":"` + strings.Repeat(`if err := s.handler.ServeHTTP(w,r);err!=nil{\n`, 99) + `"}]`, 0},
		"a table":           {`[{"role":"user","content":"` + strings.Repeat("-", 999) + `"}]`, 0},
		"Chinese":           {`[{"role":"user","content":"` + strings.Repeat("这是一个没有空格的句子", 99) + `"}]`, 0},
		"behind dashes":     {`[{"role":"user","content":"` + strings.Repeat("-", 100) + base64 + `"}]`, 1700},
		"base64 alone":      {`[{"role":"user","content":"` + base64 + `"}]`, 1600},
		"base64 in a part":  {`[{"role":"user","content":[{"type":"text","text":"` + base64 + `"}]}]`, 1600},
		"base64 of an URL":  {`[{"role":"user","content":[{"type":"text","text":"data:image/png;base64,` + base64 + `"}]}]`, 1600},
		"between words":     {`[{"role":"user","content":"` + strings.Repeat("some words ", 99) + base64 + strings.Repeat(" and more", 99) + `"}]`, 1600},
		"in lines of 76":    {`[{"role":"user","content":"` + strings.Repeat(base64[:76]+`\n`, 20) + `"}]`, 20*76 + 19}, // and the n of each line but the last
		"escaped slashes":   {`[{"role":"user","content":"` + strings.Repeat(base64[:40]+`\/`, 20) + `"}]`, 20 * 42},
		"hexadecimal":       {`[{"role":"user","content":"` + strings.Repeat("0123456789abcdef", 20) + `"}]`, 320},
		"in a list":         {`["` + base64 + `"]`, 1600},
		"arguments":         {`[{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"data\":\"` + base64 + `\"}"}}]}]`, 1600},
		"an image":          {`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64 + `"}}]}]`, 0},
		"encrypted":         {`[{"type":"reasoning","encrypted_content":"` + base64 + `"}]`, 0},
		"redacted thinking": {`[{"role":"assistant","content":[{"type":"redacted_thinking","data":"` + base64 + `"}]}]`, 0},
		"a plain source":    {`[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + base64 + `"}}]}]`, 1600},
	} {
		if got := measure("messages", []byte(tt.raw)); got.DenseBytes < tt.want || got.DenseBytes > tt.want+tt.want/50 {
			t.Errorf("%s: %d dense bytes of %d; want %d", name, got.DenseBytes, got.Bytes, tt.want)
		}
		var o Object
		if err := o.Parse([]byte(`{"messages":` + tt.raw + `,"last":1}`)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, _ := o.Get("messages")
		if want := measure("messages", []byte(tt.raw)); got.Size != want {
			t.Errorf("%s: the member has %+v; want %+v", name, got.Size, want)
		}
	}
}

// A slow reading of every byte finds the same runs, wherever they begin and end. They are shorter here than those that are sampled.
func TestDenseRunsAreFoundWhereverTheyBegin(t *testing.T) {
	t.Parallel()
	everyByte := func(text []byte) (n int) {
		for start := 0; start < len(text); {
			end := start
			for end < len(text) && (dense[text[end]] || isEscapedSlash(text[end:])) {
				end++
			}
			if end-start >= denseRun && hasLetters(text[start:end]) {
				n += end - start
			}
			start = end + 1
		}
		return n
	}
	r := rand.New(rand.NewPCG(1, 2))
	const run, between = `QUJDREVGR0\/JSktMTU5PUFFSU1RVVldYWVo0Njc4QUJDREVGR0hJSktM`, " !,.\"\\\xd1\x8f"
	for range 20_000 {
		var text []byte
		for range r.IntN(30) {
			if r.IntN(4) > 0 {
				text = append(text, run[:r.IntN(12)]...)
			} else {
				text = append(text, run[:r.IntN(len(run))]...)
			}
			text = append(text, between[r.IntN(len(between))])
		}
		if got, want := denseBytes(text), everyByte(text); got != want {
			t.Fatalf("%q: %d dense bytes; want %d", text, got, want)
		}
	}
}

func TestPlainTextFilesAreToldFromOthers(t *testing.T) {
	t.Parallel()
	const words, pdf = "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZy4g", "JVBERi0xLjcKJeLjz9MKMSAwIG9iago8PC9UeXBlIC9DYXRhbG9nPj4KZW5kb2Jq"
	for name, tt := range map[string]struct {
		data  string
		plain bool
	}{
		"typed":     {"data:text/plain;base64," + words, true},
		"untyped":   {words, true},
		"markdown":  {"data:application/octet-stream;base64," + words, true},
		"PDF":       {"data:application/pdf;base64," + pdf, false},
		"bare PDF":  {pdf, false},
		"binary":    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v", false},
		"too short": {"QQ==", true},
	} {
		size := measure("messages", []byte(`[{"role":"user","content":[{"type":"input_file","file_data":"`+tt.data+`"}]}]`))
		if want := map[bool]int{true: size.FileBytes}[tt.plain]; size.PlainBytes != want || size.FileBytes != len(tt.data) {
			t.Errorf("%s: %+v; want %d bytes of plain text", name, size, want)
		}
	}
}

// measure computes Member.Size of a top-level member from its value alone, to check the sizes that Parse computes in its
// pass.
func measure(name string, raw []byte) Size {
	size := Size{Bytes: len(raw)}
	size.walk(prose, []byte(name), raw, 1)
	return size
}

// walk adds the media in the value of a member, or of an element if name is nil, that stands at p.
func (s *Size) walk(p place, name, raw []byte, depth int) {
	switch KindOf(raw) {
	case KindString:
		if len(raw) > 1 { // a text that is not JSON may end anywhere
			s.addString(p, name, raw[1:len(raw)-1])
		}
	case KindArray:
		if name != nil {
			p = p.inside(name, depth)
		}
		for element := range Elements(raw) {
			s.walk(p, nil, element, depth+1)
		}
	case KindObject:
		if name != nil {
			p = p.inside(name, depth)
		}
		before := *s
		var kind []byte
		for member, value := range Members(raw) {
			s.walk(p, bytes.Clone(member), value, depth+1)
			if string(member) == "type" && KindOf(value) == KindString {
				kind = value
			}
		}
		s.endObject(p, &before, kind)
	default:
	}
}

// An address of an image says nothing about its length, but an image has few tokens. That of a document, audio or video
// may have very many.
func TestAddressesOfFilesAreCounted(t *testing.T) {
	t.Parallel()
	const address = `"https://example.org/1"`
	for raw, want := range map[string][2]int{
		`[{"type":"image_url","image_url":{"url":` + address + `}}]`:                                                                                  {1, 0},
		`[{"type":"input_image","image_url":` + address + `}]`:                                                                                        {1, 0},
		`[{"type":"image","source":{"type":"url","url":` + address + `}}]`:                                                                            {1, 0},
		`[{"type":"document","source":{"type":"url","url":` + address + `}}]`:                                                                         {1, 1},
		`[{"source":{"type":"url","url":` + address + `},"type":"d\u006fcument"}]`:                                                                    {1, 1},
		`[{"type":"tool_result","content":[{"type":"document","source":{"url":` + address + `}},{"type":"image","source":{"url":` + address + `}}]}]`: {2, 1},
		`[{"type":"input_file","file_url":` + address + `}]`:                                                                                          {1, 1},
		`[{"type":"video_url","video_url":{"url":` + address + `}}]`:                                                                                  {1, 1},
		`[{"type":"video_url","video_url":` + address + `}]`:                                                                                          {1, 1},
		`[{"type":"video","source":{"type":"url","url":` + address + `}}]`:                                                                            {1, 1},
		`[{"type":"audio_url","audio_url":{"url":` + address + `}}]`:                                                                                  {1, 1},
		`[{"type":"document","source":{"type":"text","data":` + address + `}}]`:                                                                       {0, 0},
		`[{"type":"tool_use","input":{"type":"document","source":{"url":` + address + `}}}]`:                                                          {0, 0},
		`[{"type":"text","text":` + address + `}]`:                                                                                                    {0, 0},
	} {
		var o Object
		if err := o.Parse([]byte(`{"messages":` + raw + `,"last":1}`)); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		m, _ := o.Get("messages")
		if got := [2]int{m.Size.Addresses, m.Size.FileAddresses}; got != want {
			t.Errorf("%s: %v addresses, of files; want %v", raw, got, want)
		}
		if alone := measure("messages", []byte(raw)); alone != m.Size {
			t.Errorf("%s: Parse counts %+v, the value alone %+v", raw, m.Size, alone)
		}
	}
}
