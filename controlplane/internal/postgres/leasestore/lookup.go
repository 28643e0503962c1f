package leasestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/explain"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

func (l *Leases) LoadKeys(ctx context.Context, hashes []apikey.Hash) (map[apikey.Hash]*wire.LoadKeyResponse, error) {
	loaded, _, err := l.loadKeys(ctx, hashes)
	return loaded, err
}

// loadKeys is LoadKeys, and returns the cluster epoch of the records.
func (l *Leases) loadKeys(
	ctx context.Context,
	hashes []apikey.Hash,
) (loaded map[apikey.Hash]*wire.LoadKeyResponse, epoch int64, err error) {
	lookups := make([][]byte, len(hashes))
	for i := range hashes {
		lookups[i] = hashes[i][:]
	}

	rows, err := l.db.Queries().LoadKeys(ctx, lookups)
	if err != nil {
		return nil, 0, postgres.Translate("load keys", err)
	}

	loaded = make(map[apikey.Hash]*wire.LoadKeyResponse, len(rows))
	var errs []error
	for i := range rows {
		epoch = rows[i].ClusterEpoch
		reply := &wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: rows[i].Revision}
		if reply.Record = toKeyRecord(&rows[i]); reply.Record != nil {
			err := errors.Join(
				setMultipliers(reply.Record, rows[i].PriceMultiplier, rows[i].ModelMultipliers),
				setRules(reply.Record, rows[i].ExpiresAt, rows[i].Paused, rows[i].Models, rows[i].Networks),
				setLimits(reply.Record, rows[i].Limits),
			)
			if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		loaded[apikey.Hash(rows[i].LookupHash)] = reply
	}

	return loaded, epoch, errors.Join(errs...)
}

// toKeyRecord returns a record without multipliers and rules; nil for an unknown key.
func toKeyRecord(row *sqlcgen.LoadKeysRow) *wire.KeyRecord {
	if row.KeyID == nil || row.AccountID == nil || row.BalancePool == nil || row.SlotsPool == nil {
		return nil
	}
	return &wire.KeyRecord{
		KeyID:            ident.Key.Format(*row.KeyID),
		AccountID:        ident.Account.Format(*row.AccountID),
		ProjectID:        projectName(row.ProjectID),
		Active:           row.Active,
		BalancePool:      wire.PoolID(*row.BalancePool),
		SlotsPool:        wire.PoolID(*row.SlotsPool),
		KeySlotsPool:     wire.PoolID(row.KeySlotsPool),
		LimitPool:        wire.PoolID(row.LimitPool),
		MaxConcurrent:    row.MaxConcurrentRequests,
		KeyMaxConcurrent: row.KeyMaxConcurrentRequests,
		IncludeCost:      row.IncludeCost,
		SecretUntilMS:    row.SecretUntilMs,
	}
}

// projectName returns the text form of the id of a project; empty for none.
func projectName(id *ident.UUID) string {
	if id == nil {
		return ""
	}
	return ident.Project.Format(*id)
}

// setMultipliers sets the price multipliers of a key record. It omits an account
// multiplier of one, which means list prices, and an empty map.
func setMultipliers(record *wire.KeyRecord, own int64, models []byte) error {
	if m := price.Multiplier(own); m != price.One {
		record.PriceMultiplier = m
	}
	if err := json.Unmarshal(models, &record.ModelMultipliers); err != nil {
		return fmt.Errorf("postgres: read the multipliers of %s: %w", record.AccountID, err)
	}
	if len(record.ModelMultipliers) == 0 {
		record.ModelMultipliers = nil
	}
	return nil
}

// KeyRules reads the rules of a key from its row.
func KeyRules(expires *time.Time, paused bool, models, networks []byte) (wire.KeyRules, error) {
	rules := wire.KeyRules{Paused: paused}
	if expires != nil {
		rules.ExpiresMS = expires.UnixMilli()
	}
	if err := errors.Join(json.Unmarshal(models, &rules.Models), json.Unmarshal(networks, &rules.Networks)); err != nil {
		return wire.KeyRules{}, fmt.Errorf("postgres: read the rules of a key: %w", err)
	}
	if len(rules.Models) == 0 {
		rules.Models = nil
	}
	if len(rules.Networks) == 0 {
		rules.Networks = nil
	}
	return rules, nil
}

// setRules sets the rules of a key record.
func setRules(record *wire.KeyRecord, expires *time.Time, paused bool, models, networks []byte) (err error) {
	record.Rules, err = KeyRules(expires, paused, models, networks)
	return err
}

func (l *Leases) Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	account, err := ident.Account.Parse(r.AccountID)
	if err != nil {
		return nil, err
	}

	key, err := ident.Key.Parse(r.KeyID)
	if err != nil {
		return nil, err
	}

	row, err := l.db.Queries().ReadBalance(ctx, sqlcgen.ReadBalanceParams{AccountID: account, KeyID: key})
	if err != nil {
		return nil, postgres.Translate("read balance", err)
	}

	return &wire.BalanceResponse{
		V:           wire.Version,
		Status:      wire.Done,
		BalancePool: wire.PoolID(row.BalancePool),
		LimitPool:   wire.PoolID(row.LimitPool),
		Balance:     row.Balance,
		Reserved:    row.Reserved,
		Limited:     row.Limited,
		Limit:       row.KeyLimit,
		KeySpent:    row.KeySpent,
		KeyReserved: row.KeyReserved,
	}, nil
}

// Windows returns the windows of limits in which a request would count now.
func (l *Leases) Windows(ctx context.Context, numbers []int64) ([]explain.Window, error) {
	rows, err := l.db.Queries().ExplainedWindows(ctx, numbers)
	if err != nil {
		return nil, postgres.Translate("read windows", err)
	}
	windows := make([]explain.Window, len(rows))
	for i, r := range rows {
		windows[i] = explain.Window{
			Limit:  r.Number,
			Pool:   wire.PoolID(r.ID),
			Amount: r.Amount,
			EndMS:  r.EndMs,
		}
	}
	return windows, nil
}

func (l *Leases) KeyRecord(ctx context.Context, ofAccount *account.ID, ofKey *key.ID) (record *wire.KeyRecord, suspended bool, err error) {
	row, err := l.db.Queries().
		ReadKeyRecord(ctx, sqlcgen.ReadKeyRecordParams{AccountID: (*ident.UUID)(ofAccount), KeyID: (*ident.UUID)(ofKey)})
	switch err = postgres.Translate("read key record", err); {
	case errors.Is(err, postgres.ErrNotFound) && ofKey != nil:
		return nil, false, key.ErrNotFound
	case errors.Is(err, postgres.ErrNotFound):
		return nil, false, account.ErrNotFound
	case err != nil:
		return nil, false, err
	}

	record = &wire.KeyRecord{
		AccountID:        ident.Account.Format(row.AccountID),
		ProjectID:        projectName(row.ProjectID),
		Active:           row.Active,
		BalancePool:      wire.PoolID(row.BalancePool),
		SlotsPool:        wire.PoolID(row.SlotsPool),
		KeySlotsPool:     wire.PoolID(row.KeySlotsPool),
		LimitPool:        wire.PoolID(row.LimitPool),
		MaxConcurrent:    row.MaxConcurrentRequests,
		KeyMaxConcurrent: row.KeyMaxConcurrentRequests,
		IncludeCost:      row.IncludeCost,
	}
	if row.KeyID != nil {
		record.KeyID = ident.Key.Format(*row.KeyID)
	}

	return record, row.Suspended, errors.Join(
		setMultipliers(record, row.PriceMultiplier, row.ModelMultipliers),
		setRules(record, row.ExpiresAt, row.Paused, row.Models, row.Networks),
		setLimits(record, row.Limits),
	)
}
