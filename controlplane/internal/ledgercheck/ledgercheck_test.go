package ledgercheck_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
)

var errRead = errors.New("read")

// store has one run that waits.
type store struct {
	ledgercheck.Store

	advanced int
	lost     bool
	ended    *ledgercheck.Run
}

func (s *store) Claim(context.Context, time.Duration) (ledgercheck.Run, error) {
	return ledgercheck.Run{Kind: ledgercheck.All, State: ledgercheck.Running}, nil
}

func (s *store) Advance(context.Context, *ledgercheck.Run, time.Duration) error {
	s.advanced++
	if s.lost {
		return ledgercheck.ErrClaimLost
	}
	return nil
}

func (s *store) End(_ context.Context, r *ledgercheck.Run) error {
	s.ended = r
	return nil
}

func (s *store) DeleteOld(context.Context, ledgercheck.Kind, int) error { return nil }

// books is a check of the ledger that takes a minute.
type books struct{ err error }

func (b books) Check(ctx context.Context, progress ledger.Progress) (ledger.Report, error) {
	progress(1, 2)
	select {
	case <-ctx.Done():
		return ledger.Report{}, ctx.Err()
	case <-time.After(time.Minute):
		return ledger.Report{Took: time.Minute}, b.err
	}
}

func work(t *testing.T, s *store, failure error) (notified int, err error) {
	t.Helper()
	service := ledgercheck.NewService(ledgercheck.Config{
		Store:  s,
		Ledger: books{failure},
		NotifyFunc: func(context.Context, string, *ledger.Report) error {
			notified++
			return nil
		},
	})
	err = service.Work(t.Context())
	return notified, err
}

func TestClaimIsRenewedWhileTheCheckRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		notified, err := work(t, s, nil)
		if err != nil || notified != 1 || s.ended == nil || s.ended.State != ledgercheck.Done || s.ended.Took != time.Minute {
			t.Errorf("got %v, %d notified, run %+v; want a run that is done", err, notified, s.ended)
		}
		if s.advanced < 5 || s.ended.Done != 1 || s.ended.Total != 2 {
			t.Errorf("the claim of 30 s was renewed %d times in a minute, with progress %d of %d", s.advanced, s.ended.Done, s.ended.Total)
		}
	})
}

func TestCheckThatFailsHasNoResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		notified, err := work(t, s, errRead)
		if !errors.Is(err, errRead) || notified != 0 || s.ended == nil || s.ended.State != ledgercheck.Failed || s.ended.OK {
			t.Errorf("got %v, %d notified, run %+v; want a failed run", err, notified, s.ended)
		}
	})
}

// Another replica has the run now, and ends it.
func TestCheckStopsWhenItsClaimIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := &store{lost: true}, time.Now()
		notified, err := work(t, s, nil)
		if err != nil || notified != 0 || s.ended != nil || time.Since(began) > 10*time.Second {
			t.Errorf("got %v, %d notified, run %+v after %s; want nothing", err, notified, s.ended, time.Since(began))
		}
	})
}
