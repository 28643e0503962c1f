package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// grants are the privileges of the runtime role, with {role} in place of its name.
//
//go:embed grant.sql
var grants string

// Grant gives the role what the control plane needs to serve, and no more: it
// cannot change the schema, change or remove what is append-only, or empty a table. It
// runs as the owner of the tables, after each migration.
func Grant(ctx context.Context, cfg Config, role string) error {
	db, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	statements := strings.ReplaceAll(grants, "{role}", pgx.Identifier{role}.Sanitize())
	if _, err := db.pool.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("postgres: grant privileges to %s: %w", role, err)
	}
	return nil
}
