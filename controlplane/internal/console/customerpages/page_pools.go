package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type poolsView struct {
	*head
	List  *adminclient.PoolList
	Pools []pool
	Pages kit.Pages
}

// pool is a pool of an account with a bar of its parts; Key is the name of the key of a spend limit.
type pool struct {
	adminclient.Pool
	Key, Unit string
	Bar       []view.Part
	// Little says that less than a quarter of what is left is free. Central alone does not: a pool begins so.
	Little bool
}

// littleLeft is a quarter of a bar.
const littleLeft = 250

// accountPools shows how much of the balance, the slots and the spend limits is free, and which proxy holds the rest.
func accountPools(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "money")
	if err != nil {
		return nil, err
	}

	answer, err := r.API.ListAccountPools(
		r.Context(),
		h.ID,
		&adminclient.ListAccountPoolsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)},
	)
	if err != nil {
		return nil, err
	}

	var ids []string
	for _, p := range answer.Value.Data {
		if p.KeyID != nil {
			ids = append(ids, *p.KeyID)
		}
	}

	names, err := kit.Names(r, ids)
	if err != nil {
		return nil, err
	}

	v := &poolsView{head: h, List: answer.Value, Pages: kit.PagesOf(r, answer.Value.NextCursor)}
	for _, p := range answer.Value.Data {
		shown := pool{Pool: p, Unit: h.Balance.Currency, Bar: view.Bar(
			view.Part{
				Kind: "free",
				Name: "not given to a proxy",
				Text: p.Free,
			},
			view.Part{Kind: "held", Name: "held by proxies", Text: p.Outstanding},
		)}
		if p.Kind == adminclient.PoolKindSlots {
			shown.Unit = "slots"
		}
		shown.Little = !p.Unlimited && p.Central && len(shown.Bar) > 0 && shown.Bar[0].Width < littleLeft
		if p.KeyID != nil {
			shown.Key = names[*p.KeyID]
		}
		v.Pools = append(v.Pools, shown)
	}

	return h.page("account_pools", "Money in use", "gwctl account-pools list "+h.ID, v), nil
}
