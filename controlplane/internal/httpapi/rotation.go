package httpapi

import (
	"context"
	"slices"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/shared/ident"
)

// GetMasterKey implements gen.StrictServerInterface.
func (s *server) GetMasterKey(ctx context.Context, _ gen.GetMasterKeyRequestObject) (gen.GetMasterKeyResponseObject, error) {
	m, err := s.cfg.Rotations.Masters(ctx)
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
	view.Keys = all(slices.Compact(ids), func(id *string) gen.MasterKey {
		h := held[*id]
		return gen.MasterKey{
			ID: *id, Configured: slices.Contains(m.Configured, *id), Current: *id == m.Current, DataKeys: h.DataKeys, Secrets: h.Secrets,
			Removable: *id != m.Current && h.DataKeys+h.Secrets == 0,
		}
	})
	return view, nil
}

// RotateMasterKey implements gen.StrictServerInterface.
func (s *server) RotateMasterKey(ctx context.Context, _ gen.RotateMasterKeyRequestObject) (gen.RotateMasterKeyResponseObject, error) {
	r, err := s.cfg.Rotations.Start(ctx, rotation.MasterKey)
	if err != nil {
		return nil, err
	}
	return gen.RotateMasterKey202JSONResponse(*rotationView(&r)), nil
}

// GetPepper implements gen.StrictServerInterface.
func (s *server) GetPepper(ctx context.Context, _ gen.GetPepperRequestObject) (gen.GetPepperResponseObject, error) {
	p, err := s.cfg.Rotations.Peppers(ctx)
	if err != nil {
		return nil, err
	}
	return gen.GetPepper200JSONResponse{
		Current: p.Current, Configured: p.Configured, Ready: p.Keys.Ready, Waiting: p.Keys.Waiting, HashOnly: p.Keys.HashOnly,
		Rotation: rotationView(p.Last),
	}, nil
}

// ListHashOnlyKeys implements gen.StrictServerInterface.
func (s *server) ListHashOnlyKeys(ctx context.Context, r gen.ListHashOnlyKeysRequestObject) (gen.ListHashOnlyKeysResponseObject, error) {
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := p.uuid()
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Rotations.HashOnly(ctx, key.ID(after), p.limit+1)
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(k *rotation.HashOnlyKey) []byte { return k.ID[:] })
	return gen.ListHashOnlyKeys200JSONResponse{
		NextCursor: cursor,
		Data: all(found, func(k *rotation.HashOnlyKey) gen.HashOnlyKey {
			return gen.HashOnlyKey{
				ID: k.ID.String(), AccountID: k.AccountID.String(), Name: k.Name, ExternalID: present(k.ExternalID), Pepper: present(k.Pepper),
				CreatedAt: k.CreatedAt, LastUsedOn: present(k.LastUsedOn),
			}
		}),
	}, nil
}

// RotatePepper implements gen.StrictServerInterface.
func (s *server) RotatePepper(ctx context.Context, _ gen.RotatePepperRequestObject) (gen.RotatePepperResponseObject, error) {
	r, err := s.cfg.Rotations.Start(ctx, rotation.Pepper)
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
		ID: ident.Rotation.Format(r.ID), Target: r.Target, State: gen.Running, Changed: r.Changed, StartedAt: r.StartedAt,
		FinishedAt: r.FinishedAt,
	}
	if r.FinishedAt != nil {
		view.State = gen.Done
	}
	return view
}
