package accountstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Keys keeps API keys.
type Keys struct{ db *postgres.DB }

// NewKeys returns a store that uses db.
func NewKeys(db *postgres.DB) *Keys { return &Keys{db} }

func (s *Keys) Create(ctx context.Context, records []key.Record) (made []key.Record, err error) {
	err = s.db.InRevision(ctx, "create keys", func(q *sqlcgen.Queries, rev int64) error {
		if made, err = createKeys(ctx, q, rev, records); err != nil {
			return err
		}
		return changestore.InsertEvents(ctx, q, createdEvents(rev, made)...)
	})
	return made, unknownOwner(err)
}

// unknownOwner returns the error of a key whose account or project does not exist, and any other error as it is. The key of
// another account's project violates the same constraint.
func unknownOwner(err error) error {
	switch {
	case postgres.Violates(err, "api_keys_account_id_fkey"):
		return account.ErrNotFound
	case postgres.Violates(err, "api_keys_project_fkey"):
		return project.ErrNotFound
	default:
		return err
	}
}

// checkProjects refuses keys in projects that were deleted.
func checkProjects(ctx context.Context, q *sqlcgen.Queries, keys ...ident.UUID) error {
	deleted, err := q.DeletedProjectOfKeys(ctx, keys)
	if err != nil {
		return fmt.Errorf("read projects: %w", err)
	}
	if deleted {
		return project.ErrNotFound
	}
	return nil
}

func createKeys(ctx context.Context, q *sqlcgen.Queries, rev int64, records []key.Record) ([]key.Record, error) {
	created, err := insertKeys(ctx, q, rev, records)
	if err != nil {
		return nil, err
	}

	made, keys := make([]key.Record, len(records)), make([]key.Key, len(records))
	var existing []*key.Key // those that can have been used
	for i := range records {
		row := created[ident.UUID(records[i].Key.ID)]
		if row == nil {
			if row, err = existingKey(ctx, q, &records[i]); err != nil {
				return nil, err
			}
			existing = append(existing, &keys[i])
		}
		made[i].Secret = key.Secret{Hash: apikey.Hash(row.LookupHash), Sealed: toSealed(row)}
		if keys[i], err = toKey(row); err != nil {
			return nil, err
		}
	}

	if err := errors.Join(fillSpending(ctx, q, keys), fillLastUse(ctx, q, existing)); err != nil {
		return nil, err
	}

	for i := range made {
		made[i].Key = keys[i]
	}

	return made, nil
}

// insertKeys inserts those keys whose id, hash and external id do not exist yet, with their limits and entries in the audit
// log. The number of its statements does not depend on the number of keys of an account.
func insertKeys(ctx context.Context, q *sqlcgen.Queries, rev int64, records []key.Record) (map[ident.UUID]*sqlcgen.ApiKey, error) {
	rows, err := q.InsertKeys(ctx, newRows(rev, records))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	created, ids := make(map[ident.UUID]*sqlcgen.ApiKey, len(rows)), make([]ident.UUID, len(rows))
	objects, afters := make([]fmt.Stringer, len(rows)), make([]any, len(rows))
	for i := range rows {
		row := &rows[i]
		created[row.ID], ids[i] = row, row.ID
		after, err := toKey(row)
		if err != nil {
			return nil, err
		}
		objects[i], afters[i] = key.ID(row.ID), after
	}
	if err := checkProjects(ctx, q, ids...); err != nil {
		return nil, err
	}
	if err := q.InsertLimitPools(ctx, ids); err != nil {
		return nil, err
	}
	if err := addSlots(ctx, q, rows, ids); err != nil {
		return nil, err
	}
	return created, changestore.InsertAuditOfCreated(ctx, q, "key.create", objects, afters)
}

func newRows(rev int64, records []key.Record) sqlcgen.InsertKeysParams {
	rows := sqlcgen.InsertKeysParams{Revision: rev}
	for i := range records {
		k, secret := &records[i].Key, &records[i].Secret
		rows.Ids = append(rows.Ids, ident.UUID(k.ID))
		rows.AccountIds = append(rows.AccountIds, ident.UUID(k.AccountID))
		rows.ExternalIds = append(rows.ExternalIds, k.ExternalID)
		rows.Names = append(rows.Names, k.Name)
		rows.LookupHashes = append(rows.LookupHashes, secret.Hash[:])
		rows.PepperIds = append(rows.PepperIds, secret.Pepper)
		rows.Ciphertexts = append(rows.Ciphertexts, secret.Sealed.Text)
		rows.CipherKeyIds = append(rows.CipherKeyIds, secret.Sealed.KeyID)
		rows.Hints = append(rows.Hints, k.Hint)
		limit := int64(unlimited)
		if k.SpendLimit != nil {
			limit = int64(*k.SpendLimit)
		}
		rows.SpendLimits = append(rows.SpendLimits, limit)
		rows.Settings = append(rows.Settings, encodeSettings(&k.Settings))
	}

	return rows
}

// unlimited stands for no limit among the limits of InsertKeys.
const unlimited = -1

func (s *Keys) Import(ctx context.Context, records []key.Record) (made []key.Record, announce *wire.KeyChange, err error) {
	err = s.db.InRevision(ctx, "import keys", func(q *sqlcgen.Queries, rev int64) error {
		announce = nil
		if made, err = createKeys(ctx, q, rev, records); err != nil {
			return err
		}
		if !slices.ContainsFunc(made, func(r key.Record) bool { return r.Key.Rev == rev }) {
			return nil
		}
		c, err := changestore.InsertKeyChange(ctx, q, rev, wire.KeysAdded, ident.UUID(made[0].Key.AccountID), nil)
		announce = &c
		return err
	})
	return made, announce, unknownOwner(err)
}

// existingKey returns the key that an insert conflicts with: the same key by its
// id, or a key of the same account with the same hash.
func existingKey(ctx context.Context, q *sqlcgen.Queries, r *key.Record) (*sqlcgen.ApiKey, error) {
	row, err := q.GetKey(ctx, ident.UUID(r.Key.ID))
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return &row, err
	}
	row, err = q.GetKeyByHash(ctx, r.Secret.Hash[:])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, key.ErrExternalIDTaken
	case err == nil && account.ID(row.AccountID) != r.Key.AccountID:
		return nil, key.ErrHashTaken
	case err == nil:
		err = recordPepper(ctx, q, &row, r)
	}
	return &row, err
}

// recordPepper writes the pepper of a key's hash if it was not known. Proxies do
// not depend on it, so it needs no revision.
func recordPepper(ctx context.Context, q *sqlcgen.Queries, row *sqlcgen.ApiKey, r *key.Record) error {
	if row.PepperID != nil || r.Secret.Pepper == "" || !bytes.Equal(row.LookupHash, r.Secret.Hash[:]) {
		return nil
	}
	if err := q.SetPepper(ctx, sqlcgen.SetPepperParams{ID: row.ID, Pepper: r.Secret.Pepper}); err != nil {
		return fmt.Errorf("write pepper: %w", err)
	}
	return changestore.InsertAudit(ctx, q, "key.pepper", key.ID(row.ID), nil, map[string]string{"pepper": r.Secret.Pepper})
}

func (s *Keys) Get(ctx context.Context, id key.ID) (key.Key, error) {
	row, err := s.db.Queries().GetKey(ctx, ident.UUID(id))
	if err != nil {
		return key.Key{}, postgres.NotFoundAs("get key", err, key.ErrNotFound)
	}
	k, err := withKeyFigures(ctx, s.db.Queries(), &row)
	return k, postgres.Translate("get key", err)
}

func (s *Keys) BySecret(ctx context.Context, hash apikey.Hash, moment time.Time) (key.ID, error) {
	row, err := s.db.Queries().KeyOfSecret(ctx, sqlcgen.KeyOfSecretParams{LookupHash: hash[:], Moment: moment})
	if err != nil {
		return key.ID{}, postgres.NotFoundAs("get key by secret", err, key.ErrNotFound)
	}
	if !row.Valid {
		return key.ID{}, key.ErrSecretEnded
	}
	return key.ID(row.ID), nil
}

func (s *Keys) List(ctx context.Context, query key.Query) ([]key.Key, error) {
	params := sqlcgen.ListKeysParams{
		AccountID:  ident.UUID(query.AccountID),
		ExternalID: query.ExternalID,
		Status:     string(query.Status),
		After:      ident.UUID(query.After),
		RowLimit:   int32(query.Limit),
	}
	if query.ProjectID != (project.ID{}) {
		params.ProjectID = (*ident.UUID)(&query.ProjectID)
	}
	rows, err := s.db.Queries().ListKeys(ctx, params)
	if err != nil {
		return nil, postgres.Translate("list keys", err)
	}
	keys := make([]key.Key, len(rows))
	for i := range rows {
		if keys[i], err = toKey(&rows[i]); err != nil {
			return nil, err
		}
	}
	return keys, postgres.Translate("list keys", fillKeyFigures(ctx, s.db.Queries(), keys))
}

func (s *Keys) Update(
	ctx context.Context, id key.ID, decide func(key.Key) (key.Update, error),
) (after key.Key, announce *wire.KeyChange, err error) {
	err = s.db.InRevision(ctx, "update key", func(q *sqlcgen.Queries, rev int64) error {
		announce = nil
		row, err := q.LockKey(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock key", err, key.ErrNotFound)
		}

		before, err := toKey(&row)
		if err != nil {
			return err
		}
		update, err := decide(before)
		if err != nil {
			return err
		}

		if update.Unchanged {
			after, err = withKeyFigures(ctx, q, &row)
			return err
		}

		limit := (*int64)(update.Key.SpendLimit)
		row, err = q.UpdateKey(ctx, sqlcgen.UpdateKeyParams{
			ID:                    row.ID,
			Name:                  update.Key.Name,
			SpendLimit:            limit,
			Description:           update.Key.Description,
			Metadata:              encodeMap(update.Key.Metadata),
			ExpiresAt:             update.Key.ExpiresAt,
			ExpiryEventAt:         key.NextExpiryEvent(update.Key.ExpiresAt, time.Now()),
			MaxConcurrentRequests: narrow(update.Key.MaxConcurrentRequests),
			Paused:                update.Key.Paused,
			Models:                encodeList(update.Key.Models),
			Networks:              encodeList(update.Key.Networks),
			ProjectID:             (*ident.UUID)(update.Key.ProjectID),
			Revision:              rev,
		})
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(before.ProjectID, update.Key.ProjectID) {
			if err := errors.Join(checkProjects(ctx, q, row.ID), checkNumber(ctx, q, row.AccountID)); err != nil {
				return err
			}
		}
		if err := setLimit(ctx, q, row.ID, limit); err != nil {
			return err
		}
		if err := setKeySlots(ctx, q, &row, before.MaxConcurrentRequests); err != nil {
			return err
		}

		if update.Announce {
			c, err := changestore.InsertKeyChange(ctx, q, rev, wire.KeyUpdated, row.AccountID, &row)
			if err != nil {
				return err
			}
			announce = &c
		}

		if after, err = withKeyFigures(ctx, q, &row); err != nil {
			return err
		}

		if err := changestore.InsertEvents(ctx, q, pauseEvents(&before, &after)...); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "key.update", id, before, after)
	})
	return after, announce, unknownOwner(err)
}

func (s *Keys) Revoke(ctx context.Context, id key.ID) (revoked key.Key, c wire.KeyChange, err error) {
	err = s.db.InRevision(ctx, "revoke key", func(q *sqlcgen.Queries, rev int64) error {
		row, err := q.LockKey(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock key", err, key.ErrNotFound)
		}

		if row.RevokedAt != nil {
			if c, err = changestore.Revocation(ctx, q, &row); err != nil {
				return err
			}
			revoked, err = withKeyFigures(ctx, q, &row)
			return err
		}

		before, err := toKey(&row)
		if err != nil {
			return err
		}
		if row, err = q.RevokeKey(ctx, sqlcgen.RevokeKeyParams{ID: row.ID, Revision: rev}); err != nil {
			return err
		}
		if c, err = changestore.InsertKeyChange(ctx, q, rev, wire.KeyRevoked, row.AccountID, &row); err != nil {
			return err
		}
		if revoked, err = withKeyFigures(ctx, q, &row); err != nil {
			return err
		}
		event := webhook.Event{Type: webhook.Revoked, AccountID: row.AccountID, KeyID: row.ID}
		if err := changestore.InsertEvents(ctx, q, event); err != nil {
			return err
		}

		return changestore.InsertAudit(ctx, q, "key.revoke", id, before, revoked)
	})
	return revoked, c, err
}

func (s *Keys) Rotate(
	ctx context.Context, id key.ID, next *key.NewSecret,
) (after key.Key, sealed vault.Sealed, announce *wire.KeyChange, err error) {
	err = s.db.InRevision(ctx, "rotate key", func(q *sqlcgen.Queries, rev int64) error {
		announce = nil
		row, err := q.LockKey(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock key", err, key.ErrNotFound)
		}

		before, err := toKey(&row)
		if err != nil {
			return err
		}
		if row.RotationID == nil || *row.RotationID != next.Rotation.ID {
			if err := next.Check(&before); err != nil {
				return err
			}
			if row, announce, err = rotate(ctx, q, rev, &row, next); err != nil {
				return err
			}
		}

		sealed = toSealed(&row)
		if after, err = withKeyFigures(ctx, q, &row); err != nil || announce == nil {
			return err
		}
		event := webhook.Event{Type: webhook.Rotated, AccountID: row.AccountID, KeyID: row.ID}
		if err := changestore.InsertEvents(ctx, q, event); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "key.rotate", id, before, after)
	})
	return after, sealed, announce, err
}

// rotate writes a new secret, and the change for the proxies: one for each hash of the secrets that had not ended before.
func rotate(
	ctx context.Context, q *sqlcgen.Queries, rev int64, before *sqlcgen.ApiKey, next *key.NewSecret,
) (row sqlcgen.ApiKey, announce *wire.KeyChange, err error) {
	overlap := next.Rotation.Overlap
	if err := q.RetireHashes(ctx, sqlcgen.RetireHashesParams{KeyID: before.ID, Overlap: overlap > 0, Revision: rev}); err != nil {
		return row, nil, fmt.Errorf("retire hashes: %w", err)
	}

	row, err = q.RotateKey(ctx, sqlcgen.RotateKeyParams{
		ID:             before.ID,
		LookupHash:     next.Secret.Hash[:],
		PepperID:       next.Secret.Pepper,
		Ciphertext:     next.Secret.Sealed.Text,
		CipherKeyID:    next.Secret.Sealed.KeyID,
		Hint:           next.Hint,
		RotationID:     next.Rotation.ID,
		OverlapSeconds: overlap.Seconds(),
		Revision:       rev,
	})
	if err != nil {
		return row, nil, fmt.Errorf("write secret: %w", err)
	}

	c, err := changestore.InsertKeyChange(ctx, q, rev, wire.KeyUpdated, row.AccountID, &row)
	return row, &c, err
}

func (s *Keys) Sealed(ctx context.Context, id key.ID) (sealed vault.Sealed, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.GetKey(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("get sealed key", err, key.ErrNotFound)
		}
		sealed = toSealed(&row)
		if err := LockLimits(ctx, q); err != nil {
			return err
		}
		if err := changestore.InsertAudit(ctx, q, "key.reveal", id, nil, nil); err != nil {
			return postgres.Translate("write audit entry", err)
		}
		return CheckReveals(ctx, q)
	})
	return sealed, err
}

// setLimit sets or removes a key's spend limit. A changed limit can be reached
// again, so its alarms are evaluated again.
func setLimit(ctx context.Context, q *sqlcgen.Queries, key ident.UUID, limit *int64) error {
	row, err := q.LockKeyPool(ctx, sqlcgen.LockKeyPoolParams{KeyID: key, Kind: int16(wire.Limit)})
	if err != nil {
		return fmt.Errorf("lock limit: %w", err)
	}
	pool, err := leasestore.ResizePool(ctx, q, (*sqlcgen.LockPoolsRow)(&row), func(p *allocator.Pool) { p.SetLimit(limit) })
	if err != nil || (pool.Total == row.Total && pool.Unlimited == row.Unlimited) {
		return err
	}
	pool.ClearExhausted()
	return leasestore.UpdateAlarms(ctx, q, *pool)
}

func toSealed(row *sqlcgen.ApiKey) vault.Sealed {
	return vault.Sealed{Text: row.Ciphertext, KeyID: postgres.Deref(row.CipherKeyID)}
}

func toKey(row *sqlcgen.ApiKey) (key.Key, error) {
	k := key.Key{
		ID:         key.ID(row.ID),
		AccountID:  account.ID(row.AccountID),
		ExternalID: postgres.Deref(row.ExternalID),
		Name:       row.Name,
		Hint:       row.Hint,
		SpendLimit: (*money.Nano)(row.SpendLimit),
		Settings: key.Settings{
			Description:           row.Description,
			MaxConcurrentRequests: number(row.MaxConcurrentRequests),
		},
		Revealable: row.Ciphertext != nil,
		RotatedAt:  row.RotatedAt,
		RevokedAt:  row.RevokedAt,
		Rev:        row.Revision,
		CreatedAt:  row.CreatedAt,
		UpdatedAt:  row.UpdatedAt,
	}
	if row.PreviousUntil != nil {
		k.PreviousUntil, k.PreviousHint = new(row.PreviousUntil.UTC()), row.PreviousHint
	}
	rules, err := leasestore.KeyRules(row.ExpiresAt, row.Paused, row.Models, row.Networks)
	if err := errors.Join(err, decode(row.Metadata, &k.Metadata)); err != nil {
		return key.Key{}, fmt.Errorf("postgres: read the settings of %s: %w", k.ID, err)
	}

	k.ProjectID = (*project.ID)(row.ProjectID)
	k.SetRules(rules)
	return k, nil
}

// decode reads an object; an empty one is nil.
func decode(text []byte, value *map[string]string) error {
	if err := json.Unmarshal(text, value); err != nil {
		return err
	}
	if len(*value) == 0 {
		*value = nil
	}
	return nil
}

// encodeSettings returns the settings of InsertKeys.
func encodeSettings(s *key.Settings) []byte {
	var project *string
	if s.ProjectID != nil {
		project = new(hex.EncodeToString(s.ProjectID[:]))
	}
	return mustEncode(struct {
		Description string          `json:"description"`
		Metadata    json.RawMessage `json:"metadata"`
		ExpiresAt   *time.Time      `json:"expires_at"`
		ExpiryEvent *time.Time      `json:"expiry_event_at"`
		Paused      bool            `json:"paused"`
		Models      json.RawMessage `json:"models"`
		Networks    json.RawMessage `json:"networks"`
		Project     *string         `json:"project_id"`
		Slots       *int            `json:"max_concurrent_requests"`
	}{
		s.Description, encodeMap(s.Metadata), s.ExpiresAt, key.NextExpiryEvent(s.ExpiresAt, time.Now()), s.Paused,
		encodeList(s.Models), encodeList(s.Networks), project, s.MaxConcurrentRequests,
	})
}

func encodeList[V string | netip.Prefix](values []V) []byte {
	if len(values) == 0 {
		return []byte("[]")
	}
	return mustEncode(values)
}
