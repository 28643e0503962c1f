package pgtest

import (
	"context"
	"os"
	"sync"

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
