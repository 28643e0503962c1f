package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// All connections for the admin API are busy with statements that do not end. Requests that
// need the control plane are served at each proxy, and no session ends. On a busy machine a
// heartbeat may be late, so that a proxy refuses requests for a moment.
func TestBusyAdminConnectionsDelayNoLeases(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	r := l.r
	r.AwaitSessions(t)
	const each = 6 // postgres.admin_max_connections
	sessions := liveSessions(t, r, "")
	fresh := make([]*rig.Account, len(r.Proxies))
	for i := range fresh {
		fresh[i] = r.Account(t, rig.AccountSpec{})
	}
	release := lockTable(t, r, "audit_log")
	var changes sync.WaitGroup
	for _, admin := range r.Admins(t) {
		for range 2 * each {
			changes.Go(func() {
				if _, err := admin.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: t.Name()}); err != nil {
					t.Errorf("a change that waited: %v", err)
				}
			})
		}
	}
	rig.Await(t, "all admin connections to wait", func(ctx context.Context) error {
		n, err := r.Number(ctx, `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'controlplane %'`)
		if want := int64(each * len(r.ControlPlanes())); err == nil && n < want {
			err = fmt.Errorf("%d wait; want %d", n, want)
		}
		return err
	})
	for proxy := range r.Proxies {
		l.await(t, 20, on(proxy))
		// The first request of an account needs the key's record and a lease.
		answer := r.Do(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: fresh[proxy].Key, Body: map[string]any{
			"model": l.model, "messages": []any{map[string]any{"role": "user", "content": "Are you there?"}},
		}})
		if answer.Status != 200 {
			t.Errorf("proxy %d, an account without a lease: %s; want 200", proxy, answer)
		}
	}
	began := `(select query_start from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'controlplane %' order by query_start limit 1)`
	rig.Await(t, "heartbeats a whole session later", func(context.Context) error {
		if beating := liveSessions(t, r, `and last_heartbeat_at > `+began+` + interval '`+sessionWindow+`'`); beating != sessions {
			return fmt.Errorf("the sum of the ids is %d; want %d, of the same sessions", beating, sessions)
		}
		return nil
	})
	release()
	changes.Wait()
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// liveSessions returns the sum of the ids of the live sessions that meet a condition.
func liveSessions(t *testing.T, r *rig.Rig, condition string) int64 {
	t.Helper()
	n, err := r.Number(t.Context(), `select coalesce(sum(id), 0)::bigint from proxy_sessions where state = 1 and valid_until > clock_timestamp() `+condition)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
