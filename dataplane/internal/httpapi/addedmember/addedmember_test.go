package addedmember

import (
	"strconv"
	"testing"
	"time"

	"modelgateway/dataplane/internal/format"
)

func TestRefusalOfOneAccountHoldsForOthersWhenASecondHasIt(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	place := Place{Route: "rte_1"}
	if got := m.Of(place, "acc_1", now); got != 0 {
		t.Errorf("empty: got %v", got)
	}
	if got := m.Note(place, "acc_1", format.AddedStore|format.AddedInclude, now); got != format.AddedStore|format.AddedInclude {
		t.Errorf("news: got %v", got)
	}
	if got := m.Of(place, "acc_1", now); got != format.AddedStore|format.AddedInclude {
		t.Errorf("the account: got %v", got)
	}
	if got := m.Of(place, "acc_2", now); got != 0 {
		t.Errorf("another account: got %v", got)
	}
	if got := m.Note(place, "acc_2", format.AddedInclude, now); got != 0 {
		t.Errorf("news of the second: got %v", got)
	}
	if got := m.Of(place, "acc_3", now); got != format.AddedInclude {
		t.Errorf("a third account: got %v", got)
	}
	if got := m.Of(Place{Route: "rte_1", Resets: 1}, "acc_1", now); got != 0 {
		t.Errorf("after a reset: got %v", got)
	}
}

// A provider that is called without store may keep what it is sent: nobody may bring that about for others.
func TestStoreIsLeftOutForTheAccountAlone(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	for _, account := range []string{"acc_1", "acc_2", "acc_1"} {
		m.Note(Place{}, account, format.AddedStore, now)
	}
	for account, want := range map[string]format.Added{"acc_1": format.AddedStore, "acc_2": format.AddedStore, "acc_3": 0} {
		if got := m.Of(Place{}, account, now); got != want {
			t.Errorf("%s: got %v; want %v", account, got, want)
		}
	}
}

func TestRefusalsAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	m.Note(Place{}, "acc_1", format.AddedInclude, now)
	m.Note(Place{}, "acc_2", format.AddedInclude, now)
	if got := m.Of(Place{}, "acc_3", now.Add(forgottenAfter-1)); got != format.AddedInclude {
		t.Errorf("within a day: got %v", got)
	}
	if got := m.Of(Place{}, "acc_3", now.Add(forgottenAfter)); got != 0 {
		t.Errorf("after a day: got %v", got)
	}
	m.Note(Place{}, "acc_4", format.AddedInclude, now.Add(forgottenAfter))
	if got := m.Of(Place{}, "acc_3", now.Add(forgottenAfter)); got != 0 {
		t.Errorf("a new refusal of one account: got %v", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	for i := range maxNotes + 10 {
		m.Note(Place{Route: strconv.Itoa(i)}, "acc_1", format.AddedStore, now.Add(time.Duration(i)))
	}
	if len(m.notes) != maxNotes {
		t.Errorf("%d notes", len(m.notes))
	}
	if got := m.Of(Place{Route: "9"}, "acc_1", now); got != 0 {
		t.Error("the oldest are not the ones that are forgotten")
	}
	m.Note(Place{Route: "new"}, "acc_1", format.AddedStore, now.Add(2*forgottenAfter))
	if len(m.notes) != 1 {
		t.Errorf("%d notes after all others have ended", len(m.notes))
	}
}
