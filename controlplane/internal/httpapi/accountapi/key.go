package accountapi

import (
	"context"
	"net/netip"
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
	var invalid validation.Errors
	n := key.New{
		ID:         call.OperationID,
		AccountID:  owner,
		Name:       r.Body.Name,
		ExternalID: convert.Text(r.Body.ExternalID),
		SpendLimit: limit,
		Settings: key.Settings{
			ProjectID:             projectID("project_id", r.Body.ProjectID, &invalid),
			Description:           convert.Text(r.Body.Description),
			Metadata:              convert.Value(r.Body.Metadata),
			ExpiresAt:             r.Body.ExpiresAt,
			Paused:                convert.Value(r.Body.Paused),
			MaxConcurrentRequests: r.Body.MaxConcurrentRequests,
			Models:                r.Body.Models,
			Networks:              key.ParseNetworks("networks", r.Body.Networks, &invalid),
		},
	}
	if err := validation.Merge(err, invalid.Err(), n.Validate()); err != nil {
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

	p, after, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, owner); err != nil {
		return nil, err
	}

	var invalid validation.Errors
	of := convert.ReadProjectOrNone(&invalid, r.Params.ProjectID, owner)
	status := key.Status(convert.Value(r.Params.Status))
	if status != "" && !status.Known() {
		invalid.Add("status", "is not a status of a key")
	}
	if err := invalid.Err(); err != nil {
		return nil, err
	}

	found, err := h.Keys.List(ctx, key.Query{
		AccountID:  owner,
		ExternalID: convert.Text(r.Params.ExternalID),
		ProjectID:  of,
		Status:     status,
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
	patch.SpendLimit, err = convert.Amount("spend_limit", limit)
	if err := validation.Merge(unread, err, readSettings(&patch.SettingsPatch, r.Body), patch.Validate()); err != nil {
		return nil, err
	}

	updated, err := h.Keys.Patch(ctx, id, patch)
	if err != nil {
		return nil, err
	}

	call.Changes.AddAnnounced(updated.Change, &updated.Confirmation)
	call.ETag = updated.Key.Tag()
	return gen.UpdateKey200JSONResponse(keyView(&updated.Key)), nil
}

// readSettings reads the settings of a change of a key.
func readSettings(patch *key.SettingsPatch, body *gen.KeyPatch) error {
	var invalid validation.Errors
	patch.Description, patch.Metadata, patch.Paused = body.Description, (*map[string]string)(body.Metadata), body.Paused
	patch.ExpiresAt, patch.SetExpiry = body.ExpiresAt.Get()
	patch.MaxConcurrentRequests, patch.SetSlots = body.MaxConcurrentRequests.Get()
	moved, given := body.ProjectID.Get()
	patch.SetProject, patch.ProjectID = given, projectID("project_id", moved, &invalid)
	if models, given := body.Models.Get(); given {
		patch.Models = new(convert.Value(models))
	}
	if networks, given := body.Networks.Get(); given {
		patch.Networks = new(key.ParseNetworks("networks", convert.Value(networks), &invalid))
	}
	return invalid.Err()
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

func (h *Handlers) RotateKey(ctx context.Context, call *gen.Call, r gen.RotateKeyRequestObject) (gen.RotateKeyResponseObject, error) {
	id, err := key.ParseID(r.KeyID)
	if err != nil {
		return nil, err
	}

	match, unread := etag.Parse(convert.Text(r.Params.IfMatch))
	rotation := key.Rotation{ID: call.OperationID, Match: match, Overlap: convert.Seconds(r.Body.OverlapSeconds)}
	if err := validation.Merge(unread, rotation.Validate()); err != nil {
		return nil, err
	}

	rotated, err := h.Keys.Rotate(ctx, id, rotation)
	if err != nil {
		return nil, err
	}

	call.Changes.AddAnnounced(rotated.Change, &rotated.Confirmation)
	call.ETag = rotated.Key.Tag()
	return gen.RotateKey200JSONResponse{Key: keyView(&rotated.Key), Secret: rotated.Text}, nil
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

	call.Changes.AddAnnounced(&revoked.Change, &revoked.Confirmation)
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
	imported.Settings = key.Settings{
		ProjectID:             projectID(validation.Member(path, "project_id"), k.ProjectID, invalid),
		Description:           convert.Text(k.Description),
		Metadata:              convert.Value(k.Metadata),
		ExpiresAt:             k.ExpiresAt,
		Paused:                convert.Value(k.Paused),
		MaxConcurrentRequests: k.MaxConcurrentRequests,
		Models:                k.Models,
		Networks:              key.ParseNetworks(validation.Member(path, "networks"), k.Networks, invalid),
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
		ID:                    k.ID.String(),
		AccountID:             k.AccountID.String(),
		ExternalID:            convert.Optional(k.ExternalID),
		Name:                  k.Name,
		Status:                status(k),
		ExpiresAt:             k.ExpiresAt,
		Paused:                k.Paused,
		MaxConcurrentRequests: k.MaxConcurrentRequests,
		Models:                append([]string{}, k.Models...),
		Networks:              convert.All(k.Networks, func(n *netip.Prefix) string { return n.String() }),
		Hint:                  k.Hint,
		Spent:                 k.Spent.String(),
		Reserved:              k.Reserved.String(),
		Revealable:            k.Revealable,
		LastUsedAt:            k.LastUsedAt,
		RotatedAt:             k.RotatedAt,
		RevokedAt:             k.RevokedAt,
		CreatedAt:             k.CreatedAt,
		UpdatedAt:             k.UpdatedAt,
	}
	if k.ProjectID != nil {
		view.ProjectID = convert.Optional(k.ProjectID.String())
	}
	view.Description = convert.Optional(k.Description)
	if len(k.Metadata) > 0 {
		view.Metadata = (*gen.Metadata)(&k.Metadata)
	}
	if k.PreviousUntil != nil && k.RevokedAt == nil && k.PreviousUntil.After(time.Now()) {
		view.PreviousSecret = &gen.PreviousSecret{Hint: k.PreviousHint, ValidUntil: *k.PreviousUntil}
	}
	if k.SpendLimit != nil {
		view.SpendLimit = convert.Optional(k.SpendLimit.String())
	}

	return view
}

func status(k *key.Key) gen.KeyStatus {
	switch {
	case k.RevokedAt != nil:
		return gen.KeyStatusRevoked
	case k.ExpiresAt != nil && !k.ExpiresAt.After(time.Now()):
		return gen.KeyStatusExpired
	case k.Paused:
		return gen.KeyStatusPaused
	default:
		return gen.KeyStatusActive
	}
}
