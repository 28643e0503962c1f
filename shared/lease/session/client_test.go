package session

import (
	"testing"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// idleProxy is a Proxy that records the changes that are applied.
type idleProxy struct{ changes int }

func (*idleProxy) ResetKeys(int64, int64)                       {}
func (p *idleProxy) ApplyChange(wire.KeyChange)                 { p.changes++ }
func (*idleProxy) StreamLost()                                  {}
func (*idleProxy) HoldUsage(bool)                               {}
func (*idleProxy) CommitsLost(int64)                            {}
func (*idleProxy) SessionResumed(wire.SessionID)                {}
func (*idleProxy) SessionStarted(wire.SessionID, time.Duration) {}
func (*idleProxy) SessionEnded(wire.SessionID, EndReason)       {}

func at(d time.Duration) Instant { return Instant{Mono: d, Boot: d} }

// A proxy that is not fresh becomes fresh by a response that has every change of Postgres, and by no other.
func TestHeartbeatSyncsOnlyWithTheLastChanges(t *testing.T) {
	t.Parallel()
	p := &idleProxy{}
	c := NewClient(at(0), "boot", DefaultTiming(func(below time.Duration) time.Duration { return below / 2 }), p)
	c.Next(at(0))
	if err := c.HandleRegistered(at(0), &wire.RegisterResponse{Status: wire.Done, Session: 1, WindowMS: 20_000, Revision: 1}); err != nil {
		t.Fatal(err)
	}
	c.Next(at(0))
	c.HandleOpened(at(0), nil)
	send := func(r *wire.HeartbeatResponse) (synced bool, err error) {
		t.Helper()
		request := c.Next(at(time.Second)).Heartbeat
		if request == nil {
			t.Fatal("no heartbeat is sent at once")
		}
		return c.HandleHeartbeat(at(time.Second), request, r)
	}
	first := []wire.KeyChange{{Revision: 2, PreviousRevision: 1}}
	if synced, err := send(&wire.HeartbeatResponse{Status: wire.Done, Changes: first, More: true}); synced || err != nil {
		t.Errorf("a response with a part of the changes: synced %t, error %v", synced, err)
	}
	second := []wire.KeyChange{{Revision: 3, PreviousRevision: 2}}
	if synced, err := send(&wire.HeartbeatResponse{Status: wire.Done, Changes: second}); !synced || err != nil || p.changes != 2 {
		t.Errorf("the response with the rest: synced %t, %d changes, error %v", synced, p.changes, err)
	}
	if synced, err := send(&wire.HeartbeatResponse{Status: wire.Unavailable}); synced || err == nil {
		t.Errorf("no decision: synced %t, error %v", synced, err)
	}
}

// A change of a key with several secrets is pushed with those before it, so that it has no gap.
func TestPushedChangeBringsThoseOfOtherSecrets(t *testing.T) {
	t.Parallel()
	var log ChangeLog
	log.Begin(7, 10)
	first := wire.KeyChange{Revision: 11, PreviousRevision: 10, Kind: wire.KeyUpdated, KeyHash: apikey.Hash{1}}
	second := wire.KeyChange{Revision: 12, PreviousRevision: 11, Kind: wire.KeyUpdated, KeyHash: apikey.Hash{2}, Before: &first}
	last := wire.KeyChange{Revision: 13, PreviousRevision: 12, Kind: wire.KeyUpdated, KeyHash: apikey.Hash{3}, Before: &second}
	var applied []apikey.Hash
	apply := func(c wire.KeyChange) {
		if c.Before != nil {
			t.Error("a change is applied with others")
		}
		applied = append(applied, c.KeyHash)
	}
	if ack, ok := log.ApplyPushed(last, apply); !ok || ack.Revision != 13 || len(applied) != 3 || applied[0] != first.KeyHash {
		t.Errorf("got %+v, %v, applied %v; want all in their order, acknowledged at once", ack, ok, applied)
	}

	log.Begin(7, 9) // a change of another key is missing
	if _, ok := log.ApplyPushed(last, apply); ok {
		t.Error("a change is acknowledged although one before is missing")
	}
}
