package jsonspan

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const raw = ` {"usage" : {"prompt_tokens":12, "prompt_tokens_details":{"cached_tokens": 7 }, "none":null}, "s":"a,}\"]\\",
		"choices":[{"usage":1},{"usage":[10,20,30]}],"\u0065sc":true,"e":{},"l":[]}`
	body := []byte(raw)[1:]
	tests := []struct {
		path []string
		want string
		ok   bool
	}{
		{[]string{"usage", "prompt_tokens"}, "12", true},
		{[]string{"usage", "prompt_tokens_details", "cached_tokens"}, "7", true},
		{[]string{"usage", "none"}, "null", true},
		{[]string{"usage", "none", "x"}, "", false},
		{[]string{"usage", "absent"}, "", false},
		{[]string{"usage", "prompt_tokens", "x"}, "", false},
		{[]string{"s"}, `"a,}\"]\\"`, true},
		{[]string{"choices", "1", "usage", "2"}, "30", true},
		{[]string{"choices", "0", "usage"}, "1", true},
		{[]string{"choices", "2"}, "", false},
		{[]string{"choices", "-1"}, "", false},
		{[]string{"choices", "x"}, "", false},
		{[]string{"esc"}, "true", true},
		{[]string{`\u0065sc`}, "", false},
		{[]string{"e", "x"}, "", false},
		{[]string{"l", "0"}, "", false},
		{nil, string(body), true},
	}
	for _, tt := range tests {
		got, ok := Find(body, tt.path...)
		if string(got) != tt.want || ok != tt.ok {
			t.Errorf("Find(%q) = %q, %v; want %q, %v", tt.path, got, ok, tt.want, tt.ok)
		}
	}
}

func TestIterationStopsEarly(t *testing.T) {
	t.Parallel()
	var got []string
	for name, value := range Members([]byte(`{"a":1,"b":2,"c":3}`)) {
		got = append(got, string(name), string(value))
		if string(name) == "b" {
			break
		}
	}
	for value := range Elements([]byte(`[4,5]`)) {
		got = append(got, string(value))
		break
	}
	for range Members([]byte(`[1]`)) {
		t.Error("Members of an array yields")
	}
	for range Elements([]byte(`{"a":1}`)) {
		t.Error("Elements of an object yields")
	}
	if diff := cmp.Diff([]string{"a", "1", "b", "2", "4"}, got); diff != "" {
		t.Errorf("walked (-want +got):\n%s", diff)
	}
}

// rebuild decodes raw by walking it.
func rebuild(t failer, raw []byte) any {
	t.Helper()
	switch KindOf(raw) {
	case KindObject:
		object := map[string]any{}
		for name, value := range Members(raw) {
			if found, ok := Find(raw, string(name)); !ok || string(found) != string(value) {
				t.Fatalf("Find(%q) = %q, %v; want %q", name, found, ok, value)
			}
			object[string(name)] = rebuild(t, value)
		}
		return object
	case KindArray:
		array := []any{}
		for value := range Elements(raw) {
			if found, ok := Find(raw, strconv.Itoa(len(array))); !ok || string(found) != string(value) {
				t.Fatalf("Find(%d) = %q, %v; want %q", len(array), found, ok, value)
			}
			array = append(array, rebuild(t, value))
		}
		return array
	}
	var scalar any
	if err := json.Unmarshal(raw, &scalar); err != nil {
		t.Fatalf("walked to %q: %v", raw, err)
	}
	return scalar
}

// checkWalk walks the whole body and compares with encoding/json, if Parse accepts it.
func checkWalk(t failer, body []byte) {
	t.Helper()
	var o Object
	if o.Parse(body) != nil {
		return
	}
	var want map[string]any
	if json.Unmarshal(body, &want) != nil {
		return // a number beyond float64
	}
	if diff := cmp.Diff(any(want), rebuild(t, body[o.open:])); diff != "" {
		t.Fatalf("walk of %q (-want +got):\n%s", body, diff)
	}
}

func TestWalkAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkWalk(t, []byte(genObject(t, 1))) })
}

// FuzzWalk also walks texts that are not JSON. The walk must end without a panic.
func FuzzWalk(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for name, value := range Members(body) {
			Find(body, string(name), "a", "0")
			measure("m", value)
		}
		for value := range Elements(body) {
			Find(value, "0", "a")
			measure("m", value)
		}
		measure("m", body)
		checkWalk(t, body)
	})
}
