package account

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// listStore is a Store that can only list accounts.
type listStore struct {
	Store
	accounts []Account
}

func (l listStore) List(context.Context, Query) ([]Account, error) { return l.accounts, nil }

// fleet reports one reserved unit for each account, unless it is silent.
type fleet struct {
	mu     sync.Mutex
	asked  int
	silent bool
}

func (f *fleet) Running(_ context.Context, _ string, pool wire.PoolID) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if pool == 0 {
		return 0, false
	}
	return 1, !f.silent
}

// A list shows what running requests reserve, without idle units of leases. After
// a proxy has not answered, the others are not asked.
func TestListAsksProxiesForReservedAmounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		silent bool
		want   money.Nano
		asked  func(n int) bool
	}{
		{false, 1, func(n int) bool { return n == 99 }},
		{true, 40, func(n int) bool { return n >= 1 && n <= maxConcurrentQueries }},
	}
	for _, tt := range tests {
		store, proxies := listStore{}, &fleet{silent: tt.silent}
		for i := range 100 {
			a := Account{ID: ID(ident.New()), Name: strconv.Itoa(i), Balance: Balance{Pool: wire.PoolID(i + 1), Balance: 100, Reserved: 40, Available: 60}}
			if i == 50 {
				a.Balance.Reserved, a.Balance.Available = 0, 100
			}
			store.accounts = append(store.accounts, a)
		}
		found, err := NewService(Config{Store: store, Holdings: proxies}).List(t.Context(), Query{})
		if err != nil || len(found) != 100 {
			t.Fatalf("%d accounts, %v", len(found), err)
		}
		for i, a := range found {
			want := tt.want
			if i == 50 {
				want = 0
			}
			if a.Name != strconv.Itoa(i) || a.Balance.Reserved != want || a.Balance.Available != 100-want {
				t.Errorf("silent %v: account %d is %s with %+v; want %d reserved", tt.silent, i, a.Name, a.Balance, want)
			}
		}
		if !tt.asked(proxies.asked) {
			t.Errorf("silent %v: asked %d times", tt.silent, proxies.asked)
		}
	}
}
