package accountapi

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

func (h *Handlers) CreateLimit(ctx context.Context, call *gen.Call, r gen.CreateLimitRequestObject) (gen.CreateLimitResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	var invalid validation.Errors
	amount, err := convert.Amount("amount", &r.Body.Amount)
	n := spendlimit.New{
		ID:        call.OperationID,
		AccountID: owner,
		Name:      convert.Text(r.Body.Name),
		Amount:    amount,
		Window:    readWindow(&r.Body.Window, &invalid),
		Models:    r.Body.Models,
	}
	n.ProjectID = projectID("project_id", r.Body.ProjectID, &invalid)
	if r.Body.KeyID != nil {
		id, unknown := key.ParseID(*r.Body.KeyID)
		if unknown != nil {
			invalid.Add("key_id", "is not the id of a key")
		}
		n.KeyID = &id
	}
	if err := validation.Merge(err, invalid.Err(), n.Validate()); err != nil {
		return nil, err
	}

	made, err := h.Limits.Create(ctx, n)
	if err != nil {
		return nil, err
	}

	call.Changes.AddKey(made.Change)
	call.ETag = made.Limit.Tag()
	return gen.CreateLimit201JSONResponse(limitView(&made.Limit)), nil
}

func readWindow(w *gen.LimitPeriod, invalid *validation.Errors) limit.Window {
	read := limit.Window{
		Period:        limit.Period(w.Period),
		TimeZone:      convert.Text(w.TimeZone),
		LengthSeconds: convert.Value(w.LengthSeconds),
	}
	if w.Anchor != nil {
		if w.Anchor.Nanosecond() != 0 {
			invalid.Add("window.anchor", "must be in whole seconds")
		}
		read.AnchorUnix = w.Anchor.Unix()
	}
	return read
}

func (h *Handlers) ListLimits(ctx context.Context, _ *gen.Call, r gen.ListLimitsRequestObject) (gen.ListLimitsResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, after, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	query := spendlimit.Query{AccountID: owner, After: spendlimit.ID(after), Limit: p.Limit + 1}
	var invalid validation.Errors
	if r.Params.Scope != nil {
		query.Scope = limit.Scope(*r.Params.Scope)
		if !slices.Contains([]limit.Scope{limit.Account, limit.Project, limit.Key}, query.Scope) {
			invalid.Add("scope", "must be account, project or key")
		}
	}
	_, ofKey := convert.ReadOwner(&invalid, nil, r.Params.KeyID)
	if r.Params.KeyID != nil {
		query.KeyID = &ofKey
	}
	ofProject := convert.ReadProject(&invalid, r.Params.ProjectID)
	if r.Params.ProjectID != nil {
		query.ProjectID = &ofProject
	}
	if err := invalid.Err(); err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, owner); err != nil {
		return nil, err
	}

	found, err := h.Limits.List(ctx, query)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(l *spendlimit.Limit) []byte { return l.ID[:] })
	return gen.ListLimits200JSONResponse{Data: convert.All(found, limitView), NextCursor: cursor}, nil
}

func (h *Handlers) GetLimit(ctx context.Context, call *gen.Call, r gen.GetLimitRequestObject) (gen.GetLimitResponseObject, error) {
	id, err := spendlimit.ParseID(r.LimitID)
	if err != nil {
		return nil, err
	}
	l, err := h.Limits.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	call.ETag = l.Tag()
	return gen.GetLimit200JSONResponse(limitView(&l)), nil
}

func (h *Handlers) UpdateLimit(ctx context.Context, call *gen.Call, r gen.UpdateLimitRequestObject) (gen.UpdateLimitResponseObject, error) {
	id, err := spendlimit.ParseID(r.LimitID)
	if err != nil {
		return nil, err
	}

	match, unread := etag.Parse(convert.Text(r.Params.IfMatch))
	patch := spendlimit.Patch{Match: match, Name: r.Body.Name}
	if models, given := r.Body.Models.Get(); given {
		patch.Models = new(convert.Value(models))
	}
	patch.Amount, err = convert.Amount("amount", r.Body.Amount)
	raisedTo, toGiven := r.Body.RaisedTo.Get()
	raisedUntil, untilGiven := r.Body.RaisedUntil.Get()
	patch.SetRaise, patch.RaisedUntil = toGiven || untilGiven, raisedUntil
	var unreadRaise error
	patch.RaisedTo, unreadRaise = convert.Amount("raised_to", raisedTo)
	if err := validation.Merge(unread, err, unreadRaise, patch.Validate()); err != nil {
		return nil, err
	}

	changed, err := h.Limits.Patch(ctx, id, patch)
	if err != nil {
		return nil, err
	}

	call.Changes.AddKey(changed.Change)
	call.ETag = changed.Limit.Tag()
	return gen.UpdateLimit200JSONResponse(limitView(&changed.Limit)), nil
}

func (h *Handlers) DeleteLimit(ctx context.Context, call *gen.Call, r gen.DeleteLimitRequestObject) (gen.DeleteLimitResponseObject, error) {
	id, err := spendlimit.ParseID(r.LimitID)
	if err != nil {
		return nil, err
	}
	match, err := etag.Parse(convert.Text(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	change, err := h.Limits.Remove(ctx, id, match)
	if err != nil {
		return nil, err
	}
	call.Changes.AddKey(change)
	return gen.DeleteLimit204Response{}, nil
}

func (h *Handlers) ResetLimit(ctx context.Context, call *gen.Call, r gen.ResetLimitRequestObject) (gen.ResetLimitResponseObject, error) {
	id, err := spendlimit.ParseID(r.LimitID)
	if err != nil {
		return nil, err
	}
	reset, err := h.Limits.Reset(ctx, id, call.OperationID)
	if err != nil {
		return nil, err
	}
	call.Changes.AddKey(reset.Change)
	call.ETag = reset.Limit.Tag()
	return gen.ResetLimit200JSONResponse(limitView(&reset.Limit)), nil
}

func (h *Handlers) ListLimitWindows(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListLimitWindowsRequestObject,
) (gen.ListLimitWindowsResponseObject, error) {
	id, err := spendlimit.ParseID(r.LimitID)
	if err != nil {
		return nil, err
	}

	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	before := wire.PoolID(0)
	if p.Cursor != nil {
		if len(p.Cursor) != 8 {
			return nil, convert.InvalidCursor()
		}
		before = wire.PoolID(binary.BigEndian.Uint64(p.Cursor) >> 1)
	}

	found, err := h.Limits.Windows(ctx, id, before, p.Limit+1)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(w *spendlimit.Window) []byte {
		return binary.BigEndian.AppendUint64(nil, uint64(w.Pool)<<1)
	})
	return gen.ListLimitWindows200JSONResponse{Data: convert.All(found, windowView), NextCursor: cursor}, nil
}

func limitView(l *spendlimit.Limit) gen.SpendLimit {
	view := gen.SpendLimit{
		ID:        l.ID.String(),
		AccountID: l.AccountID.String(),
		Name:      convert.Optional(l.Name),
		Amount:    l.Amount.String(),
		Window: gen.LimitPeriod{
			Period:   gen.LimitPeriodPeriod(l.Window.Period),
			TimeZone: convert.Optional(l.Window.TimeZone),
		},
		Models:    append([]string{}, l.Models...),
		CreatedAt: l.CreatedAt,
		UpdatedAt: l.UpdatedAt,
		RemovedAt: l.RemovedAt,
	}
	if l.ProjectID != nil {
		view.ProjectID = convert.Optional(l.ProjectID.String())
	}
	if l.RaisedUntil != nil && l.RaisedUntil.After(time.Now()) {
		view.RaisedTo, view.RaisedUntil = convert.Optional(l.RaisedTo.String()), l.RaisedUntil
	}
	if l.KeyID != nil {
		view.KeyID = convert.Optional(l.KeyID.String())
	}
	if l.Window.LengthSeconds != 0 {
		view.Window.LengthSeconds = &l.Window.LengthSeconds
	}
	if l.Window.AnchorUnix != 0 {
		anchor := time.Unix(l.Window.AnchorUnix, 0).UTC()
		view.Window.Anchor = &anchor
	}
	if l.Current != nil {
		current := windowView(l.Current)
		view.Current = &current
	}
	return view
}

func windowView(w *spendlimit.Window) gen.LimitWindow {
	return gen.LimitWindow{
		StartsAt: w.StartsAt,
		EndsAt:   w.EndsAt,
		Amount:   w.Amount.String(),
		Spent:    w.Spent.String(),
		Reserved: w.Reserved.String(),
		Left:     w.Left.String(),
	}
}
