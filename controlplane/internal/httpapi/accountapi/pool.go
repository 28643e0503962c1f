package accountapi

import (
	"context"
	"strconv"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/wire"
)

func (h *Handlers) ListAccountPools(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListAccountPoolsRequestObject,
) (gen.ListAccountPoolsResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, after, err := convert.ReadPageByNumber(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, id); err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	page, err := h.Holdings.Pools(ctx, id, wire.PoolID(after), p.Limit+1)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, page.Pools, func(p *holding.Pool) []byte { return strconv.AppendInt(nil, int64(p.ID), 10) })
	silent := page.Silent
	if silent == nil {
		silent = []string{}
	}

	return gen.ListAccountPools200JSONResponse{
		Currency:      currency,
		Data:          convert.All(found, poolView),
		SilentProxies: silent,
		NextCursor:    cursor,
	}, nil
}

func poolView(p *holding.Pool) gen.Pool {
	amount := func(n int64) string { return convert.PoolAmount(p.Kind, n) }
	view := gen.Pool{
		ID:          int64(p.ID),
		Kind:        convert.PoolKind(p.Kind),
		Unlimited:   p.Unlimited,
		Total:       amount(p.Total),
		Free:        amount(p.Free),
		Settled:     amount(p.Settled),
		Outstanding: amount(p.Outstanding()),
		Late:        amount(p.Late),
		Overrun:     amount(p.Overrun),
		Central:     p.Central,
		Leases: convert.All(p.Leases, func(l *holding.Lease) gen.PoolLease {
			lease := gen.PoolLease{
				Session:     l.Session,
				Proxy:       l.Proxy,
				State:       gen.ProxyState(l.State),
				Outstanding: amount(l.Outstanding),
				Recall:      gen.PoolLeaseRecall(l.Recall),
			}
			if l.Running != nil {
				lease.Running = convert.Optional(amount(*l.Running))
			}
			return lease
		}),
	}
	if p.KeyID != (key.ID{}) {
		view.KeyID = convert.Optional(p.KeyID.String())
	}

	return view
}
