package rollback

import (
	"reflect"
	"testing"
	"time"
)

const (
	silenceLimit = 10 * time.Second
	restartLimit = 3 * time.Second
)

func newDetector(id string, keeps Keeps) *Detector {
	return NewDetector(id, Config{SilenceLimit: silenceLimit, RestartLimit: restartLimit, Keeps: keeps})
}

// serving returns a Detector that serves in an incarnation, as the only member.
func serving(t *testing.T, id, incarnation string) (*Detector, Membership) {
	t.Helper()
	a, observed := newDetector(id, KeepsOnRestart), Observation{Mark: HighWaterMark{Epoch: 1}, Incarnation: incarnation}
	members, action := a.Observe(Membership{}, observed, 0)
	if action != Serve {
		t.Fatalf("a new Postgres: action %d; want Serve", action)
	}
	a.StartServing(observed, 0)
	return a, members
}

func committed(t *testing.T, a *Detector) CommitMarker {
	t.Helper()
	c, ok := a.Begin()
	if !ok || !a.Committed(c) {
		t.Fatal("a commit was refused")
	}
	return c.CommitMarker
}

func TestReplicaVerifiesTheCommitsItAnswered(t *testing.T) {
	t.Parallel()
	a, members := serving(t, "a", "1")
	first := committed(t, a)
	failed, _ := a.Begin()
	a.Failed(failed)
	running, _ := a.Begin()
	if got := a.MarkersToVerify(members); !reflect.DeepEqual(got, []CommitMarker{first}) {
		t.Errorf("markers %v; want %v", got, first)
	}
	checkpoint, oldest, _ := a.BeginCheckpoint()
	if oldest != first.N {
		t.Errorf("markers below %d may be deleted; want below %d", oldest, first.N)
	}
	a.Committed(checkpoint)
	if got := a.MarkersToVerify(members); !reflect.DeepEqual(got, []CommitMarker{checkpoint.CommitMarker}) {
		t.Errorf("markers after a checkpoint: %v; want %v", got, checkpoint.CommitMarker)
	}
	if _, oldest, _ = a.BeginCheckpoint(); oldest != running.N {
		t.Errorf("markers below %d may be deleted; want below that of the running transaction, %d", oldest, running.N)
	}
	a.StopServing()
	if a.Committed(running) {
		t.Error("the result of a transaction in an earlier incarnation is used")
	}
	if _, ok := a.Begin(); ok {
		t.Error("a transaction begins while the replica does not serve")
	}
}

func TestObservationDecidesAction(t *testing.T) {
	t.Parallel()
	mark := HighWaterMark{Epoch: 1, Revision: 5}
	other := func(incarnation string) map[string]Member {
		return map[string]Member{"b": {Incarnation: incarnation, Heartbeat: 7}}
	}
	own, left := CommitMarker{"a", 1}, CommitMarker{"c", 9}
	tests := []struct {
		name     string
		members  Membership
		observed Observation
		after    time.Duration
		want     Action
	}{
		{"alone", Membership{Mark: mark}, Observation{Mark: mark, Incarnation: "2"}, 0, Serve},
		{"its own commit is missing", Membership{Mark: mark}, Observation{Mark: mark, Incarnation: "2", MissingMarkers: []CommitMarker{own}}, 0, DeclareLoss},
		{"the last marker of the membership is missing", Membership{Mark: mark, LastMarker: left}, Observation{Mark: mark, Incarnation: "2", MissingMarkers: []CommitMarker{left}}, 0, DeclareLoss},
		{"a revision is missing", Membership{Mark: mark}, Observation{Mark: HighWaterMark{Epoch: 1, Revision: 4}, Incarnation: "2"}, 0, DeclareLoss},
		{"an epoch is missing", Membership{Mark: HighWaterMark{Epoch: 2}}, Observation{Mark: mark, Incarnation: "2"}, 0, DeclareLoss},
		{"its own epoch and the membership are missing", Membership{}, Observation{Mark: HighWaterMark{}, Incarnation: "2"}, 0, DeclareLoss},
		{"another member has not verified", Membership{Mark: mark, Members: other("1")}, Observation{Mark: mark, Incarnation: "2"}, silenceLimit - 1, Wait},
		{"another member stays silent", Membership{Mark: mark, Members: other("1")}, Observation{Mark: mark, Incarnation: "2"}, silenceLimit, DeclareLoss},
		{"another member has verified", Membership{Mark: mark, Members: other("2")}, Observation{Mark: mark, Incarnation: "2"}, 0, Serve},
		{
			"a loss was declared meanwhile",
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
			a.Observe(tt.members, tt.observed, 0)
			next, action := a.Observe(tt.members, tt.observed, tt.after)
			if action != tt.want {
				t.Fatalf("action %d; want %d", action, tt.want)
			}
			if action != DeclareLoss && next.Members["a"].Incarnation != "2" {
				t.Errorf("the membership is %+v; want the replica with its incarnation", next)
			}
			if tt.observed.Mark.Epoch > tt.members.Mark.Epoch && (next.LastMarker != CommitMarker{} || len(next.Members) > 1) {
				t.Errorf("the membership is %+v; want nothing from before the loss", next)
			}
		})
	}
}

func TestNewEpochDropsEarlierCommits(t *testing.T) {
	t.Parallel()
	a, members := serving(t, "a", "1")
	committed(t, a)
	a.StopServing()
	observed := Observation{Mark: HighWaterMark{Epoch: 2}, Incarnation: "2", MissingMarkers: a.MarkersToVerify(members)}
	next, action := a.Observe(members, observed, 0)
	if action != Serve {
		t.Fatalf("action %d; want Serve", action)
	}
	a.StartServing(observed, 0)
	if markers := a.MarkersToVerify(next); len(markers) > 0 {
		t.Errorf("markers %v; want none", markers)
	}
}

func TestCheckpointFencesSilentReplicas(t *testing.T) {
	t.Parallel()
	a, members := serving(t, "a", "1")
	members.Members["b"] = Member{Incarnation: "1", Heartbeat: 3}
	if silent := a.SilentReplicas(members, 0); len(silent) > 0 {
		t.Errorf("silent at the first sighting: %v", silent)
	}
	if silent := a.SilentReplicas(members, silenceLimit-1); len(silent) > 0 {
		t.Errorf("silent too early: %v", silent)
	}
	silent := a.SilentReplicas(members, silenceLimit)
	if !reflect.DeepEqual(silent, []string{"b"}) {
		t.Fatalf("silent are %v; want b", silent)
	}
	checkpoint, _, _ := a.BeginCheckpoint()
	a.Committed(checkpoint)
	observed := Observation{Mark: HighWaterMark{Epoch: 1, Revision: 4}, Incarnation: "1"}
	next, ok := a.AfterCheckpoint(members, observed, checkpoint, silent)
	want := Membership{Mark: observed.Mark, LastMarker: checkpoint.CommitMarker, Members: map[string]Member{"a": {Incarnation: "1", Heartbeat: members.Members["a"].Heartbeat + 1}}}
	if !ok || !reflect.DeepEqual(next, want) {
		t.Errorf("serving %t with %+v; want %+v", ok, next, want)
	}
	next.Members["c"] = Member{Incarnation: "2"}
	if _, ok := a.AfterCheckpoint(next, observed, checkpoint, nil); ok || a.Incarnation() != "" {
		t.Error("the replica continues to serve beside a member of another incarnation")
	}
}

// A replica that was killed together with its server cannot report what it has
// committed. Whether its silence is a loss depends on what the server keeps.
func TestSilentReplicaIsReleasedIfTheServerKeepsItsCommits(t *testing.T) {
	t.Parallel()
	const restarted, promoted = "2/history", "2/other"
	tests := []struct {
		name        string
		keeps       Keeps
		incarnation string
		missing     bool
		// waits is how long the replica waits, and want what it does then.
		waits time.Duration
		want  Action
	}{
		{"restart", KeepsOnRestart, restarted, false, restartLimit, Serve},
		{"restart of a server that keeps nothing", KeepsNever, restarted, false, silenceLimit, DeclareLoss},
		{"restart of a copy without the last marker", KeepsOnRestart, restarted, true, 0, DeclareLoss},
		{"failover", KeepsOnRestart, promoted, false, silenceLimit, DeclareLoss},
		{"failover with synchronous replication", KeepsOnFailover, promoted, false, silenceLimit, Serve},
		{"failover with synchronous replication, a marker is missing", KeepsOnFailover, promoted, true, 0, DeclareLoss},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, mark := newDetector("a", tt.keeps), HighWaterMark{Epoch: 1}
			last := CommitMarker{"c", 9}
			members := Membership{Mark: mark, LastMarker: last, Members: map[string]Member{"b": {Incarnation: "1/history", Heartbeat: 7}}}
			observed := Observation{Mark: mark, Incarnation: tt.incarnation}
			if tt.missing {
				observed.MissingMarkers = []CommitMarker{last}
			}
			if tt.waits > 0 {
				if _, action := a.Observe(members, observed, 0); action != Wait {
					t.Fatalf("action %d at once; want Wait", action)
				}
				if _, action := a.Observe(members, observed, tt.waits-1); action != Wait {
					t.Fatalf("action %d too early; want Wait", action)
				}
			}
			next, action := a.Observe(members, observed, tt.waits)
			if action != tt.want {
				t.Fatalf("action %d; want %d", action, tt.want)
			}
			if action != Serve {
				return
			}
			a.StartServing(observed, tt.waits)
			if _, present := next.Members["b"]; !present {
				t.Error("the silent replica was removed before a commit that comes after its own")
			}
			fenced := a.SilentReplicas(next, tt.waits)
			checkpoint, _, _ := a.BeginCheckpoint()
			a.Committed(checkpoint)
			after, serving := a.AfterCheckpoint(next, observed, checkpoint, fenced)
			if _, present := after.Members["b"]; present || !serving || after.LastMarker != checkpoint.CommitMarker {
				t.Errorf("serving %t with %+v; want it without the silent replica, and with the marker of the checkpoint", serving, after)
			}
		})
	}
}

func TestReleasedReplicaThatReturnsIsNotFenced(t *testing.T) {
	t.Parallel()
	a, mark := newDetector("a", KeepsOnRestart), HighWaterMark{Epoch: 1}
	members := Membership{Mark: mark, Members: map[string]Member{"b": {Incarnation: "1/history", Heartbeat: 7}}}
	observed := Observation{Mark: mark, Incarnation: "2/history"}
	a.Observe(members, observed, 0)
	next, _ := a.Observe(members, observed, restartLimit)
	a.StartServing(observed, restartLimit)
	next.Members["b"] = Member{Incarnation: "2/history", Heartbeat: 8}
	if silent := a.SilentReplicas(next, restartLimit); len(silent) > 0 {
		t.Errorf("silent are %v; want none", silent)
	}
}

// Times count by the replica's own clock from when it entered the incarnation, not by a clock of Postgres.
func TestReplicaCountsFromItsEntry(t *testing.T) {
	t.Parallel()
	a := newDetector("a", KeepsOnRestart)
	first := Observation{Mark: HighWaterMark{Epoch: 1}, Incarnation: "1/history"}
	a.StartServing(first, 10*time.Second)
	a.StopServing()
	if got := a.ServingFor(12 * time.Second); got != 0 {
		t.Errorf("serving for %v after it has stopped; want 0", got)
	}
	a.StartServing(first, 13*time.Second)
	if got := a.ServingFor(14 * time.Second); got != 4*time.Second {
		t.Errorf("serving for %v after it has entered the same incarnation again; want 4s", got)
	}
	a.StopServing()
	second := Observation{Mark: HighWaterMark{Epoch: 2}, Incarnation: "2/other", Recovering: true}
	a.StartServing(second, 20*time.Second)
	if got := a.ServingFor(21 * time.Second); got != time.Second {
		t.Errorf("serving for %v in the next incarnation; want 1s", got)
	}
	if got := a.Epoch(); got != 2 {
		t.Errorf("epoch %d; want 2", got)
	}
	a.StopServing()
	if got := a.Epoch(); got != 0 {
		t.Errorf("epoch %d after it has stopped; want 0", got)
	}
}

// Before the first checkpoint of an epoch there is no last marker, so a copy of the disk
// that lacks the commits of a silent replica looks like a restart.
func TestRestartWithoutALastMarkerIsNotTrusted(t *testing.T) {
	t.Parallel()
	mark := HighWaterMark{Epoch: 2}
	members := Membership{Mark: mark, Members: map[string]Member{"b": {Incarnation: "1/history", Heartbeat: 1}}}
	observed := Observation{Mark: mark, Incarnation: "2/history"}
	for keeps, want := range map[Keeps]Action{KeepsNever: DeclareLoss, KeepsOnRestart: DeclareLoss, KeepsOnFailover: Serve} {
		a := newDetector("a", keeps)
		for _, at := range []time.Duration{0, restartLimit, silenceLimit - 1} {
			if _, action := a.Observe(members, observed, at); action != Wait {
				t.Errorf("%s: action %d after %s; want Wait", keeps, action, at)
			}
		}
		if _, action := a.Observe(members, observed, silenceLimit); action != want {
			t.Errorf("%s: action %d; want %d", keeps, action, want)
		}
	}
}
