package accountapi

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) CreateKey(ctx context.Context, call *gen.Call, r gen.CreateKeyRequestObject) (gen.CreateKeyResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	limit, err := convert.Amount("spend_limit", r.Body.SpendLimit)
	n := key.New{
		ID:         call.OperationID,
		AccountID:  owner,
		Name:       r.Body.Name,
		ExternalID: convert.Text(r.Body.ExternalID),
		SpendLimit: limit,
	}
	if err := validation.Merge(err, n.Validate()); err != nil {
		return nil, err
	}

	k, text, err := h.Keys.Issue(ctx, n)
	if err != nil {
		return nil, err
	}

	call.ETag = k.Tag()
	return gen.CreateKey201JSONResponse{Key: keyView(&k), Secret: text}, nil
}

func (h *Handlers) ListKeys(ctx context.Context, _ *gen.Call, r gen.ListKeysRequestObject) (gen.ListKeysResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	after, err := p.UUID()
	if err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, owner); err != nil {
		return nil, err
	}

	found, err := h.Keys.List(ctx, key.Query{
		AccountID:  owner,
		ExternalID: convert.Text(r.Params.ExternalID),
		After:      key.ID(after),
		Limit:      p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(k *key.Key) []byte { return k.ID[:] })
	return gen.ListKeys200JSONResponse{Data: convert.All(found, keyView), NextCursor: cursor}, nil
}

func (h *Handlers) GetKey(ctx context.Context, call *gen.Call, r gen.GetKeyRequestObject) (gen.GetKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}
	k, err := h.Keys.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	call.ETag = k.Tag()
	return gen.GetKey200JSONResponse(keyView(&k)), nil
}

func (h *Handlers) UpdateKey(ctx context.Context, call *gen.Call, r gen.UpdateKeyRequestObject) (gen.UpdateKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}

	match, unread := etag.Parse(convert.Text(r.Params.IfMatch))
	patch := key.Patch{Match: match, Name: r.Body.Name}
	limit, given := r.Body.SpendLimit.Get()
	patch.SetLimit = given
	if patch.SpendLimit, err = convert.Amount("spend_limit", limit); err != nil || unread != nil {
		return nil, validation.Merge(unread, err, patch.Validate())
	}

	updated, err := h.Keys.Patch(ctx, id, patch)
	if err != nil {
		return nil, err
	}

	call.Changes.AddKey(updated.Change)
	call.ETag = updated.Key.Tag()
	return gen.UpdateKey200JSONResponse(keyView(&updated.Key)), nil
}

func (h *Handlers) RevealKey(ctx context.Context, _ *gen.Call, r gen.RevealKeyRequestObject) (gen.RevealKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}
	text, err := h.Keys.Reveal(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.RevealKey200JSONResponse{ID: id.String(), Secret: text}, nil
}

func (h *Handlers) RevokeKey(ctx context.Context, call *gen.Call, r gen.RevokeKeyRequestObject) (gen.RevokeKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}

	revoked, err := h.Keys.Revoke(ctx, id)
	if err != nil {
		return nil, err
	}

	call.Changes.AddKey(&revoked.Change)
	confirmed := revoked.Confirmation
	view := gen.Revocation{
		Effective:   confirmed.Effective,
		Revision:    revoked.Change.Revision,
		ConfirmedBy: confirmed.ConfirmedBy(),
		WaitingFor:  confirmed.WaitingFor(),
		Key:         keyView(&revoked.Key),
	}
	if confirmed.Effective {
		return gen.RevokeKey200JSONResponse(view), nil
	}

	if confirmed.Bound > 0 {
		bound := time.Now().Add(confirmed.Bound).UTC()
		view.Bound = &bound
	}

	return gen.RevokeKey202JSONResponse(view), nil
}

func (h *Handlers) ImportKeys(ctx context.Context, call *gen.Call, r gen.ImportKeysRequestObject) (gen.ImportKeysResponseObject, error) {
	imported := make([]key.Imported, len(r.Body.Keys))
	var invalid validation.Errors
	for i := range r.Body.Keys {
		imported[i] = importedKey(validation.Index("keys", i), &r.Body.Keys[i], &invalid)
	}
	if err := validation.Merge(invalid.Err(), h.Keys.CheckImport(imported)); err != nil {
		return nil, err
	}
	result, err := h.Keys.Import(ctx, imported)
	if err != nil {
		return nil, err
	}
	call.Changes.AddKey(result.Change)
	return gen.ImportKeys201JSONResponse{Data: convert.All(result.Keys, keyView)}, nil
}

func importedKey(path string, k *gen.ImportedKey, invalid *validation.Errors) key.Imported {
	imported := key.Imported{
		New:    key.New{Name: k.Name, ExternalID: convert.Text(k.ExternalID)},
		Pepper: convert.Text(k.Pepper), Hint: convert.Text(k.Hint),
	}
	var err error
	if imported.AccountID, err = account.ParseID(k.AccountID); err != nil {
		invalid.Add(validation.Member(path, "account_id"), "is not the id of an account")
	}
	if err := imported.Hash.UnmarshalText([]byte(k.Hash)); err != nil {
		invalid.Add(validation.Member(path, "hash"), "must be 64 hexadecimal digits")
	}
	if imported.SpendLimit, err = convert.Amount(validation.Member(path, "spend_limit"), k.SpendLimit); err != nil {
		*invalid, _ = validation.As(validation.Merge(invalid.Err(), err))
	}
	return imported
}

func keyView(k *key.Key) gen.Key {
	view := gen.Key{
		ID:         k.ID.String(),
		AccountID:  k.AccountID.String(),
		ExternalID: convert.Optional(k.ExternalID),
		Name:       k.Name,
		Status:     gen.KeyStatusActive,
		Hint:       k.Hint,
		Spent:      k.Spent.String(),
		Reserved:   k.Reserved.String(),
		Revealable: k.Revealable,
		RevokedAt:  k.RevokedAt,
		CreatedAt:  k.CreatedAt,
		UpdatedAt:  k.UpdatedAt,
	}
	if k.RevokedAt != nil {
		view.Status = gen.KeyStatusRevoked
	}
	if k.SpendLimit != nil {
		view.SpendLimit = convert.Optional(k.SpendLimit.String())
	}

	return view
}
