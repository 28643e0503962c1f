package operationsapi

import (
	"context"
	"slices"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/shared/ident"
)

func (h *Handlers) GetMasterKey(ctx context.Context, _ *gen.Call, _ gen.GetMasterKeyRequestObject) (gen.GetMasterKeyResponseObject, error) {
	m, err := h.Rotations.MasterKeys(ctx)
	if err != nil {
		return nil, err
	}

	held := map[string]rotation.Holding{}
	ids := slices.Clone(m.Configured)
	for _, h := range m.Holdings {
		held[h.MasterKey] = h
		ids = append(ids, h.MasterKey)
	}

	slices.Sort(ids)
	view := gen.GetMasterKey200JSONResponse{Current: m.Current, Rotation: rotationView(m.Last)}
	view.Keys = convert.All(slices.Compact(ids), func(id *string) gen.MasterKey {
		h := held[*id]
		return gen.MasterKey{
			ID:         *id,
			Configured: slices.Contains(m.Configured, *id),
			Current:    *id == m.Current,
			DataKeys:   h.DataKeys,
			Secrets:    h.Secrets,
			Removable:  *id != m.Current && h.DataKeys+h.Secrets == 0,
		}
	})
	return view, nil
}

func (h *Handlers) RotateMasterKey(
	ctx context.Context,
	_ *gen.Call,
	_ gen.RotateMasterKeyRequestObject,
) (gen.RotateMasterKeyResponseObject, error) {
	r, err := h.Rotations.Start(ctx, rotation.MasterKey)
	if err != nil {
		return nil, err
	}
	return gen.RotateMasterKey202JSONResponse(*rotationView(&r)), nil
}

func (h *Handlers) GetPepper(ctx context.Context, _ *gen.Call, _ gen.GetPepperRequestObject) (gen.GetPepperResponseObject, error) {
	p, err := h.Rotations.Peppers(ctx)
	if err != nil {
		return nil, err
	}
	return gen.GetPepper200JSONResponse{
		Current:    p.Current,
		Configured: p.Configured,
		Ready:      p.Keys.Ready,
		Waiting:    p.Keys.Waiting,
		HashOnly:   p.Keys.HashOnly,
		Rotation:   rotationView(p.Last),
	}, nil
}

func (h *Handlers) ListHashOnlyKeys(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListHashOnlyKeysRequestObject,
) (gen.ListHashOnlyKeysResponseObject, error) {
	p, after, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	found, err := h.Rotations.HashOnly(ctx, key.ID(after), p.Limit+1)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(k *rotation.HashOnlyKey) []byte { return k.ID[:] })
	return gen.ListHashOnlyKeys200JSONResponse{
		NextCursor: cursor,
		Data: convert.All(found, func(k *rotation.HashOnlyKey) gen.HashOnlyKey {
			return gen.HashOnlyKey{
				ID:         k.ID.String(),
				AccountID:  k.AccountID.String(),
				Name:       k.Name,
				ExternalID: convert.Optional(k.ExternalID),
				Pepper:     convert.Optional(k.Pepper),
				CreatedAt:  k.CreatedAt,
				LastUsedOn: convert.Optional(k.LastUsedOn),
			}
		}),
	}, nil
}

func (h *Handlers) RotatePepper(ctx context.Context, _ *gen.Call, _ gen.RotatePepperRequestObject) (gen.RotatePepperResponseObject, error) {
	r, err := h.Rotations.Start(ctx, rotation.Pepper)
	if err != nil {
		return nil, err
	}
	return gen.RotatePepper202JSONResponse(*rotationView(&r)), nil
}

func rotationView(r *rotation.Rotation) *gen.Rotation {
	if r == nil {
		return nil
	}
	view := &gen.Rotation{
		ID:         ident.Rotation.Format(r.ID),
		Target:     r.Target,
		State:      gen.RotationStateRunning,
		Changed:    r.Changed,
		StartedAt:  r.StartedAt,
		FinishedAt: r.FinishedAt,
	}
	if r.FinishedAt != nil {
		view.State = gen.RotationStateDone
	}
	return view
}
