package videojob

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/event"
)

// stuckStore answers no creation of one account until it is told to. entered has the accounts whose creations have reached it.
type stuckStore struct {
	Store

	account string
	entered chan string
	goOn    chan struct{}
}

func (s *stuckStore) CreateVideo(_ context.Context, v *event.Video) (*event.VideoResponse, error) {
	s.entered <- v.AccountID
	if v.AccountID == s.account {
		<-s.goOn
	}
	return &event.VideoResponse{V: event.Version, Status: event.VideoDone, Video: v}, nil
}

// A hundred creations of one account reach the control plane one after the other, so those of others find it free.
func TestCreationsOfAnAccountWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const crowd = 100
		f := setup(t)
		store := &stuckStore{Store: f.store, account: "busy", entered: make(chan string, crowd+2), goOn: make(chan struct{})}
		proxy := f.newTracker(t)
		proxy.store = store
		create := func(ctx context.Context, account string) error {
			v := newJob("")
			v.AccountID = account
			_, err := proxy.Create(ctx, v)
			return err
		}

		results := make(chan error, crowd)
		for range crowd {
			go func() { results <- create(t.Context(), "busy") }()
		}
		synctest.Wait()
		if n := len(store.entered); n != 1 {
			t.Fatalf("%d creations have reached the control plane; want one", n)
		}
		if err := create(t.Context(), "other"); err != nil {
			t.Errorf("another account: %v", err)
		}

		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := create(gone, "busy"); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("a client that has left: %v", err)
		}
		for range crowd {
			store.goOn <- struct{}{}
			if err := <-results; err != nil {
				t.Errorf("one of the hundred: %v", err)
			}
		}
		if n := len(proxy.lines.accounts); n != 0 {
			t.Errorf("%d lines are left", n)
		}

		go func() { results <- create(t.Context(), "busy") }()
		synctest.Wait()
		began := time.Now()
		if err := create(t.Context(), "busy"); !errors.Is(err, ErrUnavailable) || time.Since(began) != lineTimeout {
			t.Errorf("behind one that does not end: %v after %s", err, time.Since(began))
		}
		store.goOn <- struct{}{}
		<-results
	})
}
