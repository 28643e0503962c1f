package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"

	"modelgateway/scripts/testkit/pgcluster"
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

// versions has the version of each server by its URL.
var versions sync.Map

// serverVersion returns the version of a server as the setting server_version_num has it, such as 150007.
func serverVersion(url string) (int, error) {
	if known, ok := versions.Load(url); ok {
		return known.(int), nil
	}

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()

	var version int
	if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::integer").Scan(&version); err != nil {
		return 0, fmt.Errorf("read the version: %w", err)
	}

	versions.Store(url, version)
	return version, nil
}
