package affinity_test

import (
	"fmt"
	"testing"

	"modelgateway/dataplane/internal/affinity"
)

func TestFirstItemOfAConversationIsFound(t *testing.T) {
	t.Parallel()
	of := func(body string) uint64 {
		t.Helper()
		item, ok := affinity.Item("acc_1", []byte(body))
		if !ok {
			t.Errorf("no item in %s", body)
		}
		return item
	}
	first := of(`{"input":[{"type":"reasoning","encrypted_content":"abc"}]}`)
	if of(`{"input":[{"type":"message","content":"the \"signature\":\"x\""},{"encrypted_content" : "abc"},{"encrypted_content":"def"}]}`) != first {
		t.Error("a later turn has another first item")
	}
	if of(`{"input":[{"encrypted_content":"def"}]}`) == first || of(`{"a":[{"signature":"x"},{"encrypted_content":"abc"}]}`) != of(`{"b":[{"signature":"x"}]}`) {
		t.Error("the first item is not the one that counts")
	}
	if other, _ := affinity.Item("acc_2", []byte(`{"encrypted_content":"abc"}`)); other == first {
		t.Error("two accounts share an item")
	}
	for _, body := range []string{``, `{}`, `{"encrypted_content":null}`, `{"signature":""}`, `{"signature"`, `{"signature":`, `{"signature":"`, `["signature","x"]`} {
		if _, ok := affinity.Item("acc_1", []byte(body)); ok {
			t.Errorf("an item in %s", body)
		}
	}
}

func TestMakersOfTheNewestItemsAreRemembered(t *testing.T) {
	t.Parallel()
	var makers affinity.Makers
	body := func(i int) []byte { return fmt.Appendf(nil, `{"signature":"%d"}`, i) }
	known := func(i int) string {
		maker, _ := makers.Of("acc_1", body(i))
		return maker.Route
	}
	if known(1) != "" {
		t.Error("something is known at the start")
	}
	const many = 5000
	for i := range many {
		item, _ := affinity.Item("acc_1", body(i))
		makers.Note(item, affinity.Maker{Route: "before"})
		makers.Note(item, affinity.Maker{Route: fmt.Sprint("r", i), Credential: "c"})
	}
	for i, want := range map[int]string{0: "", many - 4097: "", many - 4096: fmt.Sprint("r", many-4096), many - 1: fmt.Sprint("r", many-1)} {
		if got := known(i); got != want {
			t.Errorf("item %d: got %q; want %q", i, got, want)
		}
	}
}
