package accountstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/seal"
	"modelgateway/shared/wire"
)

// keyed is a replica with its keys.
type keyed struct {
	vault     *vault.Vault
	rotations *rotation.Service
	keys      *key.Service
	hasher    *apikey.Hasher
}

// keyed starts a replica; the first master key and pepper are the current ones.
func (w *leaseWorld) keyed(masters map[string][]byte, master string, peppers ...string) keyed {
	w.T.Helper()
	db := w.Replica()
	store := accountstore.NewRotations(db)
	var r keyed
	var ids []string
	for i, pepper := range peppers {
		h, err := apikey.NewHasher([]byte(pepper))
		w.must(err)
		if i == 0 {
			r.hasher = h
		}
		ids = append(ids, h.ID())
	}
	var err error
	r.vault, err = vault.New(master, masters, func(id string) (vault.DataKey, error) { return store.DataKey(w.T.Context(), id) })
	w.must(err)
	r.rotations = rotation.NewService(rotation.Config{Store: store, Vault: r.vault, Hasher: r.hasher, Peppers: ids, MinDuration: time.Nanosecond})
	r.keys = key.NewService(key.Config{Store: accountstore.NewKeys(db), Vault: r.vault, Hasher: r.hasher, Log: slog.New(slog.DiscardHandler)})
	return r
}

func (w *leaseWorld) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *leaseWorld) issue(r keyed, owner ident.UUID) (key.ID, string) {
	w.T.Helper()
	k, text, err := r.keys.Issue(w.T.Context(), key.New{ID: ident.New(), AccountID: account.ID(owner), Name: "k"})
	w.must(err)
	return k.ID, text
}

const oldPepper, newPepper = "the pepper of before", "the pepper of these days"

// All secrets that are encrypted directly under a master key are encrypted under a data
// key under the new master key, while keys are issued and shown and replicas stop.
func TestRotateMasterKey(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.Customer(1000, storetest.Unlimited, 5)
	m1, m2 := seal.NewSecret(), seal.NewSecret()
	before := w.keyed(map[string][]byte{"m1": m1}, "m1", oldPepper)
	w.must(before.rotations.Prepare(t.Context())) // there is an account: the database is not new
	texts := map[key.ID]string{}
	for range 450 {
		id, text := w.issue(before, c.Account)
		texts[id] = text
	}
	hooks := webhook.NewService(webhook.Config{Store: webhookstore.New(w.Replica()), Vault: before.vault})
	endpoint, secret, err := hooks.Create(t.Context(), webhook.Endpoint{ID: webhook.ID(ident.New()), URL: "https://example.com"})
	w.must(err)
	answers := idempotency.New(accountstore.NewIdempotency(w.Replica()), before.vault)
	request := idempotency.Request{Actor: "a", Key: "k", Method: "POST", Path: "/"}
	attempt, err := answers.Begin(t.Context(), request)
	w.must(err)
	w.must(answers.Finish(t.Context(), attempt, idempotency.Response{Status: 200, Body: []byte("an answer")}))

	both := map[string][]byte{"m1": m1, "m2": m2}
	replicas := []keyed{w.keyed(both, "m2", oldPepper), w.keyed(both, "m2", oldPepper)}
	first, err := replicas[0].rotations.Start(t.Context(), rotation.MasterKey)
	w.must(err)
	if again, err := replicas[1].rotations.Start(t.Context(), rotation.MasterKey); err != nil || again.ID != first.ID {
		t.Errorf("started again: %v, %v; want the one that runs", again, err)
	}
	if _, err := before.rotations.Start(t.Context(), rotation.MasterKey); !errors.Is(err, rotation.ErrRunning) {
		t.Errorf("with the old configuration: got %v; want %v", err, rotation.ErrRunning)
	}
	w.must(before.rotations.Work(t.Context())) // which must not move anything back
	var mu sync.Mutex
	var done sync.WaitGroup
	for i := range replicas {
		done.Go(func() {
			for range 20 {
				k, text, err := replicas[i].keys.Issue(t.Context(), key.New{ID: ident.New(), AccountID: account.ID(c.Account), Name: "meanwhile"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				texts[k.ID] = text
				mu.Unlock()
				if shown, err := replicas[1-i].keys.Reveal(t.Context(), k.ID); err != nil || shown != text {
					t.Errorf("shown by the other replica: %v", err)
				}
			}
		})
		done.Go(func() {
			if err := replicas[i].rotations.Work(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	w.must(replicas[0].rotations.Work(t.Context())) // what was locked by others when they came by
	state, err := replicas[0].rotations.MasterKeys(t.Context())
	w.must(err)
	if state.Last == nil || state.Last.FinishedAt == nil || len(state.Holdings) != 1 || state.Holdings[0].MasterKey != "m2" || state.Holdings[0].Secrets != 0 {
		t.Fatalf("after the rotation: %+v, %+v", state, state.Last)
	}

	// The old key is removed.
	after := w.keyed(map[string][]byte{"m2": m2}, "m2", oldPepper)
	w.must(after.rotations.Prepare(t.Context()))
	for id, text := range texts {
		if shown, err := after.keys.Reveal(t.Context(), id); err != nil || shown != text {
			t.Fatalf("key %s cannot be shown: %v", id, err)
		}
	}
	again, err := idempotency.New(accountstore.NewIdempotency(w.Replica()), after.vault).Begin(t.Context(), request)
	if err != nil || string(again.Before.Body) != "an answer" {
		t.Errorf("the stored response: %v, %v", again.Before, err)
	}
	var sealed vault.Sealed
	w.must(w.SQL.QueryRow(t.Context(), "select sealed, cipher_key_id from webhook_secrets").Scan(&sealed.Text, &sealed.KeyID))
	if text, err := after.vault.Open(sealed, webhook.SecretContext(ident.UUID(endpoint.ID))); err != nil || string(text) != secret {
		t.Errorf("the secret of the endpoint: %v", err)
	}

	// The next rotation only touches the data keys.
	m3 := seal.NewSecret()
	third := w.keyed(map[string][]byte{"m2": m2, "m3": m3}, "m3", oldPepper)
	_, err = third.rotations.Start(t.Context(), rotation.MasterKey)
	w.must(err)
	w.must(third.rotations.Work(t.Context()))
	if state, err = third.rotations.MasterKeys(t.Context()); err != nil || state.Last.FinishedAt == nil || state.Last.Changed != 1 ||
		!slices.Equal(state.Holdings, []rotation.Holding{{MasterKey: "m3", DataKeys: 2}}) {
		t.Errorf("after the second rotation: %+v, %+v, %v", state, state.Last, err)
	}
}

// A new database gets one data key, even if several replicas start.
func TestFirstDataKey(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	m1 := map[string][]byte{"m1": seal.NewSecret()}
	replicas := []keyed{w.keyed(m1, "m1", oldPepper), w.keyed(m1, "m1", oldPepper), w.keyed(m1, "m1", oldPepper)}
	var done sync.WaitGroup
	for _, r := range replicas {
		done.Go(func() {
			if err := r.rotations.Prepare(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := storetest.Scalar[int](w, "select count(*) from data_keys"); n != 1 {
		t.Errorf("%d data keys; want one", n)
	}
	under := map[string]bool{}
	for _, r := range replicas {
		under[r.vault.Seal([]byte("x"), "y").KeyID[:3]] = true
	}
	if diff := cmp.Diff(map[string]bool{"dk_": true}, under); diff != "" {
		t.Errorf("sealed under (-want +got):\n%s", diff)
	}
}

// While a row cannot be decrypted, its key is not reported as removable. All other rows
// are rotated.
func TestRotationReportsAnUnreadableRow(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.Customer(1000, storetest.Unlimited, 5)
	m1 := map[string][]byte{"m1": seal.NewSecret(), "m2": seal.NewSecret()}
	r := w.keyed(m1, "m1", oldPepper)
	bad, _ := w.issue(r, c.Account)
	w.Exec("update api_keys set cipher_key_id = 'm0' where id = $1", ident.UUID(bad))
	w.issue(r, c.Account)
	moving := w.keyed(m1, "m2", oldPepper)
	_, err := moving.rotations.Start(t.Context(), rotation.MasterKey)
	w.must(err)
	if err := moving.rotations.Work(t.Context()); !errors.Is(err, vault.ErrUnknownKey) {
		t.Errorf("got %v; want %v", err, vault.ErrUnknownKey)
	}
	state, err := moving.rotations.MasterKeys(t.Context())
	w.must(err)
	want := []rotation.Holding{{MasterKey: "m0", Secrets: 1}, {MasterKey: "m2", DataKeys: 1}}
	if diff := cmp.Diff(want, state.Holdings); diff != "" || state.Last.FinishedAt != nil {
		t.Errorf("finished %v; held (-want +got):\n%s", state.Last.FinishedAt, diff)
	}
}

// All rows that can be decrypted are rotated to another master key and another pepper,
// even if unreadable rows come first and are more than a step reads. The unreadable rows
// are counted, and some are reported.
func TestRotationSkipsUnreadableRows(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.Customer(1000, storetest.Unlimited, 5)
	masters := map[string][]byte{"m1": seal.NewSecret(), "m2": seal.NewSecret()}
	before, after := w.keyed(masters, "m1", oldPepper), w.keyed(masters, "m2", newPepper, oldPepper)
	const bad, good = 450, 250
	var first key.ID
	for i := range bad + good {
		id, _ := w.issue(before, c.Account)
		if i == 0 {
			first = id
		}
		if i == bad-1 {
			w.Exec("update api_keys set cipher_key_id = 'm0' where ciphertext is not null")
		}
	}
	passedOver := func(err error) {
		t.Helper()
		var passed *rotation.SkippedError
		if !errors.As(err, &passed) || passed.Count != bad || len(passed.Some) != 20 || !strings.Contains(passed.Error(), first.String()) || !errors.Is(err, vault.ErrUnknownKey) {
			t.Fatalf("got %v; want %d rows skipped, and the first ones named", err, bad)
		}
	}
	_, err := after.rotations.Start(t.Context(), rotation.MasterKey)
	w.must(err)
	passedOver(after.rotations.Work(t.Context()))
	masterState, err := after.rotations.MasterKeys(t.Context())
	w.must(err)
	want := []rotation.Holding{{MasterKey: "m0", Secrets: bad}, {MasterKey: "m2", DataKeys: 1}}
	if diff := cmp.Diff(want, masterState.Holdings); diff != "" || masterState.Last.FinishedAt != nil || masterState.Last.Changed != good {
		t.Errorf("%+v; held (-want +got):\n%s", masterState.Last, diff)
	}

	w.Exec("update rotations set finished_at = now()") // as if they had been given up
	_, err = after.rotations.Start(t.Context(), rotation.Pepper)
	w.must(err)
	passedOver(after.rotations.Work(t.Context()))
	pepperState, err := after.rotations.Peppers(t.Context())
	w.must(err)
	if diff := cmp.Diff(rotation.Keys{Ready: good, Waiting: bad, HashOnly: 1}, pepperState.Keys); diff != "" || pepperState.Last.FinishedAt != nil {
		t.Errorf("%+v; keys (-want +got):\n%s", pepperState.Last, diff)
	}
}

// Keys get a hash under the new pepper beside their own, and are found, and
// revoked, by both.
func TestRotatePepper(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.Customer(1000, storetest.Unlimited, 5) // with a key of which only a hash is known
	m1 := map[string][]byte{"m1": seal.NewSecret()}
	before, after := w.keyed(m1, "m1", oldPepper), w.keyed(m1, "m1", newPepper, oldPepper)
	leases, store := leasestore.NewLeases(w.Replica()), accountstore.NewKeys(w.Replica())
	find := func(h apikey.Hash) *wire.KeyRecord {
		t.Helper()
		loaded, err := leases.LoadKeys(t.Context(), []apikey.Hash{h})
		w.must(err)
		return loaded[h].Record
	}
	type issued struct {
		id   key.ID
		text string
	}
	var all []issued
	for range 230 {
		id, text := w.issue(before, c.Account)
		all = append(all, issued{id, text})
	}
	w.Exec("update api_keys set pepper_id = null") // an earlier release did not note it
	dead := all[0]
	_, _, err := store.Revoke(t.Context(), dead.id)
	w.must(err)
	newer, newerText := w.issue(after, c.Account)
	head, err := leases.Head(t.Context())
	w.must(err)

	_, err = after.rotations.Start(t.Context(), rotation.Pepper)
	w.must(err)
	for range 5 {
		w.must(after.rotations.Work(t.Context()))
	}
	page, err := leases.Keys(t.Context(), head.Revision, ident.UUID{}, 1000)
	if w.must(err); page.Keys != 229 || len(page.Hashes) != 2*229 {
		t.Errorf("%d keys with %d hashes have changed since; want each that has another hash now, with both", page.Keys, len(page.Hashes))
	}
	state, err := after.rotations.Peppers(t.Context())
	w.must(err)
	if diff := cmp.Diff(rotation.Keys{Ready: 230, HashOnly: 1}, state.Keys); diff != "" || state.Last.FinishedAt == nil {
		t.Errorf("finished %v; keys (-want +got):\n%s", state.Last.FinishedAt, diff)
	}
	for _, k := range all[1:] {
		for _, h := range []*apikey.Hasher{before.hasher, after.hasher} {
			if r := find(h.Hash(k.text)); r == nil || r.KeyID != k.id.String() || !r.Active {
				t.Fatalf("key %s under pepper %s: %+v", k.id, h.ID(), r)
			}
		}
	}
	if find(after.hasher.Hash(dead.text)) != nil || find(before.hasher.Hash(dead.text)).Active {
		t.Error("the key is not revoked under its hash of the new pepper")
	}
	if r := find(after.hasher.Hash(newerText)); r == nil || r.KeyID != newer.String() {
		t.Errorf("the key issued meanwhile: %+v", r)
	}

	// There is a revocation for every hash, also when the key is revoked again.
	victim := all[1]
	s := w.Session(leases, "proxy")
	rev := storetest.Scalar[int64](w, "select revision from cluster_state")
	_, revocation, err := store.Revoke(t.Context(), victim.id)
	w.must(err)
	_, again, err := store.Revoke(t.Context(), victim.id)
	w.must(err)
	if diff := cmp.Diff(revocation, again); diff != "" {
		t.Errorf("revoked again (-first +again):\n%s", diff)
	}
	renewed, err := leases.Heartbeat(t.Context(), &wire.HeartbeatRequest{V: wire.Version, Session: s, BootID: "proxy", AppliedRevision: rev}, time.Minute, 100)
	w.must(err)
	want := []wire.KeyChange{
		{V: wire.Version, Revision: rev + 1, PreviousRevision: renewed.Changes[0].PreviousRevision, Kind: wire.KeyRevoked, Account: c.AccountID(), KeyHash: after.hasher.Hash(victim.text)},
		{V: wire.Version, Revision: rev + 2, PreviousRevision: rev + 1, Kind: wire.KeyRevoked, Account: c.AccountID(), KeyHash: before.hasher.Hash(victim.text)},
	}
	if diff := cmp.Diff(want, renewed.Changes); diff != "" || revocation.Revision != rev+2 || revocation.KeyHash != before.hasher.Hash(victim.text) {
		t.Errorf("confirmed at %d; changes (-want +got):\n%s", revocation.Revision, diff)
	}
	// The hash of a key under another pepper cannot be imported.
	_, err = after.keys.Import(t.Context(), []key.Imported{{New: key.New{AccountID: account.ID(w.Customer(1, storetest.Unlimited, 1).Account), Name: "k"}, Hash: after.hasher.Hash(all[2].text)}})
	if !errors.Is(err, key.ErrHashTaken) {
		t.Errorf("imported: got %v; want %v", err, key.ErrHashTaken)
	}
}

// A revocation during the rotation covers every hash that the key has in the end.
func TestConcurrentRotationAndRevocation(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	c := w.Customer(1000, storetest.Unlimited, 5)
	m1 := map[string][]byte{"m1": seal.NewSecret()}
	before, after := w.keyed(m1, "m1", oldPepper), w.keyed(m1, "m1", newPepper, oldPepper)
	store := accountstore.NewKeys(w.Replica())
	var ids []key.ID
	for range 300 {
		id, _ := w.issue(before, c.Account)
		ids = append(ids, id)
	}
	_, err := after.rotations.Start(t.Context(), rotation.Pepper)
	w.must(err)
	var done sync.WaitGroup
	done.Go(func() {
		for range 4 {
			if err := after.rotations.Work(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, id := range ids {
		if _, _, err := store.Revoke(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	done.Wait()
	if n := storetest.Scalar[int](w, `select count(*) from key_hashes h where not exists (
		select from key_changes c where c.key_id = h.key_id and c.kind = 'key_revoked' and c.lookup_hash = h.hash)`); n != 0 {
		t.Errorf("%d hashes of revoked keys were not revoked", n)
	}
	fmt.Fprintln(t.Output(), storetest.Scalar[int](w, "select count(*) from key_hashes"), "of", len(ids), "keys were hashed before they were revoked")
}
