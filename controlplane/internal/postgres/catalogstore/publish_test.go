package catalogstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/storetest"
)

func fill(t *testing.T, db *postgres.DB, subjects ...string) {
	t.Helper()
	for _, s := range subjects {
		_, err := db.Pool().Exec(t.Context(), "insert into outbox (subject, payload) values ($1, $2)", s, []byte("payload of "+s))
		storetest.Check(t, err)
	}
	_, err := db.Pool().Exec(t.Context(), "select pg_notify('mgw_outbox', '')")
	storetest.Check(t, err)
}

func subjects(entries []catalog.Entry) []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Subject)
	}
	return names
}

func TestDrain(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := catalogstore.NewOutbox(db)
	fill(t, db, "a", "b", "c")
	lost := errors.New("the bus is away")
	_, leads, err := store.Drain(t.Context(), func(context.Context, []catalog.Entry) error { return lost })
	if !errors.Is(err, lost) || !leads {
		t.Fatalf("got %v, leads %v; want the publisher's error", err, leads)
	}
	if age, err := store.Age(t.Context()); err != nil || age <= 0 {
		t.Errorf("age %v, %v; want some", age, err)
	}
	var got []string
	found, leads, err := store.Drain(t.Context(), func(_ context.Context, entries []catalog.Entry) error {
		got = subjects(entries)
		return nil
	})
	storetest.Check(t, err)
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" || found != 3 || !leads {
		t.Errorf("found %d, leads %v (-want +got):\n%s", found, leads, diff)
	}
	found, _, err = store.Drain(t.Context(), func(_ context.Context, entries []catalog.Entry) error {
		if len(entries) != 0 {
			t.Errorf("published again: %v", subjects(entries))
		}
		return nil
	})
	storetest.Check(t, err)
	if found != 0 {
		t.Errorf("found %d; want none", found)
	}
}

func TestDrainHasOneLeader(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := catalogstore.NewOutbox(db)
	fill(t, db, "a")
	_, leads, err := store.Drain(t.Context(), func(ctx context.Context, _ []catalog.Entry) error {
		found, leads, err := store.Drain(ctx, func(context.Context, []catalog.Entry) error {
			t.Error("two replicas published at the same time")
			return nil
		})
		if found != 0 || leads || err != nil {
			t.Errorf("the second one: found %d, leads %v, %v", found, leads, err)
		}
		return nil
	})
	storetest.Check(t, err)
	if !leads {
		t.Error("the first publisher did not lead")
	}
}

// Concurrent drains publish all changes, in order.
func TestConcurrentDrains(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := catalogstore.NewOutbox(db)
	var want []string
	for i := range 600 { // more than one batch
		want = append(want, fmt.Sprintf("%03d", i))
	}
	fill(t, db, want...)
	var mu sync.Mutex
	var got []string
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				found, leads, err := store.Drain(context.WithoutCancel(t.Context()), func(_ context.Context, entries []catalog.Entry) error {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, subjects(entries)...)
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				if leads && found == 0 {
					return
				}
			}
		})
	}
	all.Wait()
	if !slices.Equal(want, got) {
		t.Errorf("published %d entries, in order %v; want %d in order", len(got), slices.IsSorted(got), len(want))
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := catalogstore.NewOutbox(db)
	storetest.Check(t, store.Wait(t.Context(), time.Millisecond)) // nothing comes: it ends by itself
	woken := make(chan error, 1)
	go func() { woken <- store.Wait(context.WithoutCancel(t.Context()), time.Hour) }()
	fill(t, db, "a") // before or while it listens
	storetest.Check(t, <-woken)
	storetest.Check(t, store.Wait(t.Context(), time.Hour)) // something waits already

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want the context's end", err)
	}
}
