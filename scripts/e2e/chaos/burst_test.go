package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
)

// Ten thousand accounts that no proxy has heard of ask for the first time, as
// many at once as there are connections. Each is served, or told to come back;
// in the end each has been served once and is charged once.
func TestChaos_burst_10k_accounts(t *testing.T) {
	long(t)
	const accounts, atOnce = 10_000, 400
	r := rig.Get(t)
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	pattern := r.Account(t, rig.AccountSpec{})
	keys := multiply(t, r, pattern, accounts)
	const most = 4 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	var mu sync.Mutex
	got := map[int]int{}
	waiting := make(chan int, accounts)
	for i := range keys {
		waiting <- i
	}
	close(waiting)
	var clients sync.WaitGroup
	for range atOnce {
		clients.Go(func() {
			for i := range waiting {
				for status := 0; status != http.StatusOK && ctx.Err() == nil; {
					answer, err := r.Try(t.Context(), rig.Request{Proxy: i % len(r.Proxies), Path: "/v1/chat/completions", Key: keys[i], Body: question(model)})
					if err != nil {
						t.Errorf("account %d: %v", i, err)
						return
					}
					status = answer.Status
					mu.Lock()
					got[status]++
					mu.Unlock()
					if status != http.StatusOK && status != http.StatusServiceUnavailable {
						t.Errorf("account %d: got %s; want 200 or 503", i, answer)
						return
					}
				}
			}
		})
	}
	clients.Wait()
	if ctx.Err() != nil {
		t.Fatalf("not all are served after %s: %v", most, got)
	}
	r.AwaitSettled(t)
	conn := r.Postgres(t)
	var served, once int
	err := conn.QueryRow(t.Context(), `select count(*), count(*) filter (where n = 1 and spent = -cost) from (
		select u.account_id, count(*) as n, sum(u.cost) as cost,
			(select sum(e.amount) from ledger_entries e join ledger_transactions t on t.id = e.transaction_id
			 where e.account_id = u.account_id and t.kind = 'usage') as spent
		from usage_records u join accounts a on a.id = u.account_id where a.name = $1 and u.cost > 0 group by u.account_id) each`, burstName).Scan(&served, &once)
	if err != nil || served != accounts || once != accounts {
		t.Errorf("%d accounts were charged, %d of them once, %v; want all %d", served, once, err, accounts)
	}
	checkBooks(t, r)
	t.Logf("%d accounts at once: %v", accounts, got)
}

// burstName is the name of the accounts that multiply makes.
const burstName = "burst"

// multiply makes accounts like a pattern, each with its money and a key, and
// returns the keys. The rows are copied: ten thousand times three calls would
// take longer than the test.
func multiply(t *testing.T, r *rig.Rig, pattern *rig.Account, n int) (keys []string) {
	t.Helper()
	hasher := hasherOf(t, r)
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
	defer func() { _ = tx.Rollback(context.Background()) }() // nothing, once it is committed
	made := `create temporary table made on commit drop as select account, key, transaction, hash from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[]) as m (account, key, transaction, hash)`
	if _, err := tx.Exec(t.Context(), made, accounts, ids, transactions, hashes); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		copyRows("accounts", "r.id = $1", `'id', m.account, 'name', '`+burstName+`', 'external_id', null`),
		copyRows("api_keys", "r.account_id = $1", `'id', m.key, 'account_id', m.account, 'lookup_hash', m.hash, 'ciphertext', null, 'cipher_key_id', null`),
		copyRows("pools", "r.account_id = $1", `'id', nextval(pg_get_serial_sequence('pools', 'id')), 'account_id', m.account,
			'key_id', case when r.key_id is not null then m.key end`),
		copyRows("ledger_transactions", "r.kind = 'credit' and r.id in (select transaction_id from ledger_entries where account_id = $1)",
			`'id', m.transaction, 'reference', m.transaction`),
		copyRows("ledger_entries", "r.transaction_id in (select transaction_id from ledger_entries where account_id = $1)",
			`'transaction_id', m.transaction, 'account_id', case when r.account_id is not null then m.account end`),
	} {
		if _, err := tx.Exec(t.Context(), statement, [16]byte(account)); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `analyze`); err != nil { // as the server does by itself, in a while
		t.Fatal(err)
	}
	return keys
}

// copyRows is a statement that copies rows of a table once for each that is
// made, with some columns changed.
func copyRows(table, which, changed string) string {
	return fmt.Sprintf(`insert into %[1]s overriding system value select (jsonb_populate_record(r, jsonb_build_object(%[3]s))).* from %[1]s r, made m where %[2]s`,
		table, which, changed)
}

// hasherOf is what the stack hashes keys with.
func hasherOf(t *testing.T, r *rig.Rig) *apikey.Hasher {
	t.Helper()
	pepper, err := os.ReadFile(filepath.Join(r.Dir(), "secrets", "pepper"))
	if err != nil {
		t.Fatal(err)
	}
	hasher, err := apikey.NewHasher([]byte(strings.TrimSpace(string(pepper))))
	if err != nil {
		t.Fatal(err)
	}
	return hasher
}
