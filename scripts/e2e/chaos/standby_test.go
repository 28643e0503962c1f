package chaos

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// The primary of Postgres is killed under load, and a standby that has every commit is promoted. Nothing is lost, so no loss is
// declared, and money is exact.
func TestSynchronousStandbyIsPromoted(t *testing.T) {
	rig.Long(t)
	for _, keeps := range []string{"restart", "failover"} {
		t.Run(keeps, func(t *testing.T) {
			r := rig.Start(t, rig.Options{ControlPlanes: 2, Standby: true, ControlSettings: append(shortSessions(), "MGW_POSTGRES_KEEPS_COMMITS="+keeps)})
			standby := r.StartStandby(t)
			conn := r.Postgres(t)
			for _, statement := range []string{`alter system set synchronous_standby_names = '*'`, `select pg_reload_conf()`} {
				if _, err := conn.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			awaitReplication(t, r, "sync")
			l := startLoadOn(t, r, clients)
			l.await(t, 60, answered)
			id, key := l.account.NewKey(t, "")
			r.AwaitStatus(t, rig.Request{Path: "/v1/chat/completions", Key: key, Body: question(l.model)}, http.StatusOK)
			l.account.Revoke(t, id)
			r.Halt(t, rig.Postgres)
			standby.Promote(t)
			for proxy := range r.Proxies {
				l.await(t, 20, on(proxy))
			}
			if after := epoch(t, r); after != 1 {
				t.Errorf("cluster epoch %d; want 1, no loss declared", after)
			}
			checkRevoked(t, r, key, l.model)
			asked := l.finish()
			checkOnlyUnavailable(t, asked)
			checkBills(t, l, asked, credit)
		})
	}
}

// The replication to a standby stops, and then the primary is killed and the standby promoted. The commits since are lost, which is
// noticed: usage is settled again, and a revocation that was lost is made again.
func TestStandbyIsPromotedThatLacksCommits(t *testing.T) {
	rig.Long(t)
	r := rig.Start(t, rig.Options{ControlPlanes: 2, Standby: true, ControlSettings: shortSessions()})
	standby := r.StartStandby(t)
	l := startLoadOn(t, r, clients)
	l.await(t, 60, answered)
	id, key := l.account.NewKey(t, "")
	r.AwaitStatus(t, rig.Request{Path: "/v1/chat/completions", Key: key, Body: question(l.model)}, http.StatusOK)
	awaitReplication(t, r, "async")
	standby.Cut()
	before := l.settled(t, 0)
	l.settled(t, before+50)
	l.account.Revoke(t, id)
	r.Halt(t, rig.Postgres)
	standby.Promote(t)
	promoted := time.Now()
	for proxy := range r.Proxies {
		l.await(t, 20, on(proxy))
	}
	t.Logf("requests were served again %v after the promotion", time.Since(promoted).Round(100*time.Millisecond))
	if after := epoch(t, r); after != 2 {
		t.Errorf("cluster epoch %d; want 2, one loss declared", after)
	}
	checkRevoked(t, r, key, l.model)
	if n, err := r.Number(t.Context(), `select count(*) from api_keys where revoked_at is not null`); n != 1 || err != nil {
		t.Errorf("%d keys are revoked in the promoted standby, %v; want 1", n, err)
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// awaitReplication waits until the standby has all that was committed before, and replicates as wanted.
func awaitReplication(t *testing.T, r *rig.Rig, kind string) {
	t.Helper()
	rig.Await(t, "the standby to have every commit", func(ctx context.Context) error {
		n, err := r.Number(ctx, `select count(*) from pg_stat_replication where state = 'streaming' and sync_state = $1`, kind)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d standbys replicate", n)
		}
		return err
	})
	var position string
	if err := r.Postgres(t).QueryRow(t.Context(), `select pg_current_wal_lsn()::text`).Scan(&position); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the standby to have every commit", func(ctx context.Context) error {
		n, err := r.Number(ctx, `select count(*) from pg_stat_replication where replay_lsn >= $1::text::pg_lsn`, position)
		if err == nil && n != 1 {
			err = fmt.Errorf("the standby is before %s", position)
		}
		return err
	})
}

// checkRevoked checks that every proxy refuses a revoked key.
func checkRevoked(t *testing.T, r *rig.Rig, key, model string) {
	t.Helper()
	for proxy := range r.Proxies {
		answer, err := r.Ask(t.Context(), rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: key, Body: question(model)})
		if err != nil || answer.Status != http.StatusUnauthorized {
			t.Errorf("proxy %d: the revoked key got %v, %v; want 401", proxy, answer, err)
		}
	}
}
