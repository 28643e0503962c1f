package moneystore_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Refunds of one credit and of one request at once, while requests are charged and another credit expires, give back no more than was
// given and charged, and every unit of every credit is used, paid back, expired or left.
func TestRefundsAtOnceStayWithinWhatTheyRefund(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, ctx := &w.accounts[0], context.WithoutCancel(t.Context())
	store := moneystore.NewLedger(w.db)
	paid, _, err := store.Post(ctx, ledger.Transaction{
		ID: ledger.ID(ident.New()), AccountID: a.id, Kind: ledger.Payment, Amount: 100, Reference: ident.Transaction.New(),
	})
	storetest.Check(t, err)
	a.balance += 100
	storetest.Check(t, w.promote(ctx, a, 30))
	promotion := a.promotions[0]
	first, err := w.event(a, 9, time.Now())
	storetest.Check(t, err)
	_, err = w.settle(ctx, first)
	storetest.Check(t, err)
	var charged event.Usage
	storetest.Check(t, json.Unmarshal(first, &charged))
	a.balance, a.spent = a.balance-9, 9

	var all sync.WaitGroup
	var mu sync.Mutex
	given := map[string]money.Nano{}
	refund := func(what string, amount money.Nano, name func(*ledger.Transaction)) {
		all.Go(func() {
			refund := ledger.Transaction{
				ID: ledger.ID(ident.New()), AccountID: a.id, Kind: ledger.Refund, Amount: amount, Reference: ident.Transaction.New(), MayOverdraw: true,
			}
			name(&refund)
			_, _, err := store.Post(ctx, refund)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				given[what] += amount
			} else if !errors.Is(err, ledger.ErrRefundTooLarge) {
				t.Error(err)
			}
		})
	}
	for i := range 20 {
		refund("payment", -7, func(r *ledger.Transaction) { r.CreditID = paid.ID })
		refund("promotion", -4, func(r *ledger.Transaction) { r.CreditID = promotion })
		refund("request", 2, func(r *ledger.Transaction) { r.RequestID = charged.RequestID })
		if i%4 == 0 {
			raw, err := w.event(a, 1, time.Now())
			storetest.Check(t, err)
			all.Go(func() {
				if _, err := w.settle(ctx, raw); err != nil {
					t.Error(err)
				}
			})
			a.balance, a.spent = a.balance-1, a.spent+1
		}
		if i == 10 {
			all.Go(func() {
				if err := w.expire(ctx, a); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if given["payment"] != -98 || given["request"] != 8 || given["promotion"] < -30 {
		t.Errorf("paid back %v; want 98 of 100, 8 of 9 and at most 30", given)
	}
	a.balance += given["payment"] + given["promotion"] + given["request"]
	w.verify()
	for _, c := range w.credits(a) {
		if c.Used+c.Refunded+c.Expired+c.Left() != c.Amount || min(c.Used, c.Refunded, c.Expired, c.Left()) < 0 {
			t.Errorf("%+v loses units", c)
		}
	}
}
