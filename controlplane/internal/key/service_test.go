package key_test

import (
	"context"
	"testing"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// listStore has a list of keys.
type listStore struct {
	key.Store
	keys []key.Key
}

func (s listStore) List(context.Context, key.Query) ([]key.Key, error) { return s.keys, nil }

func (s listStore) Get(context.Context, key.ID) (key.Key, error) { return s.keys[0], nil }

// fleet answers for accounts, and counts the questions.
type fleet struct {
	running map[string]map[wire.PoolID]int64
	asked   int
}

func (f *fleet) RunningByPool(_ context.Context, account string) (map[wire.PoolID]int64, bool) {
	f.asked++
	running, answered := f.running[account]
	return running, answered
}

// Idle units that proxies hold of a limit are not reserved.
func TestReservedAmountsAreThoseOfRunningRequests(t *testing.T) {
	t.Parallel()
	first, second, silent := account.ID(ident.New()), account.ID(ident.New()), account.ID(ident.New())
	store := listStore{}
	for i, k := range []key.Key{
		{AccountID: first, Reserved: 40},
		{AccountID: first, Reserved: 50},
		{AccountID: second},
		{AccountID: second, Reserved: 60},
		{AccountID: silent, Reserved: 70},
		{AccountID: second, Reserved: 80},
		{AccountID: silent, Reserved: 90},
	} {
		k.LimitPool = wire.PoolID(i + 1)
		store.keys = append(store.keys, k)
	}
	proxies := &fleet{running: map[string]map[wire.PoolID]int64{first.String(): {1: 7, 2: 51}, second.String(): {}}}
	s := key.NewService(key.Config{Store: store, Holdings: proxies})
	one, err := s.Get(t.Context(), key.ID{})
	if err != nil || one.Reserved != 7 || proxies.asked != 1 {
		t.Errorf("got %v, %v after %d questions; want 7 reserved after one", one.Reserved, err, proxies.asked)
	}
	proxies.asked = 0
	found, err := s.List(t.Context(), key.Query{})
	if err != nil || proxies.asked != 3 {
		t.Errorf("got %v after %d questions; want one for each account", err, proxies.asked)
	}
	// After the silent account nobody is asked.
	for i, want := range []money.Nano{7, 50, 0, 0, 70, 80, 90} {
		if found[i].Reserved != want {
			t.Errorf("key %d: %v are reserved; want %v", i, found[i].Reserved, want)
		}
	}
}
