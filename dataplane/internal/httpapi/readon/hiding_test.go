package readon

import "testing"

func TestModelThatHasHiddenReasoningHidesIt(t *testing.T) {
	t.Parallel()
	var h Hiding
	for i, note := range []bool{false, true, false} {
		h.Note("m", note)
		if got, want := h.Of("m"), i > 0; got != want {
			t.Errorf("after %d reports: got %v; want %v", i+1, got, want)
		}
	}
	if h.Of("other") {
		t.Error("another model hides")
	}
}
