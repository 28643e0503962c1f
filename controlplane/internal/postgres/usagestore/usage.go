// Package usagestore reads usage records and their totals from Postgres, keeps the state of closed months, and the minutes of traffic
// that proxies reported.
package usagestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// Usage reads usage records and roll-ups.
type Usage struct {
	db *postgres.DB
	// A list whose filters have no index compares records with them: first a few, then more, and at most maxCompared for
	// a page. The records of a key, an account or a model are in as many pages of the table, so at most maxScattered.
	firstCompared, maxCompared, maxScattered int
}

// NewUsage returns a store that uses db.
func NewUsage(db *postgres.DB) *Usage { return &Usage{db, 2_000, 200_000, 20_000} }

func (s *Usage) Get(ctx context.Context, id usage.RequestID) (usage.Record, error) {
	row, err := s.db.Queries().GetUsage(ctx, ident.UUID(id))
	if err != nil {
		return usage.Record{}, postgres.NotFoundAs("get usage", err, usage.ErrNotFound)
	}
	return toUsage(&row)
}

func (s *Usage) Count(ctx context.Context) (int64, error) {
	n, err := s.db.Queries().CountUsage(ctx)
	return n, postgres.Translate("count usage", err)
}

func (s *Usage) Sheet(ctx context.Context, version int64) (price.Sheet, error) {
	text, err := s.db.Queries().GetSheet(ctx, version)
	if err != nil {
		return price.Sheet{}, postgres.NotFoundAs("get price version", err, usage.ErrNoSheet)
	}
	var sheet price.Sheet
	if err := json.Unmarshal(text, &sheet); err != nil {
		return price.Sheet{}, fmt.Errorf("postgres: read price version %d: %w", version, err)
	}
	sheet.Version = version
	return sheet, nil
}

func accountOrNil(id account.ID) *ident.UUID {
	if id == (account.ID{}) {
		return nil
	}
	u := ident.UUID(id)
	return &u
}

func projectOrNil(id project.ID) *ident.UUID {
	if id == (project.ID{}) {
		return nil
	}
	u := ident.UUID(id)
	return &u
}

// ofProject returns the id by which the roll-ups have the usage of a project: zero for that of none.
func ofProject(id project.ID) ident.UUID {
	if id == project.None {
		return ident.UUID{}
	}
	return ident.UUID(id)
}

// accountOf returns an account, or that of a project if no account is given. ok is false if the project does not exist.
func (s *Usage) accountOf(ctx context.Context, given account.ID, of project.ID) (owner account.ID, ok bool, err error) {
	if given != (account.ID{}) || of == (project.ID{}) {
		return given, true, nil
	}
	found, err := s.db.Queries().AccountOfProject(ctx, ident.UUID(of))
	if errors.Is(err, pgx.ErrNoRows) {
		return owner, false, nil
	}
	return account.ID(found), err == nil, postgres.Translate("find project", err)
}

// EnsurePartitions creates the partitions for usage of the coming weeks that do not
// exist yet. Several replicas may run it at once.
func (s *Usage) EnsurePartitions(ctx context.Context) error {
	_, err := s.db.Queries().EnsureUsagePartitions(ctx)
	return postgres.Translate("create usage partitions", err)
}

func toUsage(row *sqlcgen.UsageRecord) (usage.Record, error) {
	r := usage.Record{
		RequestID:         usage.RequestID(row.RequestID),
		AccountID:         account.ID(row.AccountID),
		KeyID:             key.ID(row.KeyID),
		ProjectID:         (*project.ID)(row.ProjectID),
		Model:             row.Model,
		Format:            row.Format,
		Provider:          row.Provider,
		Route:             row.Route,
		Credential:        row.Credential,
		ProviderRequestID: row.ProviderRequestID,
		Status:            event.Status(row.Status),
		HTTPStatus:        int(row.HttpStatus),
		Stream:            row.Stream,
		StartedAt:         row.StartedAt,
		FinishedAt:        row.FinishedAt,
		FirstByteMS:       row.FirstByteMs,
		Rule:              row.Rule,
		Estimated:         row.Estimated,
		Doubt:             row.Doubt,
		PriceVersion:      row.PriceVersion,
		Cost:              money.Nano(row.Cost),
		Reservation:       money.Nano(row.Reservation),
		PriceMultiplier:   price.Multiplier(row.PriceMultiplier),
		VideoJob:          row.VideoJob,
		SettledAt:         row.SettledAt,
	}
	if err := json.Unmarshal(row.Usage, &r.Usage); err != nil {
		return usage.Record{}, fmt.Errorf("postgres: read usage of %s: %w", r.RequestID, err)
	}

	if row.ProviderCost != nil {
		cost := money.Nano(*row.ProviderCost)
		r.ProviderCost = &cost
	}
	if row.ProviderPriceVersion != nil {
		r.ProviderPriceVersion = *row.ProviderPriceVersion
	}

	if row.Attempts != nil {
		if err := json.Unmarshal(row.Attempts, &r.Attempts); err != nil {
			return usage.Record{}, fmt.Errorf("postgres: read attempts of %s: %w", r.RequestID, err)
		}
	}

	return r, nil
}
