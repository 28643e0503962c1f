package calls

import (
	"strconv"
	"testing"

	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// A call that has cost something is in the event even if the list of skipped routes has no room.
func TestListKeepsWhatHasCostSomething(t *testing.T) {
	t.Parallel()
	var l List
	for i := range 2 * event.MaxAttempts {
		l.Note(event.Attempt{Route: "skipped " + strconv.Itoa(i), Skipped: event.SkippedBreaker})
	}
	l.Note(event.Attempt{Route: "failed", Class: "timeout"})
	l.Note(event.Attempt{Route: "spent", Class: "truncated", Usage: price.Usage{Input: 1}})
	all := l.With(event.Attempt{Route: "served"})
	if len(all) != event.MaxAttempts || all[len(all)-2].Route != "spent" || all[len(all)-1].Route != "served" || all[0].Route != "skipped 1" {
		t.Errorf("got %+v", all)
	}
	l.Note(event.Attempt{Route: "later", Usage: price.Usage{Input: 1}})
	if all[len(all)-1].Route != "served" {
		t.Error("what is noted later has changed the attempts of the event")
	}
	if l.Begin("skipped 5"); len(l) != event.MaxAttempts-2 {
		t.Errorf("got %d attempts after one of the skipped routes is called", len(l))
	}
}
