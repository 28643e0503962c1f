package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
)

// Ten thousand accounts that no proxy has cached send their first request, as many
// concurrently as there are connections. Each is served or gets a 503 and retries. In the end
// each has been served once and is charged once.
func TestChaos_burst_10k_accounts(t *testing.T) {
	rig.Long(t)
	const accounts, atOnce = 10_000, 400
	r := rig.Get(t)
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	pattern := r.Account(t, rig.AccountSpec{})
	keys := multiply(t, r, pattern, accounts)
	b := &burst{r: r, model: model, keys: keys, got: map[int]int{}}
	waiting := make(chan int, accounts)
	for i := range keys {
		waiting <- i
	}
	close(waiting)
	var clients sync.WaitGroup
	for range atOnce {
		clients.Go(func() {
			for i := range waiting {
				b.serve(t, i)
			}
		})
	}
	t.Cleanup(clients.Wait)
	for before := 0; before < accounts; before = b.served() {
		rig.Await(t, "another account to be served", func(context.Context) error {
			if n := b.served(); n == before {
				return fmt.Errorf("still %d accounts were served", n)
			}
			return nil
		})
	}
	clients.Wait()
	r.AwaitSettled(t)
	conn := r.Postgres(t)
	var served, once int
	err := conn.QueryRow(t.Context(), `with used as (
			select account_id, count(*) as n, sum(cost) as cost from usage_records where cost > 0 group by account_id
		), spent as (
			select e.account_id, sum(e.amount) as amount from ledger_entries e join ledger_transactions t on t.id = e.transaction_id
			where t.kind = 'usage' group by e.account_id
		)
		select count(*), count(*) filter (where u.n = 1 and s.amount = -u.cost)
		from used u join accounts a on a.id = u.account_id left join spent s on s.account_id = a.id where a.name = $1`, burstName).Scan(&served, &once)
	if err != nil || served != accounts || once != accounts {
		t.Errorf("%d accounts were charged, %d of them once, %v; want all %d", served, once, err, accounts)
	}
	checkInvariants(t, r)
	t.Logf("responses to %d accounts, by status: %v", accounts, b.got)
}

// burst holds the results of the clients.
type burst struct {
	r     *rig.Rig
	model string
	keys  []string

	mu sync.Mutex
	// got counts responses by status.
	got map[int]int
}

func (b *burst) served() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[http.StatusOK]
}

// serve sends the request of an account and repeats it after a 503 until it is served.
func (b *burst) serve(t *testing.T, i int) {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := b.r.Try(t.Context(), rig.Request{Proxy: i % len(b.r.Proxies), Path: "/v1/chat/completions", Key: b.keys[i], Body: question(b.model)})
		if t.Context().Err() != nil {
			return
		}
		if err != nil {
			t.Errorf("account %d: %v", i, err)
			return
		}
		b.mu.Lock()
		b.got[answer.Status]++
		b.mu.Unlock()
		switch answer.Status {
		case http.StatusOK:
			return
		case http.StatusServiceUnavailable:
		default:
			t.Errorf("account %d: got %s; want 200 or 503", i, answer)
			return
		}
	}
}

// burstName is the name of the accounts that multiply creates.
const burstName = "burst"

// multiply creates copies of an account, each with its balance and a key, and returns the keys.
// It copies rows, because three admin API calls for each of ten thousand accounts would take
// too long.
func multiply(t *testing.T, r *rig.Rig, pattern *rig.Account, n int) (keys []string) {
	t.Helper()
	hasher := r.Hasher(t)
	account, err := ident.Account.Parse(pattern.ID)
	if err != nil {
		t.Fatal(err)
	}
	var accounts, ids, transactions [][16]byte
	var hashes [][]byte
	for range n {
		secret := apikey.Generate()
		hash := hasher.Hash(secret)
		keys = append(keys, secret)
		hashes = append(hashes, hash[:])
		accounts, ids, transactions = append(accounts, ident.New()), append(ids, ident.New()), append(transactions, ident.New())
	}
	conn := r.Postgres(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // no effect after the commit
	made := `create temporary table made on commit drop as select account, key, transaction, hash from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[]) as m (account, key, transaction, hash)`
	if _, err := tx.Exec(t.Context(), made, accounts, ids, transactions, hashes); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		copyRows("accounts", "r.id = $1", `'id', m.account, 'name', '`+burstName+`', 'external_id', null`),
		copyRows("api_keys", "r.account_id = $1", `'id', m.key, 'account_id', m.account, 'lookup_hash', m.hash, 'ciphertext', null, 'cipher_key_id', null`),
		copyRows("pools", "r.account_id = $1", `'id', nextval(pg_get_serial_sequence('pools', 'id')), 'account_id', m.account,
			'key_id', case when r.key_id is not null then m.key end`),
		copyRows("ledger_transactions", "r.kind = 'payment' and r.id in (select transaction_id from ledger_entries where account_id = $1)",
			`'id', m.transaction, 'reference', m.transaction`),
		copyRows("ledger_entries", "r.transaction_id in (select transaction_id from ledger_entries where account_id = $1)",
			`'transaction_id', m.transaction, 'account_id', case when r.account_id is not null then m.account end`),
		copyRows("credits", "r.account_id = $1", `'transaction_id', m.transaction, 'account_id', m.account`),
	} {
		if _, err := tx.Exec(t.Context(), statement, [16]byte(account)); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `analyze`); err != nil { // otherwise autovacuum would do so during the test
		t.Fatal(err)
	}
	return keys
}

// copyRows returns a statement that copies the rows of a table once for each account, with
// some columns changed.
func copyRows(table, which, changed string) string {
	return fmt.Sprintf(`insert into %[1]s overriding system value select (jsonb_populate_record(r, jsonb_build_object(%[3]s))).* from %[1]s r, made m where %[2]s`,
		table, which, changed)
}
