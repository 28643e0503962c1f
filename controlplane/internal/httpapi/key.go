package httpapi

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/validation"
)

// CreateKey implements gen.StrictServerInterface.
func (s *server) CreateKey(ctx context.Context, r gen.CreateKeyRequestObject) (gen.CreateKeyResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	limit, err := amount("spend_limit", r.Body.SpendLimit)
	n := key.New{
		ID: idempotency.Operation(ctx), AccountID: owner, Name: r.Body.Name, ExternalID: orEmpty(r.Body.ExternalID), SpendLimit: limit,
	}
	if err := validation.Merge(err, n.Validate()); err != nil {
		return nil, err
	}
	k, text, err := s.cfg.Keys.Issue(ctx, n)
	if err != nil {
		return nil, err
	}
	setETag(ctx, k.Tag())
	return gen.CreateKey201JSONResponse{Key: keyView(&k), Secret: text}, nil
}

// ListKeys implements gen.StrictServerInterface.
func (s *server) ListKeys(ctx context.Context, r gen.ListKeysRequestObject) (gen.ListKeysResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := p.uuid()
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Accounts.Get(ctx, owner); err != nil {
		return nil, err
	}
	found, err := s.cfg.Keys.List(ctx, key.Query{
		AccountID: owner, ExternalID: orEmpty(r.Params.ExternalID), After: key.ID(after), Limit: p.limit + 1,
	})
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(k *key.Key) []byte { return k.ID[:] })
	return gen.ListKeys200JSONResponse{Data: all(found, keyView), NextCursor: cursor}, nil
}

// GetKey implements gen.StrictServerInterface.
func (s *server) GetKey(ctx context.Context, r gen.GetKeyRequestObject) (gen.GetKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}
	k, err := s.cfg.Keys.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	setETag(ctx, k.Tag())
	return gen.GetKey200JSONResponse(keyView(&k)), nil
}

// UpdateKey implements gen.StrictServerInterface.
func (s *server) UpdateKey(ctx context.Context, r gen.UpdateKeyRequestObject) (gen.UpdateKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}
	match, unread := etag.Parse(orEmpty(r.Params.IfMatch))
	patch := key.Patch{Match: match, Name: r.Body.Name}
	limit, given := r.Body.SpendLimit.Get()
	patch.SetLimit = given
	if patch.SpendLimit, err = amount("spend_limit", limit); err != nil || unread != nil {
		return nil, validation.Merge(unread, err, patch.Validate())
	}
	k, err := s.cfg.Keys.Patch(ctx, id, patch)
	if err != nil {
		return nil, err
	}
	setETag(ctx, k.Tag())
	return gen.UpdateKey200JSONResponse(keyView(&k)), nil
}

// RevealKey implements gen.StrictServerInterface.
func (s *server) RevealKey(ctx context.Context, r gen.RevealKeyRequestObject) (gen.RevealKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}
	text, err := s.cfg.Keys.Reveal(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.RevealKey200JSONResponse{ID: id.String(), Secret: text}, nil
}

// RevokeKey implements gen.StrictServerInterface.
func (s *server) RevokeKey(ctx context.Context, r gen.RevokeKeyRequestObject) (gen.RevokeKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}
	k, change, confirmed, err := s.cfg.Keys.Revoke(ctx, id)
	if err != nil {
		return nil, err
	}
	view := gen.Revocation{
		Effective: confirmed.Effective, Revision: change.Revision, ConfirmedBy: confirmed.ConfirmedBy, Key: keyView(&k),
	}
	if confirmed.Effective {
		return gen.RevokeKey200JSONResponse(view), nil
	}
	bound := time.Now().Add(confirmed.Bound).UTC()
	view.Bound = &bound
	return gen.RevokeKey202JSONResponse(view), nil
}

// ImportKeys implements gen.StrictServerInterface.
func (s *server) ImportKeys(ctx context.Context, r gen.ImportKeysRequestObject) (gen.ImportKeysResponseObject, error) {
	imported := make([]key.Imported, len(r.Body.Keys))
	var invalid validation.Errors
	for i := range r.Body.Keys {
		imported[i] = importedKey(validation.Index("keys", i), &r.Body.Keys[i], &invalid)
	}
	if err := validation.Merge(invalid.Err(), s.cfg.Keys.CheckImport(imported)); err != nil {
		return nil, err
	}
	keys, err := s.cfg.Keys.Import(ctx, imported)
	if err != nil {
		return nil, err
	}
	return gen.ImportKeys201JSONResponse{Data: all(keys, keyView)}, nil
}

func importedKey(path string, k *gen.ImportedKey, invalid *validation.Errors) key.Imported {
	imported := key.Imported{
		New:    key.New{Name: k.Name, ExternalID: orEmpty(k.ExternalID)},
		Pepper: orEmpty(k.Pepper), Hint: orEmpty(k.Hint),
	}
	var err error
	if imported.AccountID, err = account.ParseID(k.AccountID); err != nil {
		invalid.Add(validation.Member(path, "account_id"), "is not the id of an account")
	}
	if err := imported.Hash.UnmarshalText([]byte(k.Hash)); err != nil {
		invalid.Add(validation.Member(path, "hash"), "must be 64 hexadecimal digits")
	}
	if imported.SpendLimit, err = amount(validation.Member(path, "spend_limit"), k.SpendLimit); err != nil {
		*invalid, _ = validation.As(validation.Merge(invalid.Err(), err))
	}
	return imported
}

func keyView(k *key.Key) gen.Key {
	view := gen.Key{
		ID: k.ID.String(), AccountID: k.AccountID.String(), ExternalID: present(k.ExternalID), Name: k.Name,
		Status: gen.KeyStatusActive, Hint: k.Hint, Spent: k.Spent.String(), Reserved: k.Reserved.String(),
		Revealable: k.Revealable, RevokedAt: k.RevokedAt, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
	}
	if k.RevokedAt != nil {
		view.Status = gen.KeyStatusRevoked
	}
	if k.SpendLimit != nil {
		view.SpendLimit = present(k.SpendLimit.String())
	}
	return view
}
