package jsonspan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseMembers(t *testing.T) {
	t.Parallel()
	const body = " {\"model\" : \"gpt\",\"\\u0074emp\":1.5, \"messages\":[{\"role\":\"user\"}],\"o\":{},\"t\":true,\"f\":false,\"n\":null}\n"
	var o Object
	if err := o.Parse([]byte(body)); err != nil {
		t.Fatalf("Parse: %v", err)
	}
	type member struct {
		Name, Key, Value string
		Kind             Kind
		Size             Size
	}
	var got []member
	for _, m := range o.Members() {
		got = append(got, member{string(m.Name), string(m.Key.Of(o.Body())), string(m.Value.Of(o.Body())), m.Kind, m.Size})
	}
	want := []member{
		{"model", `"model"`, `"gpt"`, KindString, Size{Bytes: 5}},
		{"temp", `"\u0074emp"`, `1.5`, KindNumber, Size{Bytes: 3}},
		{"messages", `"messages"`, `[{"role":"user"}]`, KindArray, Size{Bytes: 17}},
		{"o", `"o"`, `{}`, KindObject, Size{Bytes: 2}},
		{"t", `"t"`, `true`, KindTrue, Size{Bytes: 4}},
		{"f", `"f"`, `false`, KindFalse, Size{Bytes: 5}},
		{"n", `"n"`, `null`, KindNull, Size{Bytes: 4}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if m, ok := o.Get("temp"); !ok || m.Kind != KindNumber {
		t.Errorf("Get(temp) = %v, %v; want the number", m, ok)
	}
	if _, ok := o.Get("absent"); ok {
		t.Error("Get(absent) found a member")
	}
	if got := o.Value("absent"); got != nil {
		t.Errorf("Value(absent) = %q; want nil", got)
	}
	if got := string(o.Value("model")); got != `"gpt"` {
		t.Errorf("Value(model) = %s; want \"gpt\"", got)
	}
}

func TestParseRejectsInvalidBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	tests := []struct {
		name, body string
		want       error
	}{
		{"empty", "", &SyntaxError{0, "expected a JSON object"}},
		{"array", " []", &SyntaxError{1, "expected a JSON object"}},
		{"after", `{} {}`, &SyntaxError{3, "expected nothing after the JSON object"}},
		{"truncated", `{"a":`, &SyntaxError{5, "unexpected end of text before a value"}},
		{"truncated object", `{"a":1`, &SyntaxError{6, "unexpected end of text in an object"}},
		{"truncated array", `{"a":[1`, &SyntaxError{7, "unexpected end of text in an array"}},
		{"truncated string", `{"a":"b`, &SyntaxError{7, "unexpected end of text in a string"}},
		{"comma", `{"a":1,}`, &SyntaxError{7, "expected a member name"}},
		{"colon", `{"a"}`, &SyntaxError{4, "expected a colon after a member name"}},
		{"no comma", `{"a":1 "b":2}`, &SyntaxError{7, "expected a comma or the end of the object"}},
		{"array comma", `{"a":[1 2]}`, &SyntaxError{8, "expected a comma or the end of the array"}},
		{"value", `{"a":?}`, &SyntaxError{5, "expected a value"}},
		{"literal", `{"a":trie}`, &SyntaxError{5, "expected a value"}},
		{"number", `{"a":1.x}`, &SyntaxError{7, "malformed number"}},
		{"control", "{\"a\":\"x\ny\"}", &SyntaxError{7, "control character in a string"}},
		{"escape", `{"a":"x\qy"}`, &SyntaxError{7, "invalid escape in a string"}},
		{"utf8", "{\"a\":\"x\xffy\"}", &SyntaxError{7, "invalid UTF-8 in a string"}},
		{"duplicate", `{"a":1,"a":2}`, &DuplicateError{"a", 7}},
		{"duplicate escaped", `{"model":1,"\u006dodel":2}`, &DuplicateError{"model", 11}},
		{"duplicate deep", `{"m":[{"role":"u"},{"c":[[{"x":1,"x":2}]]}]}`, &DuplicateError{"m[1].c[0][0].x", 33}},
		{"duplicate long", `{"` + long + `":1,"` + long + `":2}`, &DuplicateError{strings.Repeat("é", 32), 206}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var o Object
			err := o.Parse([]byte(tt.body))
			if diff := cmp.Diff(tt.want, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if len(o.Members()) != 0 || o.Body() != nil {
				t.Errorf("object not empty after an error: %v", o.Members())
			}
		})
	}
}

func TestErrorMessagesContainNoText(t *testing.T) {
	t.Parallel()
	var o Object
	err := o.Parse([]byte(`{"secret":1,"secret":2}`))
	if got, want := err.Error(), "duplicate member at byte 12"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	err = o.Parse([]byte(`{"secret"`))
	if got, want := err.Error(), "expected a colon after a member name at byte 9"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestParseBoundsDepth(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		open, close string
	}{
		{"arrays", "[", "]"},
		{"objects", `{"a":`, "}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nested := func(depth int) []byte {
				return []byte(`{"a":` + strings.Repeat(tt.open, depth-1) + "1" + strings.Repeat(tt.close, depth-1) + "}")
			}
			var o Object
			if err := o.Parse(nested(MaxDepth)); err != nil {
				t.Errorf("depth %d: %v", MaxDepth, err)
			}
			var syntax *SyntaxError
			if err := o.Parse(nested(MaxDepth + 1)); !errors.As(err, &syntax) || syntax.Msg != "nested too deep" {
				t.Errorf("depth %d: got %v; want too deep", MaxDepth+1, err)
			}
		})
	}
}

// numbered returns an object of n members whose names are written by spell.
func numbered(n int, spell func(i int) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + spell(i) + `":` + strconv.Itoa(i))
	}
	b.WriteByte('}')
	return b.String()
}

func TestParseBoundsOpenMembers(t *testing.T) {
	t.Parallel()
	plain := func(i int) string { return "k" + strconv.Itoa(i) }
	escaped := func(i int) string {
		if i%2 == 0 {
			return plain(i)
		}
		return `\u006b` + strconv.Itoa(i)
	}
	var o Object
	for _, n := range []int{7, 8, 9, 16, 17, 1000, MaxOpenMembers} {
		for name, spell := range map[string]func(int) string{"plain": plain, "escaped": escaped} {
			if err := o.Parse([]byte(numbered(n, spell))); err != nil {
				t.Errorf("%d %s members: %v", n, name, err)
			}
			if got := len(o.Members()); got != n {
				t.Errorf("%d %s members: got %d", n, name, got)
			}
			again := func(i int) string {
				if i == n-1 {
					return escaped(i / 2)
				}
				return spell(i)
			}
			var dup *DuplicateError
			if err := o.Parse([]byte(numbered(n, again))); !errors.As(err, &dup) {
				t.Errorf("%d %s members with one twice: got %v; want a DuplicateError", n, name, err)
			}
		}
	}
	var syntax *SyntaxError
	if err := o.Parse([]byte(numbered(MaxOpenMembers+1, plain))); !errors.As(err, &syntax) || syntax.Msg != "too many members" {
		t.Errorf("over the limit: got %v; want too many members", err)
	}
	o.Reset()
	if cap(o.members) > maxPooledMembers || cap(o.keys.keys) > maxPooledKeys || cap(o.keys.slots) > maxPooledSlots {
		t.Error("Reset kept the memory of an unusual body")
	}
}

// Large objects are open inside large objects, so that their hash tables share one stack.
func TestNestedObjectsWithHashTables(t *testing.T) {
	t.Parallel()
	inner := numbered(40, func(i int) string { return fmt.Sprintf("k%d", i) })
	middle := strings.Replace(inner, ":20,", ":"+inner+",", 1)
	outer := strings.Replace(inner, ":30,", ":"+middle+",", 1)
	var o Object
	if err := o.Parse([]byte(outer)); err != nil {
		t.Fatalf("Parse: %v", err)
	}
	for _, broken := range []string{
		strings.Replace(outer, `"k39":39},`, `"k19":39},`, 1),
		outer[:len(outer)-1] + `,"k1":0}`,
		outer[:len(outer)-1] + `,"k35":0}`,
	} {
		if oracle([]byte(broken)) {
			t.Fatal("the test text has no duplicate")
		}
		var dup *DuplicateError
		if err := o.Parse([]byte(broken)); !errors.As(err, &dup) {
			t.Errorf("got %v; want a DuplicateError", err)
		}
	}
}

func TestParseAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	var o Object
	for _, seed := range seeds {
		if got, want := o.Parse([]byte(seed)) == nil, oracle([]byte(seed)); got != want {
			t.Errorf("Parse(%q) accepts: %v; want %v", seed, got, want)
		}
	}
}

// Every byte is put at every position of strings of several lengths, so that each lane of the word-wise scan gets each
// byte.
func TestParseAcceptsTheSameBytesAsEncodingJSONAtEveryPosition(t *testing.T) {
	t.Parallel()
	var o Object
	for _, n := range []int{1, 7, 8, 9, 31, 32, 33, 71} {
		for at := range n {
			for c := range 256 {
				body := []byte(`{"a":"` + strings.Repeat("x", n) + `"}`)
				body[6+at] = byte(c)
				if got, want := o.Parse(body) == nil, oracle(body); got != want {
					t.Fatalf("Parse(%q) accepts: %v; want %v", body, got, want)
				}
			}
		}
	}
}

// The test tries every sequence of two bytes, and a sample of those of three and four, at the end of a string and
// before further text.
func TestParseAcceptsValidUTF8Only(t *testing.T) {
	t.Parallel()
	var o Object
	check := func(text ...byte) {
		for _, tail := range []string{"", "tail"} {
			body := []byte(`{"":"` + string(text) + tail + `"}`)
			if got, want := o.Parse(body) == nil, oracle(body); got != want {
				t.Fatalf("Parse(%q) accepts: %v; want %v", body, got, want)
			}
		}
	}
	edges := []byte{0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff}
	for a := 0x80; a < 0x100; a++ {
		for b := range 256 {
			check(byte(a), byte(b))
		}
		for _, b := range edges {
			for _, c := range edges {
				check(byte(a), b, c)
				check(byte(a), b, c, 0x80)
			}
		}
	}
}

// genValue generates a value as text, with white space and escapes; sometimes it repeats a name.
func genValue(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")
	limit := 5
	if depth > 3 {
		limit = 3
	}
	switch rapid.IntRange(0, limit).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "literal")
	case 1:
		return rapid.SampledFrom([]string{"0", "-1", "12.50", "1e9", "-0.1E-2", "18446744073709551616"}).Draw(t, "number")
	case 2, 3:
		return genString(t)
	case 4:
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			parts = append(parts, space+genValue(t, depth+1)+space)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return genObject(t, depth)
}

func genObject(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\r\n"}).Draw(t, "space")
	var parts []string
	for range rapid.IntRange(0, 12).Draw(t, "members") {
		parts = append(parts, space+genString(t)+space+":"+space+genValue(t, depth+1)+space)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func genString(t *rapid.T) string {
	text := rapid.StringN(0, 12, -1).Draw(t, "text")
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "escape") {
		var b strings.Builder
		b.WriteByte('"')
		for _, r := range text {
			if r > 0xffff {
				b.WriteRune(r)
				continue
			}
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		return b.String() + `"`
	}
	return string(quoted)
}

func TestParseAgreesWithEncodingJSONOnRandomBodies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(genObject(t, 1))
		checkParse(t, body)
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkParse compares the result of Parse with encoding/json.
func checkParse(t failer, body []byte) {
	t.Helper()
	given := bytes.Clone(body)
	var o Object
	err := o.Parse(body)
	if got, want := err == nil, oracle(body); got != want {
		t.Fatalf("Parse(%q) accepts: %v (%v); want %v", body, got, err, want)
	}
	if !bytes.Equal(given, body) {
		t.Fatalf("Parse changed the body")
	}
	if err != nil {
		return
	}
	var decoded map[string]json.RawMessage
	if err := json.Unmarshal(body, &decoded); err != nil {
		t.Fatalf("Unmarshal(%q): %v", body, err)
	}
	got := map[string]json.RawMessage{}
	for _, m := range o.Members() {
		value := m.Value.Of(body)
		got[string(m.Name)] = value
		if m.Kind != KindOf(value) || m.Size != measure(string(m.Name), value) {
			t.Fatalf("member %s: kind %v, size %+v; value has %v, %+v", m.Name, m.Kind, m.Size, KindOf(value), measure(string(m.Name), value))
		}
	}
	if diff := cmp.Diff(decoded, got); diff != "" {
		t.Fatalf("members of %q (-want +got):\n%s", body, diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkParse(t, body) })
}
