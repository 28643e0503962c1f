package chaos

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// A proxy's session is fenced while requests run, and it registers again. The requests continue.
// Those that still have room are never refused for money or slots, neither while the units of
// the old session are uncertain nor later, when all of them are free again.
func TestProxyRegistersAgainUnderLoad(t *testing.T) {
	const running, slots = 60, 80
	r := rig.Get(t)
	open := rig.NewBlockingProvider(t, r)
	open.Release()
	reservation := reservationOf(t, r, open.Model)
	const part = 0
	account := r.Account(t, rig.AccountSpec{Slots: slots, Credit: (slots * reservation * 2).String()})
	old, more, after := rig.NewBlockingProvider(t, r), rig.NewBlockingProvider(t, r), rig.NewBlockingProvider(t, r)
	first := crowd(t, r, running, account.Key, old.Model, part)
	old.Await(t, running)
	session := activeSession(t, r, rig.DataPlane(part))
	resume := r.Pause(t, rig.DataPlane(part))
	rig.Await(t, "the session to be fenced", func(ctx context.Context) error {
		state, err := r.Number(ctx, `select state from proxy_sessions where id = $1`, session)
		if err == nil && state < 2 {
			err = fmt.Errorf("state %d", state)
		}
		return err
	})
	resume()
	rest := slots - running
	second := crowdBy(t, insist(r), rest, account.Key, more.Model, 0, 1, 2, 3)
	if got := outcome(t, second, rest, more); got[http.StatusOK] != rest {
		t.Errorf("requests with room while %d run: got %v; want %d times 200", running, got, rest)
	}
	if now := activeSession(t, r, rig.DataPlane(part)); now == session {
		t.Errorf("the session is still %d", session)
	}
	old.Release()
	for range running {
		if status := <-first; status != http.StatusOK {
			t.Errorf("a request that ran while the session was fenced: got %d; want 200", status)
		}
	}
	third := crowdBy(t, insist(r), slots, account.Key, after.Model, 0, 1, 2, 3)
	if got := outcome(t, third, slots, after); got[http.StatusOK] != slots {
		t.Errorf("as many requests as there are slots: got %v; want %d times 200", got, slots)
	}
	total := sum(t, account.AwaitUsage(t, running+rest+slots))
	r.AwaitSessions(t)
	r.AwaitSettled(t)
	if balance := account.AwaitIdle(t); balance != slots*reservation*2-total {
		t.Errorf("the balance is %v; want %v", balance, slots*reservation*2-total)
	}
	checkInvariants(t, r)
}

// activeSession waits until a proxy has an active session, and returns its id.
func activeSession(t *testing.T, r *rig.Rig, part string) (id int64) {
	t.Helper()
	rig.Await(t, "an active session", func(ctx context.Context) (err error) {
		id, err = r.Number(ctx, `select id from proxy_sessions where name = $1 and state = 1 order by id desc limit 1`, part)
		return err
	})
	return id
}
