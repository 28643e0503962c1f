package webhookstore_test

import (
	"fmt"
	"testing"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
)

const day = 24 * time.Hour

// keyWorld has the keys of one account.
type keyWorld struct {
	*leaseWorld
	keys    *accountstore.Keys
	account account.ID
}

func newKeyWorld(t *testing.T) *keyWorld {
	t.Helper()
	w := newLeaseWorld(t)
	return &keyWorld{w, accountstore.NewKeys(w.Replica()), account.ID(w.Customer(1000, storetest.Unlimited, 9).Account)}
}

func (w *keyWorld) record(s key.Settings) key.Record {
	id := ident.New()
	var hash apikey.Hash
	copy(hash[:], ident.Key.Format(id))
	k := key.Key{
		ID:        key.ID(id),
		AccountID: w.account,
		Name:      "a key",
		Settings:  s,
	}
	return key.Record{Key: k, Secret: key.Secret{Hash: hash}}
}

// create creates a key, twice, as a repeated call does.
func (w *keyWorld) create(s key.Settings) key.ID {
	w.T.Helper()
	r := w.record(s)
	for range 2 {
		if _, err := w.keys.Create(w.T.Context(), []key.Record{r}); err != nil {
			w.T.Fatal(err)
		}
	}
	return r.Key.ID
}

func (w *keyWorld) change(id key.ID, change func(*key.Key)) {
	w.T.Helper()
	if _, _, err := w.keys.Update(w.T.Context(), id, func(k key.Key) (key.Update, error) {
		change(&k)
		return key.Update{Key: k, Announce: true}, nil
	}); err != nil {
		w.T.Fatal(err)
	}
}

// wantExpiries runs the job at a time, twice, as two replicas do, and compares the events.
func (w *keyWorld) wantExpiries(t *testing.T, what string, at time.Time, want ...string) {
	t.Helper()
	for range 2 {
		storetest.Check(t, w.keys.ReportExpiries(t.Context(), at))
	}
	w.wantEvents(what, want...)
}

func expiry(kind string, at time.Time) string {
	return fmt.Sprintf(`%s {"expires_at": "%s"}`, kind, at.UTC().Format(time.RFC3339Nano))
}

func TestCreatedPausedAndResumedKeysCauseEvents(t *testing.T) {
	t.Parallel()
	w := newKeyWorld(t)
	plain := w.create(key.Settings{})
	w.wantEvents("created", `key.created {}`)

	expires := time.Now().Add(400 * day).Truncate(time.Millisecond)
	paused := w.create(key.Settings{Paused: true, ExpiresAt: &expires})
	w.wantEvents("created with an expiry", expiry("key.created", expires))

	if _, _, err := w.keys.Import(t.Context(), []key.Record{w.record(key.Settings{})}); err != nil {
		t.Fatal(err)
	}
	w.wantEvents("imported")

	w.change(plain, func(k *key.Key) { k.Paused = true })
	w.wantEvents("paused", `key.paused {}`)
	w.change(plain, func(k *key.Key) { k.Name = "another name" })
	w.wantEvents("renamed while paused")
	w.change(plain, func(k *key.Key) { k.Paused = false })
	w.change(paused, func(k *key.Key) { k.Paused = false })
	w.wantEvents("resumed", expiry("key.resumed", expires), `key.resumed {}`)
}

// Each of the three events about an expiry comes once, and only if it is true when it comes.
func TestExpiriesOfKeysCauseEventsOnceEach(t *testing.T) {
	t.Parallel()
	w := newKeyWorld(t)
	expires := time.Now().Add(20 * day).Truncate(time.Millisecond)
	id := w.create(key.Settings{ExpiresAt: &expires})
	w.events()

	w.wantExpiries(t, "more than seven days", expires.Add(-7*day-time.Millisecond))
	w.wantExpiries(t, "seven days", expires.Add(-7*day), expiry("key.expires_soon", expires))
	w.change(id, func(k *key.Key) { k.Name = "another name" })
	w.wantExpiries(t, "more than a day", expires.Add(-day-time.Millisecond))
	w.wantExpiries(t, "a day", expires.Add(-day), expiry("key.expires_soon", expires))
	w.wantExpiries(t, "a millisecond", expires.Add(-time.Millisecond))
	w.wantExpiries(t, "expired", expires, expiry("key.expired", expires))
	w.wantExpiries(t, "long after", expires.Add(365*day))

	later := expires.Add(20 * day)
	w.change(id, func(k *key.Key) { k.ExpiresAt = &later })
	w.wantExpiries(t, "prolonged", expires)
	w.wantExpiries(t, "after a pause of the job", later.Add(-time.Hour), expiry("key.expires_soon", later))
	w.wantExpiries(t, "expired again", later.Add(time.Hour), expiry("key.expired", later))

	missed := later.Add(20 * day)
	w.change(id, func(k *key.Key) { k.ExpiresAt = &missed })
	w.wantExpiries(t, "after a pause over the expiry", missed.Add(day), expiry("key.expired", missed))
}

func TestExpiryEventsThatAreNotDue(t *testing.T) {
	t.Parallel()
	w := newKeyWorld(t)
	soon := time.Now().Add(3 * day).Truncate(time.Millisecond)
	w.create(key.Settings{ExpiresAt: &soon})
	forever := w.create(key.Settings{ExpiresAt: &soon})
	w.change(forever, func(k *key.Key) { k.ExpiresAt = nil })
	revoked := w.create(key.Settings{ExpiresAt: &soon})
	if _, _, err := w.keys.Revoke(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	w.events()

	w.wantExpiries(t, "a warning whose time was over at the start", time.Now())
	w.wantExpiries(t, "a day before, of the one that still expires", soon.Add(-day), expiry("key.expires_soon", soon))
	w.wantExpiries(t, "expired, but for the one without expiry and the revoked one", soon, expiry("key.expired", soon))
}

// A transaction reports a bounded number of keys; the job goes on until none is due.
func TestManyExpiriesAreReportedInOneRun(t *testing.T) {
	t.Parallel()
	w := newKeyWorld(t)
	expires := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	var records []key.Record
	for range 1001 {
		records = append(records, w.record(key.Settings{ExpiresAt: &expires}))
	}
	if _, err := w.keys.Create(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	w.events()
	storetest.Check(t, w.keys.ReportExpiries(t.Context(), expires))
	if got := storetest.Scalar[int](w.World, "select count(*) from webhook_events where type = 'key.expired'"); got != 1001 {
		t.Errorf("%d keys were reported as expired; want 1001", got)
	}
}
