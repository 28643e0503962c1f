package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"

	"modelgateway/shared/platform/testkit/pgcluster"
)

// ServerVariable names the environment variable with the URL of the server to
// use. Its role must be allowed to create databases.
const ServerVariable = "MGW_TEST_POSTGRES_URL"

// server returns the URL of a database on the server from which others can be
// created, starting the server when there is none.
var server = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(ServerVariable); given != "" {
		return given, nil
	}
	// The cluster ends when this process ends, so it is not stopped here.
	cluster, err := pgcluster.Start(context.Background(), pgcluster.Config{
		Settings: map[string]string{"max_connections": "200"},
	})
	if err != nil {
		return "", err
	}
	return cluster.URL(""), nil
})

// copied is the clause that makes a clone a copy of files. From Postgres 15 on, every page of a clone otherwise goes through the log of
// the server: four times the CPU, for hundreds of clones in a run. Older servers know no other way and no clause.
var copied = sync.OnceValues(func() (string, error) {
	admin, err := server()
	if err != nil {
		return "", err
	}

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()

	var version int
	if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::integer").Scan(&version); err != nil {
		return "", fmt.Errorf("read the version: %w", err)
	}
	if version < 150_000 {
		return "", nil
	}
	return " strategy file_copy", nil
})
