package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/diagnosis"
)

// DiagnosisStore looks into the database; it implements diagnosis.Database.
type DiagnosisStore struct{ *DB }

// Diagnose implements diagnosis.Database.
func (s DiagnosisStore) Diagnose(ctx context.Context) (facts diagnosis.Postgres, err error) {
	facts.Newest = newest
	if facts.Migration, err = s.schemaVersion(ctx); err != nil {
		return facts, err
	}
	if err := s.server(ctx, &facts); err != nil {
		return facts, Translate("diagnose", err)
	}
	if facts.Migration < newest {
		return facts, nil // the tables may not be there
	}
	return facts, Translate("diagnose", s.contents(ctx, &facts))
}

// server reads what is about the server.
func (s DiagnosisStore) server(ctx context.Context, facts *diagnosis.Postgres) error {
	rows, err := s.pool.Query(ctx, "select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit')")
	if err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}
	facts.Settings = map[string]string{}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { facts.Settings[name] = value; return nil }); err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}
	const about = `select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('max_connections')::int,
		(select count(*) from pg_stat_activity where backend_type = 'client backend')`
	if err := s.pool.QueryRow(ctx, about).Scan(&facts.Version, &facts.InRecovery, &facts.MaxConnections, &facts.Connections); err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}
	// Last, when there is a connection: opening one takes longer than the question.
	var clock time.Time
	sent := time.Now()
	if err := s.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&clock); err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}
	facts.Skew, facts.Doubt = diagnosis.Skew(sent, clock, time.Now())
	return nil
}

// contents reads what is in the tables.
func (s DiagnosisStore) contents(ctx context.Context, facts *diagnosis.Postgres) error {
	seconds, err := s.q.OutboxAge(ctx)
	if err != nil {
		return err
	}
	facts.OutboxAge = time.Duration(seconds * float64(time.Second))
	if facts.Quarantined, err = s.q.CountOpenQuarantined(ctx); err != nil {
		return err
	}
	sealed, err := s.q.CountSealed(ctx)
	if err != nil {
		return err
	}
	facts.SealedWith = map[string]int64{}
	for _, row := range sealed {
		facts.SealedWith[row.KeyID] = row.Secrets
	}
	return nil
}
