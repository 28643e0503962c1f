package strict_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/validation"
)

type inner struct {
	Name string `json:"name"`
	N    int8   `json:"n,omitempty"`
}

type exact string

func (e *exact) UnmarshalText(text []byte) error {
	*e = exact("<" + string(text) + ">")
	return nil
}

type embedded struct {
	Shared string `json:"shared"`
}

type document struct {
	embedded
	Text    string           `json:"text"`
	Flag    *bool            `json:"flag,omitempty"`
	Count   int64            `json:"count"`
	Exact   exact            `json:"exact"`
	Items   []inner          `json:"items"`
	ByName  map[string]inner `json:"by_name"`
	Raw     json.RawMessage  `json:"raw"`
	Any     any              `json:"any"`
	At      time.Time        `json:"at"`
	Ignored string           `json:"-"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	want := document{
		embedded: embedded{"s"},
		Text:     "x", Flag: new(bool), Count: 7, Exact: "<0.10>", Items: []inner{{Name: "a", N: 1}, {Name: "b"}},
		ByName: map[string]inner{"k": {Name: "c"}}, Raw: json.RawMessage(`{"b":[1,null,"é"],"a":true}`), Any: []any{"q", true},
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	*want.Flag = true
	for _, test := range []struct {
		name   string
		decode func([]byte, any) error
		text   string
	}{
		{"JSON", strict.JSON, `{"shared":"s","text":"x","flag":true,"count":7,"exact":0.10,"items":[{"name":"a","n":1},{"name":"b"}],
			"by_name":{"k":{"name":"c"}},"raw":{"b":[1,null,"é"],"a":true},"any":["q",true],"at":"2026-01-02T03:04:05Z"}`},
		{"YAML", strict.YAML, "shared: s\ntext: x\nflag: True\ncount: 7\nexact: 0.10\nitems:\n- {name: a, n: 1}\n- name: b\n" +
			"by_name: {k: {name: c}}\nraw: {b: [1, null, é], a: true}\nany: [q, true]\nat: 2026-01-02T03:04:05Z\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got document
			if err := test.decode([]byte(test.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(document{})); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

// null means no change, unless the type defines its meaning.
func TestPatchRejectsNull(t *testing.T) {
	t.Parallel()
	var got struct {
		Name  *string                `json:"name"`
		Limit optional.Value[string] `json:"limit"`
		Raw   json.RawMessage        `json:"raw"`
	}
	invalid, _ := validation.As(strict.Patch([]byte(`{"name":null,"limit":null,"raw":null}`), &got))
	if len(invalid) != 1 || invalid[0].Path != "name" {
		t.Errorf("got %v; want null refused for the name", invalid)
	}
	if err := strict.JSON([]byte(`{"name":null}`), &got); err != nil {
		t.Errorf("no patch: %v", err)
	}
}

// Text that looks like a broken escape but is not is decoded unchanged.
func TestEscapesAreDecoded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"\ud83d\ude00"`: "😀", `"\\ud83d"`: `\ud83d`, `"\\\\ud83d \ufffd"`: `\\ud83d ` + "\ufffd", `"\"\u00e9é😀"`: `"éé😀`,
	} {
		var got inner
		if err := strict.JSON([]byte(`{"name":`+text+`}`), &got); err != nil || got.Name != want {
			t.Errorf("%s: got %q, %v; want %q", text, got.Name, err, want)
		}
	}
}

// A member that may be null has a type of its own, which decodes itself.
func TestYearOfAMemberThatMayBeNullIsChecked(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]bool{
		`"9999-12-31T23:00:00-12:00"`: true, `"1899-01-01T00:00:00Z"`: true, `"9998-01-01T00:00:00Z"`: false, `null`: false,
	} {
		var patch struct {
			Until optional.Value[time.Time] `json:"until"`
		}
		invalid, is := validation.As(strict.Patch([]byte(`{"until":`+text+`}`), &patch))
		if is != refused || is && invalid[0].Path != "until" {
			t.Errorf("%s: got %v; want it refused: %t", text, invalid, refused)
		}
	}
}

// An unquoted YAML scalar is decoded into a string as written.
func TestUnquotedScalarIsAString(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"12", "1.50", "true", "2026-01-02", "No", "0x10"} {
		var got inner
		if err := strict.YAML([]byte("name: "+text), &got); err != nil || got.Name != text {
			t.Errorf("%s: got %q, %v", text, got.Name, err)
		}
	}
}

func TestDecodeReportsAllFieldErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		decode func([]byte, any) error
		text   string
		want   []string // the paths
	}{
		{
			"all at once", strict.JSON, `{"text":1,"colour":"red","items":[{"name":"a"},{"name":true,"m":1}],"by_name":{"k":{"n":300}},"count":1.5}`,
			[]string{"text", "colour", "items[1].name", "items[1].m", "by_name.k.n", "count"},
		},
		{"member twice", strict.JSON, `{"items":[{"name":"a","name":"b"}]}`, []string{"items[0].name"}},
		{"member twice in YAML", strict.YAML, "text: a\ntext: b\n", []string{"text"}},
		{"not an object", strict.JSON, `[]`, []string{""}},
		{"wrong case", strict.JSON, `{"Text":"x"}`, []string{"Text"}},
		{"hidden member", strict.JSON, `{"-":"x"}`, []string{"-"}},
		{"null for a string", strict.JSON, `{"text":null}`, []string{"text"}},
		{"malformed time", strict.JSON, `{"at":"yesterday"}`, []string{"at"}},
		{"a time after the last year", strict.JSON, `{"at":"9999-12-31T23:00:00-12:00"}`, []string{"at"}},
		{"text for a number", strict.JSON, `{"count":"7"}`, []string{"count"}},
		{"quoted number in YAML", strict.YAML, `count: "7"`, []string{"count"}},
		{"number beyond int64", strict.JSON, `{"count":9223372036854775808}`, []string{"count"}},
		{"zero characters", strict.JSON, `{"text":"a\u0000","items":[{"name":"\u0000"}],"raw":{"x":"\u0000"},"an\u0000y":1}`, []string{"text", "items[0].name", "raw.x", ""}},
		{"zero character in YAML", strict.YAML, `text: "a\0"`, []string{"text"}},
		{"no UTF-8", strict.JSON, "{\"text\":\"a\xff\"}", []string{""}},
		{"half of a pair", strict.JSON, `{"text":"\ud83d"}`, []string{""}},
		{"half of a pair before another escape", strict.JSON, `{"text":"\ud83d\n"}`, []string{""}},
		{"the wrong half first", strict.JSON, `{"text":"\ude00\ud83d"}`, []string{""}},
		{"half of a pair at the end", strict.JSON, `{"text":"\ud83d\u`, []string{""}},
		{"empty", strict.JSON, ``, []string{""}},
		{"cut", strict.JSON, `{"text":"x"`, []string{""}},
		{"two values", strict.JSON, `{} {}`, []string{""}},
		{"not YAML", strict.YAML, "a: [", []string{""}},
		{"alias", strict.YAML, "items:\n- &a {name: x}\n- *a\n", []string{"items[1]"}},
		{"merge", strict.YAML, "items:\n- {name: x, <<: {n: 1}}\n", []string{"items[0]"}},
		{"too deep", strict.JSON, `{"raw":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, []string{""}},
		{"too deep in YAML", strict.YAML, "raw: " + strings.Repeat("[", 70) + strings.Repeat("]", 70), []string{"raw" + strings.Repeat("[0]", 64)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			invalid, ok := validation.As(test.decode([]byte(test.text), &document{}))
			if !ok {
				t.Fatal("got no invalid")
			}
			var got []string
			for _, f := range invalid {
				got = append(got, f.Path)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s\n%v", diff, invalid)
			}
		})
	}
}

// A document that decodes without errors has the same meaning for encoding/json.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"text":"x","items":[{"name":"a","n":1}],"raw":{"a":[1e3]},"any":null}`))
	f.Add([]byte(`{"text":"\ud83d\ude00","count":-0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want document
		if strict.JSON(data, &got) != nil {
			return
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", data, err)
		}
		// Raw is encoded again; numbers in text types keep their written form.
		got.Raw, want.Raw, got.Exact, want.Exact = nil, nil, "", ""
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(document{})); diff != "" {
			t.Errorf("decoded %q (-want +got):\n%s", data, diff)
		}
	})
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte("text: x\nitems:\n- {name: a}\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got document
		if err := strict.YAML(data, &got); err != nil {
			if _, ok := validation.As(err); !ok {
				t.Errorf("%q: %v is no list of invalid", data, err)
			}
		}
	})
}
