package bus_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/changestream"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// endingSession adds an active session that is to be fenced.
func (p *env) endingSession(window time.Duration) wire.SessionID {
	p.t.Helper()
	return wire.SessionID(p.queryInt(`
insert into proxy_sessions (name, boot_id, valid_until, applied_revision, window_ms, ending)
values ('proxy', 'boot', now() - interval '1 hour', 0, $1, true) returning id`, window.Milliseconds()))
}

func (p *env) stateOf(id wire.SessionID) int64 {
	p.t.Helper()
	return p.queryInt("select state from proxy_sessions where id = $1", int64(id))
}

// round runs a round of an Appender.
func (p *env) round(a *changestream.Appender) {
	p.t.Helper()
	if err := a.Round(await.Context(p.t)); err != nil {
		p.t.Fatal(err)
	}
}

// A proxy that is silent may admit. So its session is fenced only when the stream has had its end for the window.
func TestSessionIsFencedWhenTheStreamHasConfirmedItsEnd(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	a := p.appender(p.connect(asPlane), 20*time.Second)
	told, err := p.proxy.SubscribeSync(subject.ChangedPrefix + subject.ChangeSession + ".>")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, p.proxy)
	short, long := p.endingSession(time.Millisecond), p.endingSession(time.Hour)
	p.round(a)
	for range 2 { // proxies learn of both at once
		if _, err := told.NextMsgWithContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "the session to be fenced", func() bool {
		p.round(a)
		return p.stateOf(short) == 2
	})
	if state := p.stateOf(long); state != 1 {
		t.Errorf("the session with the long window has state %d; want it active", state)
	}
	// The stream is lost with the end of the session.
	if err := natstest.JetStream(t, p.server.Connect()).DeleteStream(t.Context(), subject.ChangeStream); err != nil {
		t.Fatal(err)
	}
	p.exec("update proxy_sessions set window_ms = 1 where id = $1", int64(long))
	again := p.appender(p.connect(asPlane), 20*time.Second) // another replica
	await.Until(t, "the session to be fenced", func() bool {
		p.round(again)
		return p.stateOf(long) == 2
	})
	if _, err := told.NextMsgWithContext(t.Context()); err != nil {
		t.Errorf("the end of the session is not appended to the new stream: %v", err)
	}
}

// The recovery wait must not end while a proxy that is fresh may not know the epoch.
func TestRecoveryWaitsForTheStream(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connect(asPlane)
	a := p.appender(b, time.Millisecond)
	if a.ConfirmedEpoch(2) || !a.ConfirmedEpoch(0) {
		t.Error("an epoch is confirmed that the stream does not have")
	}
	p.round(a)
	if a.ConfirmedEpoch(2) {
		t.Error("an epoch is confirmed although there was no loss")
	}
	// A stolen proxy cannot hold up every grant after a loss by what it sends as a beat.
	if _, err := natstest.JetStream(t, p.proxy).Publish(t.Context(), subject.From(subject.FreshBeat, "proxy"), []byte(`{"window_ms":9000000000}`)); err != nil {
		t.Fatal(err)
	}
	p.exec("update cluster_state set cluster_epoch = 2")
	await.Until(t, "the epoch to be confirmed", func() bool {
		p.round(a)
		return a.ConfirmedEpoch(2)
	})
	patient := p.appender(b, time.Hour)
	if p.round(patient); patient.ConfirmedEpoch(2) {
		t.Error("the epoch is confirmed before the window has passed")
	}
	p.exec("update cluster_state set cluster_epoch = 3")
	p.round(patient)
	// Some session may have the longer window, also one that Postgres has lost.
	if p.round(a); patient.ConfirmedEpoch(3) || a.ConfirmedEpoch(3) {
		t.Error("a later epoch is confirmed by an earlier one, or before the longest window has passed")
	}
}
