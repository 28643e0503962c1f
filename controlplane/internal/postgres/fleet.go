package postgres

import (
	"context"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease"
)

// FleetStore reads the sessions of proxies; it implements fleet.ChangeStore.
type FleetStore struct{ *DB }

// Fleet implements fleet.Store.
func (s FleetStore) Fleet(ctx context.Context) (fleet.Fleet, error) {
	rows, err := s.q.ListDataplanes(ctx)
	if err != nil {
		return fleet.Fleet{}, Translate("list dataplanes", err)
	}
	f := fleet.Fleet{Dataplanes: make([]fleet.Dataplane, len(rows))}
	for i := range rows {
		f.Dataplanes[i] = toDataplane(&rows[i])
	}
	if f.Rev, err = s.q.LatestChange(ctx); err != nil {
		return fleet.Fleet{}, Translate("read latest change", err)
	}
	if f.Refused, err = refusedCredentials(ctx, s.q); err != nil {
		return fleet.Fleet{}, Translate("read refused credentials", err)
	}
	f.CatalogRev, err = readHead(ctx, s.q)
	return f, Translate("read catalog head", err)
}

// LastChange implements fleet.ChangeStore.
func (s FleetStore) LastChange(ctx context.Context) (*lease.Change, error) {
	rev, err := s.q.LatestChange(ctx)
	if err != nil {
		return nil, Translate("read latest change", err)
	}
	rows, err := s.q.ChangesAfter(ctx, sqlcgen.ChangesAfterParams{Rev: rev - 1, MaxRows: 1})
	if err != nil || len(rows) == 0 {
		return nil, Translate("read latest change", err)
	}
	last := toChange(rows[0])
	return &last, nil
}

func toDataplane(row *sqlcgen.ListDataplanesRow) fleet.Dataplane {
	state := fleet.Fenced
	if row.State == 1 {
		state = fleet.Active
		if row.Expired {
			state = fleet.Expired
		}
	}
	return fleet.Dataplane{
		Session: row.ID, Name: row.Name, BootID: row.BootID, Build: row.Build, State: state, Draining: row.Draining,
		ValidUntil: row.ValidUntil, RegisteredAt: row.RegisteredAt, RenewedAt: row.RenewedAt,
		AppliedRev: row.AppliedRev, CatalogRev: row.CatalogRev,
		Running: row.Running, SpoolUsed: row.SpoolUsed, SpoolCapacity: row.Capacity,
	}
}
