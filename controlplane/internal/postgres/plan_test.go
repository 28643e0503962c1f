package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// Queries about one account or key do not scan a table: scans are disabled where
// possible, so that a scan means that there is no suitable index.
func TestAccountQueriesUseIndexes(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	c, newer := w.Customer(100, storetest.Unlimited, 5), ident.New()
	tests := map[string]func(q *sqlcgen.Queries) error{
		"load keys": func(q *sqlcgen.Queries) error { _, err := q.LoadKeys(t.Context(), [][]byte{c.Hash[:]}); return err },
		"changed keys": func(q *sqlcgen.Queries) error {
			rows, err := q.HashesOfChangedKeys(t.Context(), sqlcgen.HashesOfChangedKeysParams{RowLimit: 10})
			if len(rows) != 1 {
				t.Errorf("got %d hashes; want the key's", len(rows))
			}
			return err
		},
		"balance for a proxy": func(q *sqlcgen.Queries) error {
			_, err := q.ReadBalance(t.Context(), sqlcgen.ReadBalanceParams{AccountID: c.Account, KeyID: c.Key})
			return err
		},
		"balances": func(q *sqlcgen.Queries) error {
			_, err := q.AccountBalances(t.Context(), []ident.UUID{c.Account})
			return err
		},
		"spending of keys": func(q *sqlcgen.Queries) error { _, err := q.KeySpending(t.Context(), []ident.UUID{c.Key}); return err },
		"last use of keys": func(q *sqlcgen.Queries) error {
			_, err := q.LastRequestsOfKeys(t.Context(), []ident.UUID{c.Key})
			return err
		},
		"pools of events": func(q *sqlcgen.Queries) error {
			_, err := q.PoolsOfEvents(t.Context(), []ident.UUID{c.Key})
			return err
		},
		"pool of an account": func(q *sqlcgen.Queries) error {
			_, err := q.LockAccountPool(t.Context(), sqlcgen.LockAccountPoolParams{AccountID: c.Account, Kind: int16(wire.Slots)})
			return err
		},
		"credits of an account": func(q *sqlcgen.Queries) error { _, err := q.CreditPool(t.Context(), c.Account); return err },
		"expiry of an account":  func(q *sqlcgen.Queries) error { _, err := q.ExpiryDue(t.Context(), c.Account); return err },
		"pool of a key": func(q *sqlcgen.Queries) error {
			_, err := q.LockKeyPool(t.Context(), sqlcgen.LockKeyPoolParams{KeyID: c.Key, Kind: int16(wire.Limit)})
			return err
		},
		"alerts": func(q *sqlcgen.Queries) error { _, err := q.AccountAlerts(t.Context(), c.Account); return err },
		"pools with alerts": func(q *sqlcgen.Queries) error {
			ids, err := q.LockAlertPools(t.Context(), c.Account)
			if len(ids) != 2 {
				t.Errorf("got %v; want the balance's and the key's", ids)
			}
			return err
		},
		"unbilled video jobs": func(q *sqlcgen.Queries) error {
			rows, err := q.UnbilledVideoJobs(t.Context(), sqlcgen.UnbilledVideoJobsParams{
				ID: ident.New(), AccountID: c.Account, KeyID: &c.Key, Windows: []int64{limit.Pool(7, 1)}, SettlingSeconds: 600,
			})
			if len(rows) != 2 {
				t.Errorf("got %d pools; want the key's and the balance's", len(rows))
			}
			return err
		},
		"limits of a key": func(q *sqlcgen.Queries) error {
			_, err := q.LimitsOfKey(t.Context(), sqlcgen.LimitsOfKeyParams{AccountID: c.Account, ProjectID: ident.New(), KeyID: c.Key})
			return err
		},
		"new keys with their pools": func(q *sqlcgen.Queries) error {
			made, err := q.InsertKeys(t.Context(), sqlcgen.InsertKeysParams{
				Revision: 1, Ids: []ident.UUID{newer}, AccountIds: []ident.UUID{c.Account}, ExternalIds: []string{"newer"}, Names: []string{"newer"},
				LookupHashes: [][]byte{make([]byte, 32)}, PepperIds: []string{""}, Ciphertexts: [][]byte{nil}, CipherKeyIds: []string{""},
				Hints: []string{""}, SpendLimits: []int64{-1},
				Settings: [][]byte{[]byte(`{"description": "", "metadata": {}, "paused": false, "models": [], "networks": []}`)},
			})
			if err != nil || len(made) != 1 {
				t.Fatalf("got %d keys, %v; want one", len(made), err)
			}
			return q.InsertLimitPools(t.Context(), []ident.UUID{newer})
		},
	}
	for name, ask := range tests {
		t.Run(name, func(t *testing.T) {
			tx, err := w.SQL.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			for _, prepare := range []string{"set local enable_seqscan = off", "set local plan_cache_mode = force_generic_plan"} {
				if _, err := tx.Exec(t.Context(), prepare); err != nil {
					t.Fatal(err)
				}
			}
			before := wholeReads(t, tx)
			if err := ask(sqlcgen.New(tx)); err != nil {
				t.Fatal(err)
			}
			if n := wholeReads(t, tx) - before; n != 0 {
				t.Errorf("%d tables were read whole; want none", n)
			}
		})
	}
}

// Revocations are kept for ever: the deletion of old changes does not read them each time.
func TestDeletionOfOldChangesReadsNoRevocations(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	c := w.Customer(100, storetest.Unlimited, 5)
	w.Exec(`insert into key_changes (revision, previous_revision, kind, key_id, account_id, created_at)
		select 100 + n, 99 + n, 'key_revoked', $1, $2, clock_timestamp() - interval '9 days' from generate_series(1, 5000) n`, c.Key, c.Account)
	w.Exec(`insert into key_changes (revision, previous_revision, kind, key_id, account_id, created_at)
		select 6000 + n, 5999 + n, 'key_updated', $1, $2, clock_timestamp() - interval '9 days' from generate_series(1, 3) n`, c.Key, c.Account)
	w.Exec("analyze key_changes")
	tx, err := w.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	deleted, err := sqlcgen.New(tx).RemoveKeyChanges(t.Context(), sqlcgen.RemoveKeyChangesParams{AgeSeconds: 3600, MaxRows: 100})
	if err != nil || deleted != 2 {
		t.Fatalf("deleted %d, %v; want 2", deleted, err)
	}
	var read int
	if err := tx.QueryRow(t.Context(), "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'key_changes'").Scan(&read); err != nil {
		t.Fatal(err)
	}
	if read > 100 {
		t.Errorf("%d rows were read to delete %d", read, deleted)
	}
}

// wholeReads counts the scans by this connection of tables that grow with the number of
// accounts.
func wholeReads(t *testing.T, tx pgx.Tx) (n int) {
	t.Helper()
	const query = `select coalesce(sum(seq_scan), 0) from pg_stat_xact_user_tables
		where relname in ('accounts', 'api_keys', 'key_hashes', 'leases', 'limits', 'pools', 'video_jobs') or relname like 'usage_records%'`
	if err := tx.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
