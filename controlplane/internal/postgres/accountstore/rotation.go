package accountstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/ident"
)

// Rotations keeps data keys and rotations.
type Rotations struct{ db *postgres.DB }

// NewRotations returns a store that uses db.
func NewRotations(db *postgres.DB) *Rotations { return &Rotations{db} }

var _ rotation.Store = (*Rotations)(nil)

// rotationName is the object of the audit entries of a rotation.
type rotationName string

// String returns the name.
func (n rotationName) String() string { return string(n) }

func (s *Rotations) DataKeys(ctx context.Context) ([]vault.DataKey, error) {
	rows, err := s.db.Queries().ListDataKeys(ctx)
	keys := make([]vault.DataKey, len(rows))
	for i, r := range rows {
		keys[i] = toDataKey(r.ID, r.Sealed, r.MasterKeyID)
	}
	return keys, postgres.Translate("list data keys", err)
}

// DataKey returns a data key, or a zero one if there is none.
func (s *Rotations) DataKey(ctx context.Context, id string) (vault.DataKey, error) {
	r, err := s.db.Queries().GetDataKey(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return vault.DataKey{}, nil
	}
	return toDataKey(r.ID, r.Sealed, r.MasterKeyID), postgres.Translate("get data key", err)
}

func toDataKey(id string, text []byte, master string) vault.DataKey {
	return vault.DataKey{ID: id, Sealed: vault.Sealed{Text: text, KeyID: master}}
}

func (s *Rotations) FirstDataKey(ctx context.Context, makeKey func() vault.DataKey) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if err := q.LockFirstDataKey(ctx); err != nil {
			return postgres.Translate("lock data keys", err)
		}
		isNew, err := q.IsNewDatabase(ctx)
		if err != nil || !isNew {
			return postgres.Translate("find secrets", err)
		}
		return postgres.Translate("insert data key", insertDataKey(ctx, q, makeKey()))
	})
}

func insertDataKey(ctx context.Context, q *sqlcgen.Queries, k vault.DataKey) error {
	return q.InsertDataKey(ctx, sqlcgen.InsertDataKeyParams{ID: k.ID, Sealed: k.Sealed.Text, MasterKeyID: k.Sealed.KeyID})
}

func (s *Rotations) Start(ctx context.Context, r rotation.Rotation, with *vault.DataKey) (kept rotation.Rotation, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		n, err := q.InsertRotation(ctx, sqlcgen.InsertRotationParams{ID: r.ID, Kind: string(r.Kind), Target: r.Target})
		if err != nil {
			return postgres.Translate("insert rotation", err)
		}

		row, err := q.RunningRotation(ctx, string(r.Kind))
		if err != nil {
			return postgres.Translate("get rotation", err)
		}

		kept = toRotation(&row)
		if n == 0 {
			return nil
		}

		if with != nil {
			if err := insertDataKey(ctx, q, *with); err != nil {
				return postgres.Translate("insert data key", err)
			}
		}

		return postgres.Translate(
			"write audit entry",
			changestore.InsertAudit(ctx, q, "rotation.start", rotationName(r.Kind), nil, map[string]any{"target": r.Target}),
		)
	})
	return kept, err
}

func (s *Rotations) Last(ctx context.Context, kind rotation.Kind) (*rotation.Rotation, error) {
	row, err := s.db.Queries().LastRotation(ctx, string(kind))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // there was none
	}
	r := toRotation(&row)
	return &r, postgres.Translate("get last rotation", err)
}

func toRotation(row *sqlcgen.Rotation) rotation.Rotation {
	return rotation.Rotation{
		ID:         row.ID,
		Kind:       rotation.Kind(row.Kind),
		Target:     row.Target,
		Changed:    row.Changed,
		StartedAt:  row.StartedAt,
		FinishedAt: row.FinishedAt,
	}
}

func (s *Rotations) Holdings(ctx context.Context) ([]rotation.Holding, error) {
	rows, err := s.db.Queries().CountUnrotatedSecrets(ctx)
	holdings := make([]rotation.Holding, len(rows))
	for i, r := range rows {
		holdings[i] = rotation.Holding{MasterKey: r.MasterKeyID, DataKeys: r.DataKeys, Secrets: r.Secrets}
	}
	return holdings, postgres.Translate("count secrets", err)
}

func (s *Rotations) Keys(ctx context.Context, pepper string) (rotation.Keys, error) {
	r, err := s.db.Queries().CountPeppers(ctx, pepper)
	return rotation.Keys{Ready: r.Ready, Waiting: r.Waiting, HashOnly: r.HashOnly}, postgres.Translate("count hashes", err)
}

func (s *Rotations) HashOnly(ctx context.Context, pepper string, after key.ID, limit int) ([]rotation.HashOnlyKey, error) {
	rows, err := s.db.Queries().
		HashOnlyKeys(ctx, sqlcgen.HashOnlyKeysParams{Pepper: pepper, After: ident.UUID(after), RowLimit: int32(limit)})
	keys := make([]rotation.HashOnlyKey, len(rows))
	for i, r := range rows {
		keys[i] = rotation.HashOnlyKey{
			ID:         key.ID(r.ID),
			AccountID:  account.ID(r.AccountID),
			Name:       r.Name,
			ExternalID: r.ExternalID,
			Pepper:     r.PepperID,
			CreatedAt:  r.CreatedAt,
			LastUsedOn: r.LastUsedOn,
		}
	}
	return keys, postgres.Translate("list hash-only keys", err)
}

// Step implements rotation.Store. A row that cannot be decrypted is not changed, and
// the rotation does not finish while there is one.
func (s *Rotations) Step(ctx context.Context, kind rotation.Kind, with rotation.Step) (p rotation.Progress, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		t := rotationStep{
			ctx:  ctx,
			q:    sqlcgen.New(tx),
			with: with,
			next: with.From,
		}

		p = rotation.Progress{Done: true}
		row, err := t.q.ClaimRotation(ctx, string(kind))
		if errors.Is(err, pgx.ErrNoRows) || (err == nil && row.Target != with.Target) {
			return nil
		}
		if err != nil {
			return err
		}

		t.position = row.Position
		if kind == rotation.MasterKey {
			err = t.masterKey(row.AgeSeconds)
		} else {
			err = t.pepper()
		}

		if err != nil {
			return err
		}

		p = rotation.Progress{Done: t.found == 0, Next: t.next, Skipped: t.errs}
		if t.changed == 0 && t.position == row.Position && !t.finished {
			return nil
		}

		if t.finished {
			if err := changestore.InsertAudit(
				ctx,
				t.q,
				"rotation.finish",
				rotationName(kind),
				nil,
				map[string]any{"target": row.Target, "changed": row.Changed},
			); err != nil {
				return err
			}
		}

		return t.q.AdvanceRotation(ctx, sqlcgen.AdvanceRotationParams{
			ID:       row.ID,
			Position: t.position,
			Changed:  int64(t.changed),
			Finished: t.finished,
		})
	})
	return p, postgres.Translate("rotate", err)
}

// rotationStep is one transaction of a rotation.
type rotationStep struct {
	ctx      context.Context
	q        *sqlcgen.Queries
	with     rotation.Step
	position ident.UUID
	next     rotation.Cursor
	changed  int
	found    int
	finished bool
	errs     []error
}

// masterKey encrypts data keys under the new master key, and encrypts secrets that
// are directly under a master key under a data key.
func (t *rotationStep) masterKey(age float64) error {
	for _, step := range []func() error{t.dataKeys, t.apiKeys, t.credentials, t.responses, t.webhooks} {
		if err := step(); err != nil {
			return err
		}
	}
	if t.found > 0 || age < t.with.MinDuration.Seconds() {
		return nil
	}
	// Locked rows were skipped, but this count includes them.
	rows, err := t.q.CountUnrotatedSecrets(t.ctx)
	t.finished = err == nil
	for _, r := range rows {
		t.finished = t.finished && r.MasterKeyID == t.with.Target && r.Secrets == 0
	}
	return err
}

// skip records a row that cannot be decrypted.
func (t *rotationStep) skip(name string, err error) {
	t.errs = append(t.errs, fmt.Errorf("%s: %w", name, err))
}

// reseal encrypts one row again. It skips a row that cannot be decrypted.
func (t *rotationStep) reseal(name string, old vault.Sealed, context string, write func(vault.Sealed) error) error {
	t.found++
	sealed, err := t.with.Reseal(old, context)
	if err != nil {
		t.skip(name, err)
		return nil
	}
	t.changed++
	return write(sealed)
}

func (t *rotationStep) dataKeys() error {
	rows, err := t.q.StaleDataKeys(
		t.ctx,
		sqlcgen.StaleDataKeysParams{Current: t.with.Target, After: t.next.DataKey, RowLimit: int32(t.with.Limit)},
	)
	if err != nil {
		return fmt.Errorf("read data keys: %w", err)
	}

	for _, r := range rows {
		t.found++
		t.next.DataKey = r.ID
		k, err := t.with.Rewrap(toDataKey(r.ID, r.Sealed, r.MasterKeyID))
		if err != nil {
			t.skip("data key "+r.ID, err)
			continue
		}
		t.changed++
		if err := t.q.RewrapDataKey(
			t.ctx,
			sqlcgen.RewrapDataKeyParams{ID: k.ID, Sealed: k.Sealed.Text, MasterKeyID: k.Sealed.KeyID},
		); err != nil {
			return fmt.Errorf("write data key: %w", err)
		}
	}

	return nil
}

func (t *rotationStep) apiKeys() error {
	rows, err := t.q.DirectKeys(t.ctx, sqlcgen.DirectKeysParams{After: t.next.APIKey, RowLimit: int32(t.with.Limit)})
	for _, r := range rows {
		t.next.APIKey = r.ID
		sealed := vault.Sealed{Text: r.Ciphertext, KeyID: postgres.Deref(r.CipherKeyID)}
		if err = t.reseal("api key "+ident.Key.Format(r.ID), sealed, key.TextContext(r.ID), func(s vault.Sealed) error {
			return t.q.ResealKey(t.ctx, sqlcgen.ResealKeyParams{ID: r.ID, Ciphertext: s.Text, CipherKeyID: &s.KeyID})
		}); err != nil {
			break
		}
	}
	return err
}

func (t *rotationStep) credentials() error {
	rows, err := t.q.DirectCredentials(t.ctx, sqlcgen.DirectCredentialsParams{After: t.next.Credential, RowLimit: int32(t.with.Limit)})
	for _, r := range rows {
		t.next.Credential = r.ID
		if err = t.reseal(
			"credential "+r.ID,
			vault.Sealed{Text: r.Sealed, KeyID: r.CipherKeyID},
			catalogkv.CredentialContext(r.ID),
			func(s vault.Sealed) error {
				return t.q.ResealCredential(t.ctx, sqlcgen.ResealCredentialParams{ID: r.ID, Sealed: s.Text, CipherKeyID: s.KeyID})
			},
		); err != nil {
			break
		}
	}
	return err
}

func (t *rotationStep) responses() error {
	rows, err := t.q.DirectResponses(t.ctx, sqlcgen.DirectResponsesParams{After: t.next.Response, RowLimit: int32(t.with.Limit)})
	for _, r := range rows {
		t.next.Response = r.OperationID
		name := fmt.Sprintf("response of operation %x", r.OperationID)
		old := vault.Sealed{Text: r.Body, KeyID: postgres.Deref(r.CipherKeyID)}
		if err = t.reseal(name, old, idempotency.ResponseContext(r.OperationID), func(s vault.Sealed) error {
			return t.q.ResealResponse(t.ctx, sqlcgen.ResealResponseParams{OperationID: r.OperationID, Body: s.Text, CipherKeyID: &s.KeyID})
		}); err != nil {
			break
		}
	}
	return err
}

func (t *rotationStep) webhooks() error {
	rows, err := t.q.DirectWebhookSecrets(t.ctx, sqlcgen.DirectWebhookSecretsParams{After: t.next.Webhook, RowLimit: int32(t.with.Limit)})
	for _, r := range rows {
		t.next.Webhook = r.ID
		name, old := "secret of webhook "+ident.Endpoint.Format(r.EndpointID), vault.Sealed{Text: r.Sealed, KeyID: r.CipherKeyID}
		if err = t.reseal(name, old, webhook.SecretContext(r.EndpointID), func(s vault.Sealed) error {
			return t.q.ResealWebhookSecret(t.ctx, sqlcgen.ResealWebhookSecretParams{ID: r.ID, Sealed: s.Text, CipherKeyID: s.KeyID})
		}); err != nil {
			break
		}
	}
	return err
}

// pepper hashes keys with the new pepper, in passes from the first key to the last,
// until a pass finds none.
func (t *rotationStep) pepper() error {
	begins := t.position.IsZero()
	// Before rows of keys are locked, as in other changes.
	revision, err := t.q.TakeRevision(t.ctx)
	if err != nil {
		return fmt.Errorf("take revision: %w", err)
	}

	rows, err := t.q.KeysToHash(t.ctx, sqlcgen.KeysToHashParams{Position: t.position, Pepper: t.with.Target, RowLimit: int32(t.with.Limit)})
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}

	for _, r := range rows {
		t.found++
		t.position = r.ID
		hash, err := t.with.Hash(r.ID, vault.Sealed{Text: r.Ciphertext, KeyID: postgres.Deref(r.CipherKeyID)})
		if err != nil {
			t.skip("api key "+ident.Key.Format(r.ID), err)
			continue
		}

		t.changed++
		if string(hash[:]) == string(r.LookupHash) { // its hash is already under this pepper, which was not recorded
			err = t.q.SetPepper(t.ctx, sqlcgen.SetPepperParams{ID: r.ID, Pepper: t.with.Target})
		} else {
			err = t.q.InsertKeyHash(t.ctx, sqlcgen.InsertKeyHashParams{
				Hash:     hash[:],
				KeyID:    r.ID,
				PepperID: t.with.Target,
				Revision: revision,
			})
		}

		if err != nil {
			return fmt.Errorf("write hash: %w", err)
		}
	}

	if len(rows) > 0 {
		return nil
	}

	t.position = ident.UUID{}
	if begins { // locked rows were skipped, but the count includes them
		left, err := t.q.CountPeppers(t.ctx, t.with.Target)
		t.finished = err == nil && left.Waiting == 0
		return err
	}

	return nil
}
