package chaos

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/ident"
)

// A control plane stops in a transaction that has locked the pools of an account, and perhaps of
// others whose requests were in the same batch. The other control plane serves all of them while
// the first is still silent: Postgres ends its transactions.
func TestHaltedControlPlaneHoldsPools(t *testing.T) {
	rig.Long(t)
	// With the sessions of production. Every other heartbeat is lost while one of two control
	// planes is silent, so short sessions would end.
	r := rig.Start(t, rig.Options{ControlPlanes: 2})
	l := startLoadOn(t, r, clients)
	l.await(t, 60, answered)
	conn, account := r.Postgres(t), r.Account(t, rig.AccountSpec{})
	open := holdPools(t, conn, account)
	statuses := crowdBy(t, insist(r), 1, account.Key, l.model, 0)
	resume := r.Pause(t, awaitTransaction(t, r, conn, "wait_event = 'PgSleep' and application_name like 'controlplane %'"))
	open() // the statement ends, and the transaction stays open
	for proxy := range r.Proxies {
		l.await(t, 10, on(proxy))
	}
	if status := <-statuses; status != http.StatusOK {
		t.Errorf("the request whose pools were held got %d; want 200", status)
	}
	resume()
	for proxy := range r.Proxies {
		l.await(t, 10, on(proxy))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	checkCharged(t, r, account)
}

// insist returns a client that retries after every 503.
func insist(r *rig.Rig) func(context.Context, rig.Request) (*rig.Answer, error) {
	return func(ctx context.Context, q rig.Request) (*rig.Answer, error) {
		for {
			answer, err := r.Ask(ctx, q)
			if err != nil || answer.Status != http.StatusServiceUnavailable || ctx.Err() != nil {
				return answer, err
			}
			pause(ctx)
		}
	}
}

// holdPools makes transactions that change a pool of an account wait in the statement, with
// the row locked, until open is called. They poll, because a wait for a lock would time out.
func holdPools(t *testing.T, conn *pgx.Conn, account *rig.Account) (open func()) {
	t.Helper()
	id, err := ident.Account.Parse(account.ID)
	if err != nil {
		t.Fatal(err)
	}
	const lock = 4711
	for _, statement := range []string{
		fmt.Sprintf(`select pg_advisory_lock(%d)`, lock),
		fmt.Sprintf(`create or replace function chaos_hold() returns trigger language plpgsql as $$ begin
			while not pg_try_advisory_xact_lock_shared(%d) loop perform pg_sleep(0.005); end loop;
			return null;
		end $$`, lock),
		fmt.Sprintf(`create trigger chaos_hold after update on pools for each row when (new.account_id = '%x') execute function chaos_hold()`, id[:]),
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() { undo(t, conn, `select pg_advisory_unlock_all()`, `drop trigger chaos_hold on pools`) })
	return func() { undo(t, conn, `select pg_advisory_unlock_all()`) }
}

// Postgres and a control plane end together. Postgres returns with its own disk, so nothing is
// lost although the control plane stays silent, and the other one serves.
func TestPostgresAndAControlPlaneAreKilledTogether(t *testing.T) {
	rig.Long(t)
	l := startLoad(t, clients)
	r := l.r
	viewer, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Type: "video", Directives: "takes=1s,polls=0"})
	finish := makeVideos(t, r, viewer, model)
	l.await(t, 60, answered)
	r.Sim.AwaitMore(t, model, 6)
	before := epoch(t, r)
	for _, part := range r.ControlPlanes() {
		r.Halt(t, part)
		r.Halt(t, rig.Postgres)
		r.Resume(t, rig.Postgres)
		for proxy := range r.Proxies {
			l.await(t, 10, on(proxy))
		}
		r.Sim.AwaitMore(t, model, 6)
		r.Resume(t, part)
	}
	jobs := finish()
	asked := l.finish()
	if after := epoch(t, r); after != before {
		t.Errorf("cluster epoch %d; want %d, no loss declared", after, before)
	}
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	checkVideos(t, r, viewer, model, jobs)
}

// epoch returns the cluster epoch, which counts the declared losses.
func epoch(t *testing.T, r *rig.Rig) int64 {
	t.Helper()
	n, err := r.Number(t.Context(), `select cluster_epoch from cluster_state`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
