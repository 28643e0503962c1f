package jsonspan

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEditChangesOnlyTheNamedMembers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		edit       func(e *Edit)
		want       string
	}{
		{"nothing", ` {"a":1} `, func(*Edit) {}, ` {"a":1} `},
		{"drop absent", `{"a":1}`, func(e *Edit) { e.Drop("x") }, `{"a":1}`},
		{"drop only", ` { "a" : 1 } `, func(e *Edit) { e.Drop("a") }, ` {  } `},
		{"drop first", `{ "a":1 , "b":2 }`, func(e *Edit) { e.Drop("a") }, `{ "b":2 }`},
		{"drop middle", `{"a":1 , "b":2,"c":3}`, func(e *Edit) { e.Drop("b") }, `{"a":1,"c":3}`},
		{"drop last", `{"a":1, "b":2 }`, func(e *Edit) { e.Drop("b") }, `{"a":1 }`},
		{"drop first two", `{"a":1,"b":2,"c":3}`, func(e *Edit) { e.Drop("a"); e.Drop("b") }, `{"c":3}`},
		{"drop around", `{"a":1,"b":2,"c":3}`, func(e *Edit) { e.Drop("c"); e.Drop("a") }, `{"b":2}`},
		{"drop all", `{"a":1,"b":2}`, func(e *Edit) { e.Drop("a"); e.Drop("b") }, `{}`},
		{"replace", `{"a": 1 ,"b":2}`, func(e *Edit) { e.Set("a", []byte(`"x"`)) }, `{"a": "x" ,"b":2}`},
		{"replace escaped", `{"\u0061":1}`, func(e *Edit) { e.Set("a", []byte(`2`)) }, `{"\u0061":2}`},
		{"replace twice", `{"a":1}`, func(e *Edit) { e.Set("a", []byte(`2`)); e.Set("a", []byte(`3`)) }, `{"a":3}`},
		{"replace then drop", `{"a":1}`, func(e *Edit) { e.Set("a", []byte(`2`)); e.Drop("a") }, `{}`},
		{"add", `{"a":1 } `, func(e *Edit) { e.Set("b", []byte(`2`)) }, `{"a":1,"b":2 } `},
		{"add to empty", `{ }`, func(e *Edit) { e.Set("a", []byte(`1`)); e.Set("b", []byte(`2`)) }, `{"a":1,"b":2 }`},
		{"add twice", `{}`, func(e *Edit) { e.Set("a", []byte(`1`)); e.Set("a", []byte(`2`)) }, `{"a":2}`},
		{"add odd name", `{}`, func(e *Edit) { e.Set("a\"\\\n", []byte(`1`)) }, `{"a\"\\\u000a":1}`},
		{"drop all and add", `{ "a":1 }`, func(e *Edit) { e.Drop("a"); e.Set("b", []byte(`2`)) }, `{ "b":2 }`},
		{"all at once", `{"a":1,"b":2,"c":3,"d":4}`, func(e *Edit) {
			e.Drop("a")
			e.Set("b", []byte("20"))
			e.Drop("c")
			e.Set("e", []byte("5"))
		}, `{"b":20,"d":4,"e":5}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var o Object
			if err := o.Parse([]byte(tt.body)); err != nil {
				t.Fatalf("Parse: %v", err)
			}
			var e Edit
			e.Begin(&o)
			tt.edit(&e)
			if got := string(e.Append(nil)); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
			for least := range 10 {
				if got := spliced(t, &e, least); got != tt.want {
					t.Errorf("in parts of %d bytes: got %s; want %s", least, got, tt.want)
				}
			}
		})
	}
}

// spliced joins the parts of a changed body, after a check that they are parts of the body or of the edits.
func spliced(t require, e *Edit, least int) string {
	t.Helper()
	dst := make([]byte, 3, 4) // so small that it is reallocated
	edits, parts := e.Splice(dst, least)
	copied := len(edits) - len(dst)
	for _, part := range parts {
		if len(part) == 0 {
			t.Errorf("a part is empty")
		}
		if contains(e.object.body, part) {
			continue
		}
		if copied -= len(part); !contains(edits, part) {
			t.Errorf("%s is a part of neither the body nor the edits", part)
		}
	}
	if e.Changed() && copied != 0 {
		t.Errorf("%d bytes of the edits are in no part", copied)
	}
	return string(slices.Concat(parts...))
}

// require is the part of testing.TB that rapid implements, too.
type require interface {
	Helper()
	Errorf(format string, args ...any)
}

// contains reports whether a part has the memory of a text.
func contains(text, part []byte) bool {
	for i := range text {
		if &text[i] == &part[0] {
			return true
		}
	}
	return false
}

func TestEditWithoutChangesReturnsTheBody(t *testing.T) {
	t.Parallel()
	body := []byte(`{"a":1}`)
	var o Object
	if err := o.Parse(body); err != nil {
		t.Fatalf("Parse: %v", err)
	}
	var e Edit
	e.Begin(&o)
	e.Set("a", []byte("2"))
	if got := string(e.Append([]byte("before "))); got != `before {"a":2}` {
		t.Errorf("got %s; want the text appended", got)
	}
	e.Begin(&o)
	if e.Changed() {
		t.Error("changed after Begin")
	}
	if got := e.Append([]byte("before ")); &got[0] != &body[0] || len(got) != len(body) {
		t.Errorf("got %s; want the body itself", got)
	}
}

func TestEditedBodyHasTheExpectedMembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(genObject(t, 1))
		var o Object
		if o.Parse(body) != nil {
			t.Skip("a duplicate")
		}
		var e Edit
		e.Begin(&o)
		var want []string // name and value of the outgoing members
		for i, m := range o.Members() {
			value := string(m.Value.Of(body))
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				e.DropAt(i)
				continue
			case 1:
				value = fmt.Sprintf("[%d]", i)
				e.ReplaceAt(i, []byte(value))
			}
			want = append(want, string(m.Name), value)
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "added") {
			name := fmt.Sprintf("a name too long to be drawn %d", i)
			e.Set(name, []byte("true"))
			want = append(want, name, "true")
		}
		out := e.Append(nil)
		if got := spliced(t, &e, rapid.IntRange(0, 20).Draw(t, "least")); got != string(out) {
			t.Fatalf("in parts: got %s; want %s", got, out)
		}
		var edited Object
		if err := edited.Parse(out); err != nil {
			t.Fatalf("edited %s: %v", out, err)
		}
		var got []string
		for _, m := range edited.Members() {
			got = append(got, string(m.Name), string(m.Value.Of(out)))
		}
		if !slices.Equal(want, got) {
			t.Fatalf("edited %s (-want +got):\n%s", out, cmp.Diff(want, got))
		}
		if !json.Valid(out) {
			t.Fatalf("edited %s is not JSON", out)
		}
	})
}
