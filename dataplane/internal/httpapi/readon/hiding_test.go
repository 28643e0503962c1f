package readon

import "testing"

func TestModelThatHasHiddenReasoningHidesIt(t *testing.T) {
	t.Parallel()
	var h Hiding
	for i, tt := range []struct{ note, hides, known bool }{{hides: false, known: false}, {note: false, known: true}, {note: true, hides: true, known: true}, {note: false, hides: true, known: true}} {
		if i > 0 {
			h.Note("m", tt.note)
		}
		if hides, known := h.Of("m"); hides != tt.hides || known != tt.known {
			t.Errorf("after %d reports: got %v, %v; want %v, %v", i, hides, known, tt.hides, tt.known)
		}
	}
	if _, known := h.Of("other"); known {
		t.Error("another model is known")
	}
}
