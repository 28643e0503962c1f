package leasestore

import (
	"context"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/wire"
)

// Fleet reads the sessions of proxies.
type Fleet struct{ db *postgres.DB }

// NewFleet returns a store that uses db.
func NewFleet(db *postgres.DB) *Fleet { return &Fleet{db} }

func (s *Fleet) Fleet(ctx context.Context) (fleet.Fleet, error) {
	rows, err := s.db.Queries().ListSessions(ctx)
	if err != nil {
		return fleet.Fleet{}, postgres.Translate("list proxy sessions", err)
	}

	f := fleet.Fleet{Proxies: make([]fleet.Proxy, len(rows))}
	for i := range rows {
		f.Proxies[i] = toProxy(&rows[i])
	}

	if f.Rev, err = s.db.Queries().LatestChange(ctx); err != nil {
		return fleet.Fleet{}, postgres.Translate("read latest key change", err)
	}
	if f.RefusedCredentials, err = refusedCredentials(ctx, s.db.Queries()); err != nil {
		return fleet.Fleet{}, postgres.Translate("read refused credentials", err)
	}

	loss, err := s.db.Queries().Recovering(ctx)
	if err != nil {
		return fleet.Fleet{}, postgres.Translate("read the last loss of commits", err)
	}

	f.Recovering, f.LostAt = loss.Recovering, loss.LostAt
	f.CatalogRev, err = catalogstore.ReadHead(ctx, s.db.Queries())
	return f, postgres.Translate("read catalog head", err)
}

func (s *Fleet) LastChange(ctx context.Context) (*wire.KeyChange, error) {
	rev, err := s.db.Queries().LatestChange(ctx)
	if err != nil {
		return nil, postgres.Translate("read latest key change", err)
	}
	rows, err := s.db.Queries().ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Revision: rev - 1, MaxRows: 1})
	if err != nil || len(rows) == 0 {
		return nil, postgres.Translate("read latest key change", err)
	}
	last := changestore.KeyChangeOf(rows[0])
	return &last, nil
}

func toProxy(row *sqlcgen.ListSessionsRow) fleet.Proxy {
	state := fleet.Fenced
	switch {
	case row.State == 1 && row.Expired:
		state = fleet.Expired
	case row.State == 1:
		state = fleet.Active
	case row.State == 3:
		state = fleet.Closed
	}

	return fleet.Proxy{
		Session:       row.ID,
		Name:          row.Name,
		BootID:        row.BootID,
		Build:         row.Build,
		State:         state,
		Draining:      row.Draining,
		ValidUntil:    row.ValidUntil,
		RegisteredAt:  row.RegisteredAt,
		RenewedAt:     row.LastHeartbeatAt,
		AppliedRev:    row.AppliedRevision,
		CatalogRev:    row.CatalogRevision,
		Running:       row.Running,
		SpoolUsed:     row.SpoolUsed,
		SpoolCapacity: row.SpoolCapacity,
		Left:          row.Unsettled,
	}
}

// refusedCredentials reads the credentials that some proxy reports as refused.
func refusedCredentials(ctx context.Context, q *sqlcgen.Queries) ([]fleet.RefusedCredential, error) {
	rows, err := q.RefusedCredentials(ctx)
	found := make([]fleet.RefusedCredential, len(rows))
	for i, r := range rows {
		found[i] = fleet.RefusedCredential{
			Provider:     r.ProviderID,
			Credential:   r.Name,
			CredentialID: r.ID,
			Reason:       r.RefusedReason,
			Since:        r.Since,
			Proxies:      r.Proxies,
		}
	}
	return found, err
}
