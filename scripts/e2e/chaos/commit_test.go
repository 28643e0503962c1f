package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
			release := awaitStandby(t, r, conn)
			statuses := crowd(t, r, 1, account.Key, model, 0)
			killed := awaitTransaction(t, r, conn, "wait_event = 'SyncRep' and starts_with(application_name, '"+marked+"')")
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

// marked begins the application name of a connection with a marked transaction.
const marked = "chaos "

// mark makes each transaction that writes a table add a mark to the application name of its
// connection, and makes its commit wait for a standby.
func mark(t *testing.T, conn *pgx.Conn, table string) {
	t.Helper()
	function := fmt.Sprintf(`create or replace function chaos_mark() returns trigger language plpgsql as $$ begin
		if not starts_with(current_setting('application_name'), '%[1]s') then
			perform set_config('application_name', '%[1]s' || current_setting('application_name'), true);
		end if;
		perform set_config('synchronous_commit', 'on', true);
		return null;
	end $$`, marked)
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
func awaitStandby(t *testing.T, r *rig.Rig, conn *pgx.Conn) (release func()) {
	t.Helper()
	const reload = `select pg_reload_conf()`
	reset := []string{`alter system reset synchronous_standby_names`, `alter system reset synchronous_commit`, reload}
	t.Cleanup(func() { undo(t, conn, reset...) })
	for _, statement := range []string{`alter system set synchronous_standby_names = 'nobody'`, `alter system set synchronous_commit = 'local'`, reload} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	probe := r.Postgres(t)
	rig.Await(t, "commits to wait for the standby", func(ctx context.Context) error { return commitWaits(ctx, conn, probe) })
	return func() { undo(t, conn, reset...) }
}

// commitWaits commits on a connection of its own and returns nil if the commit waits for the
// standby. The setting that a session reads does not prove it: commits wait only after the
// checkpointer has read the setting too.
func commitWaits(ctx context.Context, conn, probe *pgx.Conn) error {
	if _, err := probe.Exec(ctx, `set synchronous_commit = 'on'`); err != nil {
		return err
	}
	committed := make(chan error, 1)
	go func() {
		_, err := probe.Exec(ctx, `select pg_logical_emit_message(true, 'chaos', 'probe')`)
		committed <- err
	}()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-committed:
			return errors.Join(errors.New("a commit did not wait"), err)
		case <-poll.C:
		}
		var waits bool
		err := conn.QueryRow(ctx, `select coalesce(wait_event = 'SyncRep', false) from pg_stat_activity where pid = $1`, probe.PgConn().PID()).Scan(&waits)
		if err == nil && waits {
			_, err = conn.Exec(ctx, `select pg_cancel_backend($1)`, probe.PgConn().PID())
			return errors.Join(err, <-committed)
		}
		if err != nil {
			return errors.Join(err, <-committed)
		}
	}
}

// awaitTransaction waits until a transaction of a control plane meets a condition on
// pg_stat_activity, and returns the control plane.
func awaitTransaction(t *testing.T, r *rig.Rig, conn *pgx.Conn, condition string) (part string) {
	t.Helper()
	rig.Await(t, "a transaction of which "+condition, func(ctx context.Context) error {
		var name string
		err := conn.QueryRow(ctx, `select application_name from pg_stat_activity where application_name <> '' and `+condition).Scan(&name)
		if err != nil {
			return err
		}
		part, err = partOf(r, strings.TrimPrefix(name, marked))
		return err
	})
	return part
}

// partOf returns the control plane whose connections have a name in Postgres. Each logs its name.
func partOf(r *rig.Rig, name string) (string, error) {
	for _, part := range r.ControlPlanes() {
		log, err := os.ReadFile(filepath.Join(r.Dir(), "log", part+".log"))
		if err != nil {
			return "", err
		}
		if bytes.Contains(log, []byte(name)) {
			return part, nil
		}
	}
	return "", fmt.Errorf("no control plane has logged the name %q", name)
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
