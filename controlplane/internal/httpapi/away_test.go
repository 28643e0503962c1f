package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi"
)

// A database that does not respond or cannot be reached gives a 503 within the time limit.
func TestUnavailableDatabaseIsReported(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, func(cfg *httpapi.Config) { cfg.ResponseTimeout = 100 * time.Millisecond })
	ask := func(what string) {
		t.Helper()
		r, err := answered(b.api.ListAccounts(t.Context(), &adminclient.ListAccountsParams{}))
		check(t, err)
		if p := r.Problem; r.StatusCode != http.StatusServiceUnavailable || p == nil || p.Type != "/problems/database_unavailable" {
			t.Errorf("%s: got %d %s", what, r.StatusCode, r.Body)
		}
	}
	tx, err := b.db.Pool().Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), "lock table accounts")
	check(t, err)
	ask("a lock that is never released")
	check(t, tx.Rollback(t.Context()))

	elsewhere := b.db.Pool().Config().ConnConfig.Copy()
	name := elsewhere.Database
	elsewhere.Database = "postgres"
	operator, err := pgx.ConnectConfig(t.Context(), elsewhere)
	check(t, err)
	_, err = operator.Exec(t.Context(), "alter database "+pgx.Identifier{name}.Sanitize()+" with allow_connections false")
	check(t, err)
	check(t, operator.Close(t.Context()))
	b.db.Pool().Reset()
	ask("no connections")
}
