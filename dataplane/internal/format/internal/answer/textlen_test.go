package answer

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"modelgateway/dataplane/internal/sse"
)

func TestTextLenIsTheLengthOfTheDecodedText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`""`, `"plain"`, `"\n\t\"\\"`, `"\u0041\u00e9\u20ac"`, `"\ud83d\ude00!"`, `"€ä"`, `"ภาษาไทยและ English in one text, longer than a word 🙂"`, `"\u007f\u0080\u07ff\u0800"`,
	} {
		var s string
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		pairs := strings.Count(text, `\ud83d`)
		if got, want := SizeOf([]byte(text)), (Size{Bytes: int64(len(s)), Chars: int64(utf8.RuneCountInString(s) + pairs)}); got != want {
			t.Errorf("%s: got %+v; want %+v", text, got, want)
		}
	}
	for _, text := range []string{``, `"`, `12`, `null`} {
		if got := TextLen([]byte(text)); got != 0 {
			t.Errorf("%s: got %d; want 0", text, got)
		}
	}
}

// A server without a place for images writes them into the text of its answer.
func TestImagesInATextAreNoText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("iVBORw0KGgo/", 100)
	for text, want := range map[string]Size{
		`"Here: ![image](data:image/png;base64,` + long + `) it is"`:                                              {Bytes: 22, Chars: 22, Images: 1},
		`"data:image\/webp;base64,` + strings.ReplaceAll(long, "/", `\/`) + `"`:                                   {Images: 1},
		`"<img src=\"data:image/jpeg;base64,` + long + `=\"><img src=\"data:image/jpeg;base64,` + long + `==\">"`: {Bytes: 24, Chars: 24, Images: 2},
		`"data:image/png;base64,aGk="`:          {Bytes: 26, Chars: 26},
		`"data:text/plain;base64,` + long + `"`: {Bytes: 1223, Chars: 1223},
		`"data:image/png,` + long + `"`:         {Bytes: 1215, Chars: 1215},
		`"` + long + `"`:                        {Bytes: 1200, Chars: 1200},
	} {
		if got := SizeOf([]byte(text)); got != want {
			t.Errorf("%.60s: got %+v; want %+v", text, got, want)
		}
	}
}

func TestSumTextsCountsNestedTexts(t *testing.T) {
	t.Parallel()
	text := []byte(` {"t":"ab","n":"no","l":[{"t":"cde"},{"x":{"t":["f",{"n":"no"},"gh"]}}],"t2":"no"} tail`)
	var sum TextSum
	end := SumTexts(&sum, text, 0, func(name []byte) bool { return string(name) == "t" })
	if sum.Bytes != 8 || sum.Chars != 8 || string(text[sum.Start:sum.End]) != `"gh"` || string(text[end:]) != " tail" {
		t.Errorf("got %+v, end %d", sum, end)
	}
}

func TestEventFrameHasDataInOneLine(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, stream, want string }{
		{"as it came", "id: 7\ndata:{\"a\":1}\nretry: 5\n\n", "id: 7\ndata:{\"a\":1}\nretry: 5\n\n"},
		{"several lines", "event: e\ndata: {\ndata: \"a\":1}\n\n", "event: e\ndata: { \"a\":1}\n\n"},
		{"truncated", "event: e\ndata: {\"a\":1}", "event: e\ndata: {\"a\":1}\n\n"},
	}
	for _, tt := range tests {
		var s sse.Splitter
		s.Feed([]byte(tt.stream))
		ev, ok := s.Next()
		if !ok {
			ev, _ = s.Flush()
		}
		var buf []byte
		text, data := eventFrame(&buf, ev)
		if string(text) != tt.want || text[data.Start] != '{' || text[data.End-1] != '}' {
			t.Errorf("%s: got %q, data at %v; want %q", tt.name, text, data, tt.want)
		}
	}
}

func FuzzTextsDoesNotPanic(f *testing.F) {
	for _, seed := range []string{`{"a":1,"d":2,"s":"3"}`, `{"d":"\\\"","d2":[["x"]],"s":{"s":1}}`, `{"s":1,"s":}`, `{"a`, `[{"d":"1"}]`, `{"d":tru}`} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		var sum TextSum
		SumTexts(&sum, []byte(text), 0, func([]byte) bool { return true })
	})
}
