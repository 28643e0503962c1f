package sse

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAppendEventWritesOneFieldPerLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, event, data, want string
	}{
		{"data", "", "[DONE]", "data: [DONE]\n\n"},
		{"named", "error", `{"type":"error"}`, "event: error\ndata: {\"type\":\"error\"}\n\n"},
		{"empty", "", "", "data: \n\n"},
		{"lines", "", "a\nb\r\nc\rd", "data: a\ndata: b\ndata: c\ndata: d\n\n"},
		{"ends in a line end", "", "a\n", "data: a\ndata: \n\n"},
		{"leading space", "", " a", "data:  a\n\n"},
		{"hostile name", "e\ndata: x", "y", "event: e\ndata: y\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := string(AppendEvent([]byte("before;"), tt.event, []byte(tt.data)))
			if want := "before;" + tt.want; got != want {
				t.Errorf("got %q; want %q", got, want)
			}
		})
	}
}

func TestBeginsTellsStreamsByTheirFirstBytes(t *testing.T) {
	t.Parallel()
	type result struct{ is, enough bool }
	for text, want := range map[string]result{
		"": {}, " \r\n": {}, "da": {}, "event": {}, "\xef\xbb\xbfre": {}, "data:": {true, true}, "\n\nevent: x": {true, true}, ": wait": {true, true},
		"id: 7\n": {true, true}, "retry:5": {true, true}, "\xef\xbb\xbfdata: {}": {true, true},
		"{": {false, true}, "  [": {false, true}, "database": {false, true}, "error: x": {false, true}, "<html>": {false, true},
	} {
		if is, enough := Begins([]byte(text)); (result{is, enough}) != want {
			t.Errorf("%q: got %v, %v", text, is, enough)
		}
	}
}

func TestAppendTerminatedCompletesPartialEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		e    Event
		want string
	}{
		{"complete", Event{Raw: []byte("data: x\n\n")}, "data: x\n\n"},
		{"in a line", Event{Raw: []byte("data: x"), Partial: true}, "data: x\n\n"},
		{"after lf", Event{Raw: []byte("data: x\n"), Partial: true}, "data: x\n\n"},
		{"after cr", Event{Raw: []byte("data: x\r"), Partial: true}, "data: x\r\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(tt.e.AppendTerminated(nil)); got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestSplitterReadsAppendedEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z._]{0,20}`).Draw(t, "name")
		data := rapid.StringOf(rapid.SampledFrom([]rune("ab :\n\r{}é"))).Draw(t, "data")
		got, err := split(new(Splitter), string(AppendEvent(nil, name, []byte(data))))
		if err != nil || len(got) != 1 {
			t.Fatalf("got %d events, %v; want one", len(got), err)
		}
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
		if diff := cmp.Diff([]string{name, want}, []string{got[0].Name, got[0].Data}); diff != "" {
			t.Fatalf("read back (-want +got):\n%s", diff)
		}
	})
}
