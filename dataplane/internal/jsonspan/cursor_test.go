package jsonspan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rewrite drops the members named d and sets those named s to 0.
func rewrite(text string) (out string, names []string, whole bool) {
	w := NewSplicer([]byte("> "), []byte(text))
	c := ObjectAt([]byte(text), 0)
	for c.Next() {
		names = append(names, string(c.Name()))
		switch string(c.Name()) {
		case "d", "d2", "d3":
			c.Drop(&w)
		case "s":
			c.Set(&w, []byte("0"))
		}
	}
	c.SkipRest()
	return string(w.Finish())[2:], names, c.Complete()
}

func TestCursorSetsAndDropsMembers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, want string
		names            []string
		whole            bool
	}{
		{"nothing to change", `{"a":1,"b":"x"}`, `{"a":1,"b":"x"}`, []string{"a", "b"}, true},
		{"set", `{"a":1, "s" : "x\"}" ,"b":[{}]}`, `{"a":1, "s" : 0 ,"b":[{}]}`, []string{"a", "s", "b"}, true},
		{"drop the first", `{ "d":1, "a":2}`, `{ "a":2}`, []string{"d", "a"}, true},
		{"drop one in the middle", `{"a":1, "d":[1,2], "b":2}`, `{"a":1, "b":2}`, []string{"a", "d", "b"}, true},
		{"drop the last", `{"a":1, "d":null }`, `{"a":1 }`, []string{"a", "d"}, true},
		{"drop the only one", `{"d":{}}`, `{}`, []string{"d"}, true},
		{"drop the first two", `{"d":1,"d2":2,"a":3}`, `{"a":3}`, []string{"d", "d2", "a"}, true},
		{"drop all", `{"d":1,"d2":2,"d3":3}`, `{}`, []string{"d", "d2", "d3"}, true},
		{"drop two after one", `{"a":0,"d":1,"d2":2,"s":3}`, `{"a":0,"s":0}`, []string{"a", "d", "d2", "s"}, true},
		{"empty", ` {} `, ` {} `, nil, true},
		{"no object", `[1]`, `[1]`, nil, false},
		{"nothing", ``, ``, nil, false},
		{"truncated in a value", `{"a":1,"s":"x`, `{"a":1,"s":0`, []string{"a", "s"}, false},
		{"truncated after a comma", `{"a":1,`, `{"a":1,`, []string{"a"}, false},
		{"no colon", `{"a" 1}`, `{"a" 1}`, nil, false},
		{"no value", `{"a":}`, `{"a":}`, nil, false},
		{"text after the object", `{"a":1}, "s":2}`, `{"a":1}, "s":2}`, []string{"a"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, names, whole := rewrite(tt.text)
			if got != tt.want || whole != tt.whole {
				t.Errorf("got %s, complete %v; want %s, %v", got, whole, tt.want, tt.whole)
			}
			if diff := cmp.Diff(tt.names, names); diff != "" {
				t.Errorf("names, want -, got +:\n%s", diff)
			}
		})
	}
}

func TestShiftIsTheDistanceThatLaterTextHasMoved(t *testing.T) {
	t.Parallel()
	text := []byte(`{"d":1,"s":"long","x":"here","d2":2}`)
	w := NewSplicer(nil, text)
	c := ObjectAt(text, 0)
	at := -1
	for c.Next() {
		switch string(c.Name()) {
		case "d", "d2":
			c.Drop(&w)
		case "s":
			c.Set(&w, []byte("0"))
		case "x":
			at = c.Start() + w.Shift()
		}
	}
	if out := w.Finish(); !bytes.HasPrefix(out[at:], []byte(`"here"`)) {
		t.Errorf("%d is not where the value went in %s", at, out)
	}
}

func TestCallerThatWalkedAValueSetsItsEnd(t *testing.T) {
	t.Parallel()
	text := []byte(`[ {"a":[{"b":1},2,{"b":3}],"c":4}, "x", {"a":{}} ]`)
	var seen []string
	it := ArrayAt(text, 0)
	for it.Next() {
		c := ObjectAt(text, it.Start())
		for c.Next() {
			seen = append(seen, string(c.Name()))
			inner := ArrayAt(text, c.Start())
			for inner.Next() {
				deep := ObjectAt(text, inner.Start())
				for deep.Next() {
					seen = append(seen, string(deep.Name())+string(deep.Value()))
				}
				inner.SetEnd(deep.SkipRest())
			}
			c.SetEnd(inner.SkipRest())
		}
		it.SetEnd(c.SkipRest())
	}
	if diff := cmp.Diff([]string{"a", "b1", "b3", "c", "a"}, seen); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if end := it.SkipRest(); end != len(text) {
		t.Errorf("the array ends at %d; want %d", end, len(text))
	}
}

// FuzzRewrite compares with encoding/json.
func FuzzRewrite(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"d":2,"s":3}`, `{"d":"\\\"","d2":[[]],"s":{"s":1}}`, `{"s":1,"s":}`, `{"a`, `[{"d":1}]`, "{ \"d\" :\n1 , \"s\":-1e5}", `{"d":tru}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, _, whole := rewrite(text)
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &members) != nil || members == nil {
			return
		}
		if !whole {
			t.Fatalf("%q is an object", text)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal([]byte(got), &after); err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		for name, value := range after {
			if want, ok := members[name]; name != "s" && ok && !bytes.Equal(want, value) {
				t.Errorf("%q became %q", text, got)
			}
		}
		for _, name := range []string{"d", "d2", "d3"} {
			if strings.Contains(text, `\`) {
				break // the cursor does not decode names with escapes
			}
			if _, ok := after[name]; ok {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}
