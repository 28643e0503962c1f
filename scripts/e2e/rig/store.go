package rig

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Postgres connects to the database, for data that no API shows or changes.
func (r *Rig) Postgres(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.postgresURL())
	if err != nil {
		t.Fatalf("connect to Postgres: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Number runs a query that returns one number.
func (r *Rig) Number(ctx context.Context, query string, args ...any) (n int64, err error) {
	conn, err := pgx.Connect(ctx, r.postgresURL())
	if err != nil {
		return 0, fmt.Errorf("connect to Postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := conn.QueryRow(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("ask Postgres: %w", err)
	}
	return n, nil
}

// NATS connects to NATS as the operator, who may do everything.
func (r *Rig) NATS(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(r.stack.State().NATSURL)
	if err != nil {
		t.Fatalf("connect to NATS: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns the JetStream context, with the timeout of every other wait.
func (r *Rig) JetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(r.NATS(t), jetstream.WithDefaultTimeout(waitLimit))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Sum returns the sum of a metric over parts. The name includes the labels.
func (r *Rig) Sum(ctx context.Context, name string, parts ...string) (sum float64, err error) {
	urls := r.stack.State().OpsURLs
	for _, part := range parts {
		value, err := metric(ctx, urls[part], name)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// DataPlanes returns the names of all data planes.
func (r *Rig) DataPlanes() []string {
	var names []string
	for i := range r.Proxies {
		names = append(names, DataPlane(i))
	}
	return names
}

// Dir returns the directory of the data of the stack.
func (r *Rig) Dir() string { return r.dir }
