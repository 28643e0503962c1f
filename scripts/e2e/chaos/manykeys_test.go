package chaos

import (
	"fmt"
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/apikey"
	"modelgateway/shared/money"
)

// An account with 20,000 keys, each with a spend limit, is served with many of them at once.
// Each limit applies to its key alone. When the account is suspended, all keys are refused.
func TestAccountWithManyLimitedKeys(t *testing.T) {
	rig.Long(t)
	const keys, used, limit = 20_000, 200, "0.50"
	r := rig.Get(t)
	model, account := r.Model(t, rig.Model{Formats: []string{"chat"}}), r.Account(t, rig.AccountSpec{})
	secrets := importLimited(t, r, account, keys, limit)
	statuses := make(chan int, used)
	for i := range used {
		go func() {
			answer, err := r.Ask(t.Context(), rig.Request{
				Proxy: i % len(r.Proxies), Path: "/v1/chat/completions", Key: secrets[i*(keys/used)], Body: question(model),
			})
			if err != nil {
				answer = &rig.Answer{}
			}
			statuses <- answer.Status
		}()
	}
	got := map[int]int{}
	for range used {
		got[<-statuses]++
	}
	if got[http.StatusOK] != used {
		t.Errorf("requests with %d of %d keys: got %v; want 200", used, keys, got)
	}
	account.AwaitUsage(t, used)
	checkCharged(t, r, account)
	most, err := money.Parse(limit)
	if err != nil {
		t.Fatal(err)
	}
	// The spend of each used key left its own pool, and only that one.
	n, err := r.Number(t.Context(), `select count(*) from pools p join api_keys k on k.id = p.key_id
		where k.name = $1 and p.kind = 2 and p.free = $2 - (select coalesce(sum(u.cost), 0) from usage_records u where u.key_id = k.id)`, manyName, int64(most))
	if err != nil || n != keys {
		t.Errorf("%d keys have their limit less their own usage left, %v; want %d", n, err, keys)
	}
	account.Suspend(t)
	for proxy := range r.Proxies {
		r.AwaitStatus(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: secrets[keys-1-proxy], Body: question(model)}, http.StatusUnauthorized)
	}
	checkInvariants(t, r)
}

// manyName is the name of the keys that importLimited creates.
const manyName = "one of many"

// importLimited imports keys with a spend limit, and returns their secrets.
func importLimited(t *testing.T, r *rig.Rig, account *rig.Account, n int, limit string) (secrets []string) {
	t.Helper()
	const atOnce = 1000
	hasher := r.Hasher(t)
	for len(secrets) < n {
		var batch adminclient.KeyImport
		for range min(atOnce, n-len(secrets)) {
			secret := apikey.Generate()
			secrets = append(secrets, secret)
			batch.Keys = append(batch.Keys, adminclient.ImportedKey{
				AccountID: account.ID, Name: manyName, Hash: hasher.Hash(secret).String(), SpendLimit: &limit,
			})
		}
		if answer, err := r.Admin.ImportKeys(t.Context(), nil, batch); err != nil || len(answer.Value.Data) != len(batch.Keys) {
			t.Fatal(fmt.Errorf("import keys: %w", err))
		}
	}
	return secrets
}
