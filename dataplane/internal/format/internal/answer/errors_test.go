package answer

import (
	"strings"
	"testing"
)

// nest returns value inside of n objects with the one member name.
func nest(name, value string, n int) []byte {
	return []byte(strings.Repeat(`{"`+name+`":`, n) + value + strings.Repeat("}", n))
}

func TestErrorsThatAreNestedTooDeepAreNotSearched(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		value []byte
		want  bool
	}{
		{"empty", nest("a", `null`, maxErrorDepth), false},
		{"set", nest("a", `"x"`, maxErrorDepth), true},
		{"empty, too deep", nest("a", `null`, maxErrorDepth+1), true},
		// Searched level by level, this takes the time of 200,000 scans of a megabyte.
		{"a megabyte of levels", nest("a", `null`, 200_000), true},
	}
	for _, tt := range tests {
		if got := IsError(tt.value); got != tt.want {
			t.Errorf("%s: IsError = %v, want %v", tt.name, got, tt.want)
		}
	}

	if IsSet(nest("status_code", `1`, 200_000)) {
		t.Error("a status code that is an object counts as set")
	}
}

func TestAnswersThatAreNestedTooDeepAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	const deep = 200_000
	raw := nest("response", `{"output":[],"error":"late","instructions":"prompt"}`, deep)
	if got, want := len(appendOwnWords(nil, raw)), len(raw)-maxErrorDepth*len(`{"response":}`); got != want {
		t.Errorf("%d bytes are left of an answer that is nested %d times, want %d", got, deep, want)
	}

	raw = nest("response", `{"output":[],"error":"late","instructions":"prompt"}`, maxErrorDepth)
	if got, want := string(appendOwnWords(nil, raw)), `{"error":"late"}`; got != want {
		t.Errorf("the own words are %s, want %s", got, want)
	}
}
