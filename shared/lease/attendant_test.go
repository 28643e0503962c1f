package lease

import (
	"reflect"
	"testing"
	"time"
)

const silence = 10 * time.Second

// serving is an Attendant that serves in a life, alone in the roll.
func serving(t *testing.T, id, life string) (*Attendant, Roll) {
	t.Helper()
	a, found := NewAttendant(id, silence), Finding{Mark: Mark{Epoch: 1}, Life: life}
	roll, advice := a.Look(Roll{}, found, 0)
	if advice != Enter {
		t.Fatalf("a new Postgres: advice %d; want to enter", advice)
	}
	a.Entered(found)
	return a, roll
}

func committed(t *testing.T, a *Attendant) Witness {
	t.Helper()
	c, ok := a.Begin()
	if !ok || !a.Committed(c) {
		t.Fatal("a commit is refused")
	}
	return c.Witness
}

func TestAttendantAsksForWhatItAnswered(t *testing.T) {
	t.Parallel()
	a, roll := serving(t, "a", "1")
	first := committed(t, a)
	failed, _ := a.Begin()
	a.Failed(failed)
	underway, _ := a.Begin()
	if got := a.Asks(roll); !reflect.DeepEqual(got, []Witness{first}) {
		t.Errorf("asks for %v; want %v", got, first)
	}
	beat, oldest, _ := a.Beat()
	if oldest != first.N {
		t.Errorf("%d may go; want what is below %d", oldest, first.N)
	}
	a.Committed(beat)
	if got := a.Asks(roll); !reflect.DeepEqual(got, []Witness{beat.Witness}) {
		t.Errorf("after a beat it asks for %v; want %v", got, beat.Witness)
	}
	if _, oldest, _ = a.Beat(); oldest != underway.N {
		t.Errorf("%d may go; want what is below the one under way, %d", oldest, underway.N)
	}
	a.Leave()
	if a.Committed(underway) {
		t.Error("what was begun in a life that was left is answered")
	}
	if _, ok := a.Begin(); ok {
		t.Error("a transaction begins in no life")
	}
}

func TestAttendantLooks(t *testing.T) {
	t.Parallel()
	mark := Mark{Epoch: 1, Rev: 5}
	other := func(life string) map[string]Presence { return map[string]Presence{"b": {Life: life, Beat: 7}} }
	own, left := Witness{"a", 1}, Witness{"c", 9}
	tests := []struct {
		name  string
		roll  Roll
		found Finding
		after time.Duration
		want  Advice
	}{
		{"alone", Roll{Mark: mark}, Finding{Mark: mark, Life: "2"}, 0, Enter},
		{"its own commit is missing", Roll{Mark: mark}, Finding{Mark: mark, Life: "2", Missing: []Witness{own}}, 0, Declare},
		{"the witness of the roll is missing", Roll{Mark: mark, Witness: left}, Finding{Mark: mark, Life: "2", Missing: []Witness{left}}, 0, Declare},
		{"a revision is missing", Roll{Mark: mark}, Finding{Mark: Mark{Epoch: 1, Rev: 4}, Life: "2"}, 0, Declare},
		{"an epoch is missing", Roll{Mark: Mark{Epoch: 2}}, Finding{Mark: mark, Life: "2"}, 0, Declare},
		{"its own epoch is missing, and the roll", Roll{}, Finding{Mark: Mark{}, Life: "2"}, 0, Declare},
		{"the other has not looked", Roll{Mark: mark, Present: other("1")}, Finding{Mark: mark, Life: "2"}, silence - 1, Await},
		{"the other never looks", Roll{Mark: mark, Present: other("1")}, Finding{Mark: mark, Life: "2"}, silence, Declare},
		{"the other has looked", Roll{Mark: mark, Present: other("2")}, Finding{Mark: mark, Life: "2"}, 0, Enter},
		{
			"declared meanwhile",
			Roll{Mark: mark, Witness: left, Present: other("1")},
			Finding{Mark: Mark{Epoch: 2, Rev: 4}, Life: "2", Missing: []Witness{own, left}},
			0, Enter,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, _ := serving(t, "a", "1")
			committed(t, a)
			a.Leave()
			a.Look(tt.roll, tt.found, 0)
			next, advice := a.Look(tt.roll, tt.found, tt.after)
			if advice != tt.want {
				t.Fatalf("advice %d; want %d", advice, tt.want)
			}
			if advice != Declare && next.Present["a"].Life != "2" {
				t.Errorf("the roll is %+v; want it to tell where this one is", next)
			}
			if tt.found.Mark.Epoch > tt.roll.Mark.Epoch && (next.Witness != Witness{} || len(next.Present) > 1) {
				t.Errorf("the roll is %+v; want nothing from before the loss", next)
			}
		})
	}
}

// A later epoch makes what was answered before it void: it is not asked for.
func TestAttendantForgetsWhatWasDeclaredLost(t *testing.T) {
	t.Parallel()
	a, roll := serving(t, "a", "1")
	committed(t, a)
	a.Leave()
	found := Finding{Mark: Mark{Epoch: 2}, Life: "2", Missing: a.Asks(roll)}
	next, advice := a.Look(roll, found, 0)
	if advice != Enter {
		t.Fatalf("advice %d; want to enter", advice)
	}
	a.Entered(found)
	if asks := a.Asks(next); len(asks) > 0 {
		t.Errorf("asks for %v; want nothing", asks)
	}
}

func TestAttendantStays(t *testing.T) {
	t.Parallel()
	a, roll := serving(t, "a", "1")
	roll.Present["b"] = Presence{Life: "1", Beat: 3}
	if silent := a.Silent(roll, 0); len(silent) > 0 {
		t.Errorf("silent at first sight: %v", silent)
	}
	if silent := a.Silent(roll, silence-1); len(silent) > 0 {
		t.Errorf("silent too early: %v", silent)
	}
	silent := a.Silent(roll, silence)
	if !reflect.DeepEqual(silent, []string{"b"}) {
		t.Fatalf("silent are %v; want b", silent)
	}
	beat, _, _ := a.Beat()
	a.Committed(beat)
	found := Finding{Mark: Mark{Epoch: 1, Rev: 4}, Life: "1"}
	next, ok := a.Stay(roll, found, beat, silent)
	want := Roll{Mark: found.Mark, Witness: beat.Witness, Present: map[string]Presence{"a": {Life: "1", Beat: roll.Present["a"].Beat + 1}}}
	if !ok || !reflect.DeepEqual(next, want) {
		t.Errorf("stays %t with %+v; want %+v", ok, next, want)
	}
	next.Present["c"] = Presence{Life: "2"}
	if _, ok := a.Stay(next, found, beat, nil); ok || a.Life() != "" {
		t.Error("it stays where another one is not")
	}
}
