package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// A database that does not respond or cannot be reached gives a 503 within the time limit.
func TestUnavailableDatabaseIsReported(t *testing.T) {
	t.Parallel()
	b := startWith(t, nil, func(cfg *httpapi.Config) { cfg.ResponseTimeout = 100 * time.Millisecond })
	ask := func(what string) {
		t.Helper()
		r, err := servertest.Answered(b.API.ListAccounts(t.Context(), &adminclient.ListAccountsParams{}))
		servertest.Check(t, err)
		if p := r.Problem; r.StatusCode != http.StatusServiceUnavailable || p == nil || p.Type != "/problems/database_unavailable" {
			t.Errorf("%s: got %d %s", what, r.StatusCode, r.Body)
		}
	}
	tx, err := b.DB.Pool().Begin(t.Context())
	servertest.Check(t, err)
	_, err = tx.Exec(t.Context(), "lock table accounts")
	servertest.Check(t, err)
	ask("a lock that is never released")
	servertest.Check(t, tx.Rollback(t.Context()))

	elsewhere := b.DB.Pool().Config().ConnConfig.Copy()
	name := elsewhere.Database
	elsewhere.Database = "postgres"
	operator, err := pgx.ConnectConfig(t.Context(), elsewhere)
	servertest.Check(t, err)
	_, err = operator.Exec(t.Context(), "alter database "+pgx.Identifier{name}.Sanitize()+" with allow_connections false")
	servertest.Check(t, err)
	servertest.Check(t, operator.Close(t.Context()))
	b.DB.Pool().Reset()
	ask("no connections")
}
