package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// A control plane is killed after its transaction is committed and before it learns of the
// commit, so that it has sent no response. The repeated lease request of the proxy gets the
// stored response, and the money is granted once. The usage is delivered again and charged
// once.
//
// The test makes Postgres wait after each commit for a standby that does not exist: the
// transaction is durable, but the control plane gets no answer.
func TestChaos_cp_crash_after_commit(t *testing.T) {
	r := rig.Get(t)
	for _, table := range []string{"lease_responses", "ledger_transactions"} {
		t.Run(table, func(t *testing.T) {
			model := r.Model(t, rig.Model{Formats: []string{"chat"}})
			account := r.Account(t, rig.AccountSpec{})
			r.AwaitSettled(t)
			conn := r.Postgres(t)
			mark(t, conn, table)
			release := awaitStandby(t, conn)
			statuses := crowd(t, r, 1, account.Key, model, 0)
			killed := awaitCommit(t, conn, table)
			restarted := r.Kill(t, killed)
			release()
			status := <-statuses
			restarted()
			if status != 200 && status != 503 { // 503 if it waited too long
				t.Errorf("got %d; want 200 or 503", status)
			}
			r.AwaitSettled(t)
			checkGrantedOnce(t, conn, account)
			checkCharged(t, r, account)
			checkInvariants(t, r)
			t.Logf("%s was killed with %s committed; the client got %d", killed, table, status)
		})
	}
}

// mark makes each transaction that writes a table add the table to the application name of its
// connection, and makes its commit wait for a standby.
func mark(t *testing.T, conn *pgx.Conn, table string) {
	t.Helper()
	const function = `create or replace function chaos_mark() returns trigger language plpgsql as $$ begin
		perform set_config('application_name', 'chaos ' || tg_table_name || ' ' || current_setting('application_name'), true);
		perform set_config('synchronous_commit', 'on', true);
		return null;
	end $$`
	trigger := fmt.Sprintf(`create trigger chaos_mark after insert or update on %s for each statement execute function chaos_mark()`, table)
	for _, statement := range []string{function, trigger} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { undo(t, conn, `drop trigger chaos_mark on `+table) })
}

// undo executes statements after the test, when its context has ended.
func undo(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// awaitStandby makes commits of marked transactions wait for a standby that does not exist,
// until release is called or the test ends.
func awaitStandby(t *testing.T, conn *pgx.Conn) (release func()) {
	t.Helper()
	const reload = `select pg_reload_conf()`
	reset := []string{`alter system reset synchronous_standby_names`, `alter system reset synchronous_commit`, reload}
	t.Cleanup(func() { undo(t, conn, reset...) })
	for _, statement := range []string{`alter system set synchronous_standby_names = 'nobody'`, `alter system set synchronous_commit = 'local'`, reload} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	rig.Await(t, "the standby settings to take effect", func(ctx context.Context) error {
		var names, commit string
		err := conn.QueryRow(ctx, `select current_setting('synchronous_standby_names'), current_setting('synchronous_commit')`).Scan(&names, &commit)
		if err == nil && (names != "nobody" || commit != "local") {
			err = errors.New("they are not in effect yet")
		}
		return err
	})
	return func() { undo(t, conn, reset...) }
}

// awaitCommit waits until a transaction that wrote the table is committed and not yet
// acknowledged, and returns the control plane of the transaction.
func awaitCommit(t *testing.T, conn *pgx.Conn, table string) (part string) {
	t.Helper()
	rig.Await(t, "a commit of "+table+" to wait for the standby", func(ctx context.Context) error {
		var name string
		err := conn.QueryRow(ctx, `select application_name from pg_stat_activity where wait_event = 'SyncRep' and starts_with(application_name, $1)`,
			"chaos "+table+" ").Scan(&name)
		part = name[strings.LastIndexByte(name, ' ')+1:] // each statement adds the table again
		return err
	})
	return part
}

// checkGrantedOnce checks that the reservation of the only request of an account was granted
// once, although the request was repeated.
func checkGrantedOnce(t *testing.T, conn *pgx.Conn, account *rig.Account) {
	t.Helper()
	usage, err := account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(usage) == 0 {
		return // the request was refused, and the granted units were returned
	}
	reservation, err := money.Parse(usage[0].Reservation)
	if err != nil || len(usage) != 1 {
		t.Fatalf("got %d usage records, %v; want one", len(usage), err)
	}
	id, err := ident.Account.Parse(account.ID)
	if err != nil {
		t.Fatal(err)
	}
	var granted int64
	err = conn.QueryRow(t.Context(), `select coalesce(sum(l.granted), 0) from leases l join pools p on p.id = l.pool_id where p.kind = 1 and p.account_id = $1`,
		[16]byte(id)).Scan(&granted)
	if err != nil || granted != int64(reservation) {
		t.Errorf("%v was granted, %v; want %v, once", money.Nano(granted), err, reservation)
	}
}
