package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// A backup of the database, made while requests run, is restored into a new server in the order of
// docs/operations/backup.md: the control planes are stopped, the database is restored, the control
// planes start. Everything after the backup is missing then. The loss is declared, the usage since
// the backup is settled again from NATS, each request is billed once, and the ledger is sound.
func TestRestoredBackupIsServedAndSettledAgain(t *testing.T) {
	rig.Long(t)
	for name, backup := range map[string]func(d *drill) (restore func(dir string) error){
		"dump": (*drill).dump, "point in time": (*drill).archive,
	} {
		t.Run(name, func(t *testing.T) { restoreBackup(t, backup) })
	}
}

// A drill is a stack under load, and the tools of Postgres.
type drill struct {
	*load
	t   *testing.T
	bin string
	dir string
}

func restoreBackup(t *testing.T, backup func(*drill) func(string) error) {
	t.Helper()
	r := rig.Start(t, rig.Options{ControlPlanes: 2, ControlSettings: shortSessions()})
	binaries, err := pgcluster.Find()
	if err != nil {
		t.Fatal(err)
	}
	d := &drill{load: startLoadOn(t, r, clients), t: t, bin: binaries.Dir, dir: openDir(t)}
	d.await(t, 60, answered)
	restore := backup(d)
	settled := d.settled(t, 0)
	later, laterKey := d.account.NewKey(t, "") // exists only after the backup
	d.settled(t, settled+60)

	for _, part := range r.ControlPlanes() {
		r.End(t, part)
	}
	r.End(t, rig.Postgres)
	data := filepath.Join(r.Dir(), "postgres")
	if err := restore(data); err != nil {
		t.Fatal(err)
	}
	r.Resume(t, r.ControlPlanes()...)
	for proxy := range r.Proxies {
		d.await(t, 20, on(proxy))
	}
	asked := d.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, d.load, asked, credit)
	if epoch, err := r.Number(t.Context(), "select cluster_epoch from cluster_state"); epoch != 2 || err != nil {
		t.Errorf("cluster epoch %d, %v; want one declared loss", epoch, err)
	}
	checkNoFailure(t, r)
	// What operators did after the backup is gone, and has to be done again.
	if n, err := r.Number(t.Context(), "select count(*) from api_keys where id = replace($1, 'key_', '')::uuid", later); n != 0 || err != nil {
		t.Errorf("%d keys %s, %v; want none, because it is younger than the backup", n, later, err)
	}
	r.AwaitStatus(t, rig.Request{Path: "/v1/balance", Key: laterKey}, 401)
}

// openDir returns a directory that the user of the database server can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "modelgateway-drill-*") //nolint:usetesting // the parent of t.TempDir is private
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command returns a program of Postgres that connects as the owner.
func (d *drill) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.t.Context(), filepath.Join(d.bin, name), args...)
	owner, err := url.Parse(d.r.PostgresURL())
	if err != nil {
		d.t.Fatal(err)
	}
	password, _ := owner.User.Password()
	cmd.Env = append(os.Environ(), "PGHOST="+owner.Hostname(), "PGPORT="+owner.Port(), "PGUSER="+owner.User.Username(),
		"PGPASSWORD="+password, "PGDATABASE="+strings.TrimPrefix(owner.Path, "/"))
	return cmd
}

func (d *drill) run(name string, args ...string) error {
	if out, err := d.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// dump makes a logical backup. It is restored into a new server.
func (d *drill) dump() (restore func(dir string) error) {
	file := filepath.Join(d.dir, "gateway.dump")
	if err := d.run("pg_dump", "--format=custom", "--file="+file); err != nil {
		d.t.Fatal(err)
	}
	roles, err := d.command("pg_dumpall", "--roles-only").Output()
	if err != nil {
		d.t.Fatal(err)
	}
	// The role of the superuser exists in the new server.
	roles = []byte(strings.ReplaceAll(string(roles), "CREATE ROLE postgres;", ""))
	rolesFile := filepath.Join(d.dir, "roles.sql")
	if err := os.WriteFile(rolesFile, roles, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return func(dir string) error {
		if err := pgcluster.Remove(context.WithoutCancel(d.t.Context()), dir); err != nil {
			return err
		}
		d.r.Resume(d.t, rig.Postgres) // makes a new server with an empty database
		return errors.Join(
			d.run("psql", "--set=ON_ERROR_STOP=1", "--quiet", "--file="+rolesFile),
			d.run("pg_restore", "--exit-on-error", "--dbname=modelgateway", file))
	}
}

// archive makes a base backup and archives the write-ahead log up to a restore point.
func (d *drill) archive() (restore func(dir string) error) {
	base, wal := filepath.Join(d.dir, "base"), filepath.Join(d.dir, "wal")
	if err := os.Mkdir(wal, 0o755); err != nil {
		d.t.Fatal(err)
	}
	receiver := d.command("pg_receivewal", "--directory="+wal, "--synchronous", "--no-loop")
	if err := receiver.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = receiver.Process.Kill(); _ = receiver.Wait() })
	db := d.r.Postgres(d.t)
	rig.Await(d.t, "the archive to follow", func(ctx context.Context) error {
		return exists(ctx, db, "select count(*) from pg_stat_replication where application_name = 'pg_receivewal' and state = 'streaming'")
	})
	if err := d.run("pg_basebackup", "--pgdata="+base, "--checkpoint=fast"); err != nil {
		d.t.Fatal(err)
	}
	d.await(d.t, 30, answered)
	for _, statement := range []string{"select pg_create_restore_point('drill')", "select pg_switch_wal()"} {
		if _, err := db.Exec(d.t.Context(), statement); err != nil {
			d.t.Fatal(err)
		}
	}
	rig.Await(d.t, "the restore point to be archived", func(ctx context.Context) error {
		return exists(ctx, db, `select count(*) from pg_stat_replication where application_name = 'pg_receivewal'
			and flush_lsn >= pg_current_wal_lsn() - 1`)
	})
	return func(dir string) error {
		settings := "restore_command = 'cp " + wal + "/%f %p'\nrecovery_target_name = 'drill'\nrecovery_target_action = 'promote'\n"
		auto, err := os.OpenFile(filepath.Join(base, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = auto.WriteString(settings)
		if err := errors.Join(err, auto.Close(), os.WriteFile(filepath.Join(base, "recovery.signal"), nil, 0o600)); err != nil {
			return err
		}
		if target, err := os.Readlink(dir); err == nil { // the data is elsewhere
			dir = target
		}
		if out, err := exec.CommandContext(d.t.Context(), "chown", "-R", "--reference="+dir, base, wal).CombinedOutput(); err != nil {
			return fmt.Errorf("give the backup to the server: %w: %s", err, out)
		}
		if err := errors.Join(os.RemoveAll(dir), os.Rename(base, dir)); err != nil {
			return err
		}
		d.r.Resume(d.t, rig.Postgres)
		return nil
	}
}

// exists returns an error unless a query counts at least one row.
func exists(ctx context.Context, db *pgx.Conn, query string) error {
	var n int
	if err := db.QueryRow(ctx, query).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return errors.New("not yet")
	}
	return nil
}
