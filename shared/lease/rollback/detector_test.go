package rollback

import (
	"reflect"
	"testing"
	"time"
)

const silence = 10 * time.Second

// serving is an Attendant that serves in a life, alone in the roll.
func serving(t *testing.T, id, life string) (*Detector, Membership) {
	t.Helper()
	a, found := NewDetector(id, silence), Observation{Mark: HighWaterMark{Epoch: 1}, Incarnation: life}
	roll, advice := a.Observe(Membership{}, found, 0)
	if advice != Serve {
		t.Fatalf("a new Postgres: advice %d; want to enter", advice)
	}
	a.StartServing(found)
	return a, roll
}

func committed(t *testing.T, a *Detector) CommitMarker {
	t.Helper()
	c, ok := a.Begin()
	if !ok || !a.Committed(c) {
		t.Fatal("a commit is refused")
	}
	return c.CommitMarker
}

func TestAttendantAsksForWhatItAnswered(t *testing.T) {
	t.Parallel()
	a, roll := serving(t, "a", "1")
	first := committed(t, a)
	failed, _ := a.Begin()
	a.Failed(failed)
	underway, _ := a.Begin()
	if got := a.MarkersToVerify(roll); !reflect.DeepEqual(got, []CommitMarker{first}) {
		t.Errorf("asks for %v; want %v", got, first)
	}
	beat, oldest, _ := a.BeginCheckpoint()
	if oldest != first.N {
		t.Errorf("%d may go; want what is below %d", oldest, first.N)
	}
	a.Committed(beat)
	if got := a.MarkersToVerify(roll); !reflect.DeepEqual(got, []CommitMarker{beat.CommitMarker}) {
		t.Errorf("after a beat it asks for %v; want %v", got, beat.CommitMarker)
	}
	if _, oldest, _ = a.BeginCheckpoint(); oldest != underway.N {
		t.Errorf("%d may go; want what is below the one under way, %d", oldest, underway.N)
	}
	a.StopServing()
	if a.Committed(underway) {
		t.Error("what was begun in a life that was left is answered")
	}
	if _, ok := a.Begin(); ok {
		t.Error("a transaction begins in no life")
	}
}

func TestAttendantLooks(t *testing.T) {
	t.Parallel()
	mark := HighWaterMark{Epoch: 1, Revision: 5}
	other := func(life string) map[string]Member { return map[string]Member{"b": {Incarnation: life, Heartbeat: 7}} }
	own, left := CommitMarker{"a", 1}, CommitMarker{"c", 9}
	tests := []struct {
		name  string
		roll  Membership
		found Observation
		after time.Duration
		want  Action
	}{
		{"alone", Membership{Mark: mark}, Observation{Mark: mark, Incarnation: "2"}, 0, Serve},
		{"its own commit is missing", Membership{Mark: mark}, Observation{Mark: mark, Incarnation: "2", MissingMarkers: []CommitMarker{own}}, 0, DeclareLoss},
		{"the witness of the roll is missing", Membership{Mark: mark, LastMarker: left}, Observation{Mark: mark, Incarnation: "2", MissingMarkers: []CommitMarker{left}}, 0, DeclareLoss},
		{"a revision is missing", Membership{Mark: mark}, Observation{Mark: HighWaterMark{Epoch: 1, Revision: 4}, Incarnation: "2"}, 0, DeclareLoss},
		{"an epoch is missing", Membership{Mark: HighWaterMark{Epoch: 2}}, Observation{Mark: mark, Incarnation: "2"}, 0, DeclareLoss},
		{"its own epoch is missing, and the roll", Membership{}, Observation{Mark: HighWaterMark{}, Incarnation: "2"}, 0, DeclareLoss},
		{"the other has not looked", Membership{Mark: mark, Members: other("1")}, Observation{Mark: mark, Incarnation: "2"}, silence - 1, Wait},
		{"the other never looks", Membership{Mark: mark, Members: other("1")}, Observation{Mark: mark, Incarnation: "2"}, silence, DeclareLoss},
		{"the other has looked", Membership{Mark: mark, Members: other("2")}, Observation{Mark: mark, Incarnation: "2"}, 0, Serve},
		{
			"declared meanwhile",
			Membership{Mark: mark, LastMarker: left, Members: other("1")},
			Observation{Mark: HighWaterMark{Epoch: 2, Revision: 4}, Incarnation: "2", MissingMarkers: []CommitMarker{own, left}},
			0, Serve,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, _ := serving(t, "a", "1")
			committed(t, a)
			a.StopServing()
			a.Observe(tt.roll, tt.found, 0)
			next, advice := a.Observe(tt.roll, tt.found, tt.after)
			if advice != tt.want {
				t.Fatalf("advice %d; want %d", advice, tt.want)
			}
			if advice != DeclareLoss && next.Members["a"].Incarnation != "2" {
				t.Errorf("the roll is %+v; want it to tell where this one is", next)
			}
			if tt.found.Mark.Epoch > tt.roll.Mark.Epoch && (next.LastMarker != CommitMarker{} || len(next.Members) > 1) {
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
	a.StopServing()
	found := Observation{Mark: HighWaterMark{Epoch: 2}, Incarnation: "2", MissingMarkers: a.MarkersToVerify(roll)}
	next, advice := a.Observe(roll, found, 0)
	if advice != Serve {
		t.Fatalf("advice %d; want to enter", advice)
	}
	a.StartServing(found)
	if asks := a.MarkersToVerify(next); len(asks) > 0 {
		t.Errorf("asks for %v; want nothing", asks)
	}
}

func TestAttendantStays(t *testing.T) {
	t.Parallel()
	a, roll := serving(t, "a", "1")
	roll.Members["b"] = Member{Incarnation: "1", Heartbeat: 3}
	if silent := a.SilentReplicas(roll, 0); len(silent) > 0 {
		t.Errorf("silent at first sight: %v", silent)
	}
	if silent := a.SilentReplicas(roll, silence-1); len(silent) > 0 {
		t.Errorf("silent too early: %v", silent)
	}
	silent := a.SilentReplicas(roll, silence)
	if !reflect.DeepEqual(silent, []string{"b"}) {
		t.Fatalf("silent are %v; want b", silent)
	}
	beat, _, _ := a.BeginCheckpoint()
	a.Committed(beat)
	found := Observation{Mark: HighWaterMark{Epoch: 1, Revision: 4}, Incarnation: "1"}
	next, ok := a.AfterCheckpoint(roll, found, beat, silent)
	want := Membership{Mark: found.Mark, LastMarker: beat.CommitMarker, Members: map[string]Member{"a": {Incarnation: "1", Heartbeat: roll.Members["a"].Heartbeat + 1}}}
	if !ok || !reflect.DeepEqual(next, want) {
		t.Errorf("stays %t with %+v; want %+v", ok, next, want)
	}
	next.Members["c"] = Member{Incarnation: "2"}
	if _, ok := a.AfterCheckpoint(next, found, beat, nil); ok || a.Incarnation() != "" {
		t.Error("it stays where another one is not")
	}
}
