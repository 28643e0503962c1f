package jsonspan

import (
	"strings"
	"testing"
)

func TestSizeCountsMediaSeparately(t *testing.T) {
	t.Parallel()
	base64 := strings.Repeat("QUJD", 300)
	text := strings.Repeat("some text, ", 120)
	tests := []struct {
		name, raw string
		media     int
		parts     int
		files     int
	}{
		{"text", `[{"role":"user","content":"` + text + `"}]`, 0, 0, 0},
		{"data url", `[{"image_url":{"url":"data:image/png;base64,` + base64 + `"}}]`, len(base64) + 22, 1, 0},
		{"data url alone", `"data:image/png;base64,` + base64 + `"`, len(base64) + 22, 1, 0},
		{"data url in an array", `["data:image/png;base64,` + base64 + `","x"]`, len(base64) + 22, 1, 0},
		{"data url with escaped slash", `["data:image\/png;base64,` + base64 + `"]`, len(base64) + 23, 1, 0},
		{"data url with a space", `["data:text/plain; charset=utf-8;base64,` + base64 + `"]`, len(base64) + 38, 1, len(base64) + 38},
		{"text like a data url", `["data: ` + text + `"]`, 0, 0, 0},
		{"short data url", `["data:image/png;base64,QUJD"]`, 0, 0, 0},
		{"base64 data", `{"source":{"type":"base64","data":"` + base64 + `"}}`, len(base64), 1, len(base64)},
		{"plain data", `{"source":{"type":"text","data":"` + text + `"}}`, 0, 0, 0},
		{"escaped name", `{"d\u0061ta":"` + base64 + `"}`, len(base64), 1, len(base64)},
		{"b64_json, spaced", `{ "b64_json" : "` + base64 + `" }`, len(base64), 1, len(base64)},
		{"file_data", `{"file_data":"` + base64 + `"}`, len(base64), 1, len(base64)},
		{"other name", `{"text":"` + base64 + `"}`, 0, 0, 0},
		{"name of the array", `{"data":["` + base64 + `"]}`, 0, 0, 0},
		{"name of an earlier member", `{"data":1,"x":["` + base64 + `"]}`, 0, 0, 0},
		{"long name", `{"data:,` + base64 + `":1}`, 0, 0, 0},
		{"PNG", `{"data":"iVBORw0KGgo` + base64 + `"}`, len(base64) + 11, 1, 0},
		{"JPEG", `{"data":"\/9j\/` + base64 + `"}`, len(base64) + 6, 1, 0},
		{"WebP", `{"data":"UklGRiQAAABXRUJQ` + base64 + `"}`, len(base64) + 16, 1, 0},
		{"WAV", `{"data":"UklGRiQAAABXQVZF` + base64 + `"}`, len(base64) + 16, 1, len(base64) + 16},
		{"two", `[{"data":"` + base64 + `"},{"data":"` + base64 + `"}]`, 2 * len(base64), 2, 2 * len(base64)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := Size{Bytes: len(tt.raw), MediaBytes: tt.media, MediaParts: tt.parts, FileBytes: tt.files}
			if got := measure([]byte(tt.raw)); got != want {
				t.Errorf("Measure = %+v; want %+v", got, want)
			}
			var o Object
			if err := o.Parse([]byte(`{"other":["` + text + `"],"it":` + tt.raw + `,"last":1}`)); err != nil {
				t.Fatalf("Parse: %v", err)
			}
			it, _ := o.Get("it")
			if it.Size != want {
				t.Errorf("Member.Size = %+v; want %+v", it.Size, want)
			}
			if last, _ := o.Get("last"); last.Size != (Size{Bytes: 1}) {
				t.Errorf("the next member's Size = %+v; want one byte", last.Size)
			}
		})
	}
}

// measure computes Member.Size from the value alone, to check the sizes that Parse computes in its pass.
func measure(raw []byte) Size {
	size := Size{Bytes: len(raw)}
	var name []byte // of the member whose value comes next
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			if raw[i] == ',' || raw[i] == '[' || raw[i] == '{' {
				name = nil
			}
			i++
			continue
		}
		end := SkipString(raw, i)
		if next := SkipSpace(raw, end); next < len(raw) && raw[next] == ':' {
			name = raw[i:end]
		} else if end-i > minMedia {
			decoded, _ := Text(nil, name)
			size.addString(decoded, raw[i+1:end-1])
		}
		i = end
	}
	return size
}
