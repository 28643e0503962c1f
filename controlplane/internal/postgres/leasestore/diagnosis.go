package leasestore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/certfile"
	"modelgateway/shared/ident"
)

// Diagnosis reads the facts about the database.
type Diagnosis struct{ db *postgres.DB }

// NewDiagnosis returns a store that uses db.
func NewDiagnosis(db *postgres.DB) *Diagnosis { return &Diagnosis{db} }

func (s *Diagnosis) Diagnose(ctx context.Context) (facts diagnosis.Postgres, err error) {
	facts.Newest = postgres.LatestMigration
	if facts.Migration, err = s.db.SchemaVersion(ctx); err != nil {
		return facts, err
	}
	if err := s.server(ctx, &facts); err != nil {
		return facts, postgres.Translate("diagnose", err)
	}
	if facts.Migration < postgres.LatestMigration {
		return facts, nil // the tables may not exist
	}
	return facts, postgres.Translate("diagnose", s.contents(ctx, &facts))
}

// server reads the settings and the clock of the server.
func (s *Diagnosis) server(ctx context.Context, facts *diagnosis.Postgres) error {
	rows, err := s.db.Pool().
		Query(ctx, "select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit', "+
			"'synchronous_standby_names')")
	if err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}

	facts.Settings = map[string]string{}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { facts.Settings[name] = value; return nil }); err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}

	// The type of a backend of another role is hidden; its database and role are not. Postgres's own processes lack one of them.
	const about = `select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('max_connections')::int,
		(select count(*) from pg_stat_activity where datid is not null and usesysid is not null)`

	if err := s.db.Pool().
		QueryRow(ctx, about).
		Scan(&facts.Version, &facts.InRecovery, &facts.MaxConnections, &facts.Connections); err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}

	// The clock is read last, on an open connection: opening one takes longer than the query.
	var clock time.Time
	sent := time.Now()
	if err := s.db.Pool().QueryRow(ctx, "select clock_timestamp()").Scan(&clock); err != nil {
		return err //nolint:wrapcheck // Diagnose translates
	}

	facts.Skew, facts.Uncertainty = diagnosis.Skew(sent, clock, time.Now())
	return nil
}

// contents reads the state of the tables.
func (s *Diagnosis) contents(ctx context.Context, facts *diagnosis.Postgres) error {
	seconds, err := s.db.Queries().OutboxAge(ctx)
	if err != nil {
		return err
	}

	facts.OutboxAge = time.Duration(seconds * float64(time.Second))
	if facts.Quarantined, err = s.db.Queries().CountOpenQuarantined(ctx); err != nil {
		return err
	}
	bills, err := s.db.Queries().OverdueBills(ctx, time.Now().Add(-providerbill.SettleTime))
	if err != nil {
		return err
	}
	facts.OverdueBills = bills.Bills
	if facts.ControlPlanes, err = s.db.Queries().CountActiveReplicas(ctx); err != nil {
		return err
	}

	loss, err := s.db.Queries().Recovering(ctx)
	if err != nil {
		return err
	}

	facts.Recovering = loss.Recovering
	if facts.UnusableModels, err = s.db.Queries().UnusableModels(ctx); err != nil {
		return err
	}
	if facts.RefusingProviders, err = s.db.Queries().RefusingProviders(ctx); err != nil {
		return err
	}

	if err := s.limits(ctx, facts); err != nil {
		return err
	}

	providers, err := s.db.Queries().EnabledProviders(ctx)
	if err != nil {
		return err
	}

	for _, row := range providers {
		facts.Providers = append(facts.Providers, diagnosis.Provider{ID: row.ID, BaseURL: row.BaseUrl})
		if expires := certfile.FirstExpiry(row.Ca); !expires.IsZero() {
			facts.Certificates = append(facts.Certificates, diagnosis.Certificate{Provider: row.ID, Expires: expires})
		}
	}

	certificates, err := s.db.Queries().ClientCertificates(ctx)
	if err != nil {
		return err
	}

	for _, row := range certificates {
		facts.Certificates = append(facts.Certificates, diagnosis.Certificate{
			Provider: row.ProviderID, Credential: row.Name, Expires: row.ExpiresAt,
		})
	}

	unpriced, err := s.db.Queries().UnpricedTools(ctx)
	if err != nil {
		return err
	}

	for _, row := range unpriced {
		facts.UnpricedTools = append(facts.UnpricedTools, diagnosis.UnpricedTools{Model: row.Model, Calls: row.Calls})
	}

	sealed, err := s.db.Queries().CountSecretsByMasterKey(ctx)
	if err != nil {
		return err
	}

	facts.SecretsByMasterKey = map[string]int64{}
	for _, row := range sealed {
		facts.SecretsByMasterKey[row.KeyID] = row.Secrets
	}

	return nil
}

// limits reads the limits and keys that let no request through.
func (s *Diagnosis) limits(ctx context.Context, facts *diagnosis.Postgres) error {
	useless, err := s.db.Queries().UselessLimits(ctx, diagnosis.MaxUselessLimits)
	if err != nil {
		return err
	}
	for _, row := range useless {
		kind := map[string]ident.Kind{"key": ident.Key, "limit": ident.Limit, "account": ident.Account}[row.Kind]
		facts.UselessLimits = append(facts.UselessLimits, diagnosis.UselessLimit{
			ID:        kind.Format(row.ID),
			Problem:   row.Problem,
			OfKey:     kind == ident.Key,
			OfAccount: kind == ident.Account,
		})
	}
	return nil
}
