// Package ledgercheck runs checks of the ledger in the background and keeps their results.
//
// A person starts a check of everything or of all receipts, which may take minutes. Any replica claims the run, reports
// its progress, and renews its claim; if the replica ends, another one begins the run again. The results of the
// periodic checks are kept beside them.
package ledgercheck

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/shared/ident"
)

// The errors of this package.
var (
	ErrNotFound = errors.New("ledgercheck: no such run")
	// ErrClaimLost is returned by a Store if another replica has claimed the run.
	ErrClaimLost = errors.New("ledgercheck: another replica runs the check")
)

// Kind is what a run compares.
type Kind string

// The kinds. Changed and Recent run periodically.
const (
	Changed  Kind = "changed"
	Recent   Kind = "recent"
	All      Kind = "all"
	Receipts Kind = "receipts"
)

// Startable reports whether a person can start a run of this kind.
func (k Kind) Startable() bool { return k == All || k == Receipts }

// Known reports whether the kind exists.
func (k Kind) Known() bool { return k.Startable() || k == Changed || k == Recent }

// State is the state of a run.
type State string

// The states. A failed run has no result: it could not read everything.
const (
	Waiting State = "waiting"
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"
)

// ID identifies a run. Its text form is "chk_…".
type ID ident.UUID

// ParseID parses the text form. It returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.LedgerCheck.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.LedgerCheck.Format(ident.UUID(id)) }

// Run is one run of a check.
type Run struct {
	ID    ID
	Kind  Kind
	State State
	// Actor started the run.
	Actor string
	// Done of Total steps are done: invariants, or records.
	Done, Total int64
	// OK and Checks are the result of a run that is done.
	OK     bool
	Checks []ledger.Check
	Took   time.Duration
	// Claim is the number of the claim of a run that Store.Claim returned.
	Claim              int64
	CreatedAt          time.Time
	StartedAt, EndedAt *time.Time
}

// Query selects runs, newest first.
type Query struct {
	// Kind is empty for all.
	Kind Kind
	// Before selects older runs; zero starts with the newest.
	Before ID
	Limit  int
}

// Store keeps runs.
type Store interface {
	// Start stores a waiting run, or returns the open one of its kind.
	Start(ctx context.Context, r Run) (Run, error)
	Get(ctx context.Context, id ID) (Run, error)
	List(ctx context.Context, q Query) ([]Run, error)
	// Claim returns a run that waits or whose claim has expired, or ErrNotFound.
	Claim(ctx context.Context, duration time.Duration) (Run, error)
	// Advance stores the progress of a claimed run and renews its claim. It returns ErrClaimLost.
	Advance(ctx context.Context, r *Run, duration time.Duration) error
	// End stores the result of a claimed run. It returns ErrClaimLost.
	End(ctx context.Context, r *Run) error
	// Record stores the result of a periodic check.
	Record(ctx context.Context, id ID, kind Kind, report *ledger.Report) error
	// DeleteOld deletes all but the newest runs of a kind.
	DeleteOld(ctx context.Context, kind Kind, kept int) error
}

// Config holds the dependencies of a Service.
type Config struct {
	Store Store
	// Ledger checks everything; Receipts recomputes all receipts.
	Ledger interface {
		Check(ctx context.Context, progress ledger.Progress) (ledger.Report, error)
	}
	Receipts interface {
		CheckReceipts(ctx context.Context, progress ledger.Progress) (ledger.Check, error)
	}
	// Notify reports the differences of a run to the operator.
	NotifyFunc func(ctx context.Context, scope string, report *ledger.Report) error
	// Claim is how long a claim lasts; it is renewed in a third of it. Zero means half a minute.
	Claim time.Duration
}

// Service runs checks.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service {
	if cfg.Claim == 0 {
		cfg.Claim = 30 * time.Second
	}
	return &Service{cfg}
}

// Start starts a run, or returns the open run of its kind.
func (s *Service) Start(ctx context.Context, id ident.UUID, kind Kind, actor string) (Run, error) {
	return s.cfg.Store.Start(ctx, Run{
		ID:    ID(id),
		Kind:  kind,
		State: Waiting,
		Actor: actor,
	})
}

// Get returns a run, or ErrNotFound.
func (s *Service) Get(ctx context.Context, id ID) (Run, error) { return s.cfg.Store.Get(ctx, id) }

// List returns runs.
func (s *Service) List(ctx context.Context, q Query) ([]Run, error) { return s.cfg.Store.List(ctx, q) }

// Kept is how many runs of each kind are kept.
const Kept = 1000

// Record keeps the result of a periodic check.
func (s *Service) Record(ctx context.Context, kind Kind, report *ledger.Report) error {
	if err := s.cfg.Store.Record(ctx, ID(ident.New()), kind, report); err != nil {
		return err
	}
	return s.cfg.Store.DeleteOld(ctx, kind, Kept)
}

// Work executes a run that waits, if there is one.
func (s *Service) Work(ctx context.Context) error {
	run, err := s.cfg.Store.Claim(ctx, s.cfg.Claim)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.execute(ctx, &run)
}

// execute runs a claimed run to its end. If the context ends, another replica takes the run over when the claim expires.
func (s *Service) execute(ctx context.Context, run *Run) error {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress := progress{changed: make(chan struct{}, 1)}
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		s.renew(working, cancel, *run, &progress)
	}()

	report, err := s.compare(working, run.Kind, progress.set)
	lost := context.Cause(working)
	cancel(nil)
	<-renewed
	run.Done, run.Total = progress.get()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(lost, ErrClaimLost):
		return nil
	case err != nil:
		run.State = Failed
		return errors.Join(fmt.Errorf("ledger check %s: %w", run.ID, err), s.cfg.Store.End(ctx, run))
	}

	run.State, run.OK, run.Checks, run.Took = Done, report.OK(), report.Checks, report.Took
	if err := s.cfg.Store.End(ctx, run); err != nil {
		return err
	}

	return errors.Join(s.cfg.NotifyFunc(ctx, string(run.Kind), &report), s.cfg.Store.DeleteOld(ctx, run.Kind, Kept))
}

func (s *Service) compare(ctx context.Context, kind Kind, progress ledger.Progress) (ledger.Report, error) {
	if kind == All {
		return s.cfg.Ledger.Check(ctx, progress)
	}
	began := time.Now()
	check, err := s.cfg.Receipts.CheckReceipts(ctx, progress)
	return ledger.Report{At: began, Took: time.Since(began), Checks: []ledger.Check{check}}, err
}

// renew renews the claim and stores the progress until the context ends. It cancels the work if the claim is lost.
func (s *Service) renew(ctx context.Context, cancel context.CancelCauseFunc, run Run, p *progress) {
	const perClaim = 3
	ticker := time.NewTicker(s.cfg.Claim / perClaim)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-ticker.C:
		}
		run.Done, run.Total = p.get()
		if err := s.cfg.Store.Advance(ctx, &run, s.cfg.Claim); errors.Is(err, ErrClaimLost) {
			cancel(ErrClaimLost)
			return
		}
	}
}

// progress passes on how many steps are done, from the check to the renewal of its claim.
type progress struct {
	done, total atomic.Int64
	// changed has a value if the progress is newer than the one that was read last.
	changed chan struct{}
}

func (p *progress) set(done, total int64) {
	p.done.Store(done)
	p.total.Store(total)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *progress) get() (done, total int64) { return p.done.Load(), p.total.Load() }
