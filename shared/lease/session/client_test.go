package session

import (
	"testing"
	"time"

	"modelgateway/shared/wire"
)

// idleProxy is a Proxy that records the deadline of its session.
type idleProxy struct{ deadline Instant }

func (*idleProxy) ResetKeys(int64, int64)                       {}
func (*idleProxy) ApplyChange(wire.KeyChange)                   {}
func (*idleProxy) StreamLost()                                  {}
func (*idleProxy) HoldUsage(bool)                               {}
func (*idleProxy) CommitsLost(int64)                            {}
func (*idleProxy) SessionResumed(wire.SessionID)                {}
func (p *idleProxy) SessionStarted(_ wire.SessionID, d Instant) { p.deadline = d }
func (p *idleProxy) SessionExtended(d Instant)                  { p.deadline = d }
func (*idleProxy) SessionExpired(wire.SessionID)                {}
func (*idleProxy) SessionEnded(wire.SessionID, EndReason)       {}

func at(d time.Duration) Instant { return Instant{Mono: d, Boot: d} }

// The control plane fences the session of a heartbeat that says that its deadline
// has passed. So no response to an earlier heartbeat may extend the session then.
func TestNoLateResponseExtendsASessionThatWasReportedAsExpired(t *testing.T) {
	t.Parallel()
	p := &idleProxy{}
	c := NewClient(at(0), "boot", DefaultTiming(func(below time.Duration) time.Duration { return below / 2 }), p)
	c.Next(at(0))
	if err := c.HandleRegistered(at(0), at(0), &wire.RegisterResponse{Status: wire.Done, Session: 1, ValidMS: 30_000, Revision: 1}); err != nil {
		t.Fatal(err)
	}
	c.Next(at(0))
	c.HandleOpened(at(0), nil)
	earlier := c.Next(at(29 * time.Second)).Heartbeat
	if earlier == nil || earlier.Expired {
		t.Fatalf("heartbeat before the deadline: %+v", earlier)
	}
	c.HeartbeatFailed(at(31*time.Second), earlier)
	later := c.Next(at(33 * time.Second)).Heartbeat
	if later == nil || !later.Expired {
		t.Fatalf("heartbeat after the deadline: %+v; want one that says so", later)
	}
	extended := &wire.HeartbeatResponse{Status: wire.Done, ValidMS: 30_000}
	if err := c.HandleHeartbeat(at(34*time.Second), at(29*time.Second), earlier, extended); err != nil || p.deadline != at(30*time.Second) {
		t.Errorf("the late response to the earlier heartbeat sets the deadline to %v, error %v", p.deadline, err)
	}
	if err := c.HandleHeartbeat(at(34*time.Second), at(33*time.Second), later, extended); err != nil || p.deadline != at(63*time.Second) {
		t.Errorf("the response sets the deadline to %v, error %v; want 63 s", p.deadline, err)
	}
}
