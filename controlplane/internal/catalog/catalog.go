// Package catalog manages providers, models, prices, routes and grants. The catalog is changed
// through a Document that describes all of it, and published to the proxies entry by entry.
//
// Invariants: a document is applied as a whole or not at all; a price version is never changed,
// since receipts refer to it; a model that usage refers to is hidden, never deleted; a credential
// never changes, since another secret makes another credential; secrets leave this package only
// encrypted.
//
// A new price on its way:
//
//	Edit of one part, or a Document of all   becomes a PlanFunc, which makes a Plan from the State
//	the Plan                                 the changes one by one, which a dry run shows
//	apply                                    one transaction with the next revision: rows, audit entry, outbox rows
//	outbox                                   publishes the entries to the KV bucket, the head with the revision last
//	each proxy                               builds a Snapshot when it has read the head, and reports the revision in
//	                                         its next heartbeat: ?wait=applied waits for that
//
// A request that was admitted before keeps the snapshot of its arrival, and is charged by the price that it saw.
package catalog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
)

// ErrModelNotFound is returned for a model that does not exist.
var ErrModelNotFound = errors.New("catalog: no such model")

// State is the catalog as stored in the database.
type State struct {
	// Rev is the revision of the last change; zero if there was none.
	Rev       int64
	Settings  catalogkv.Settings
	Providers map[string]Provider
	Models    map[string]Model
	// Grants are the models granted to each account, sorted.
	Grants map[account.ID][]string
	// Booked reports whether any money was ever booked; the currency cannot be changed then.
	Booked bool
}

// Tag returns the entity tag of the whole catalog.
func (s *State) Tag() etag.Tag { return etag.OfRev(s.Rev) }

// DefaultCurrency is the currency before any catalog names one.
const DefaultCurrency = "USD"

// Currency returns the one currency of the system.
func (s *State) Currency() string {
	if s.Settings.Currency == "" {
		return DefaultCurrency
	}
	return s.Settings.Currency
}

// Provider is a provider with the operator's credentials there.
type Provider struct {
	// Spec is the published entry without credentials.
	Spec catalogkv.Provider
	// Credentials are keyed by name.
	Credentials map[string]Credential
}

// Credential is an encrypted secret at a provider, or the encrypted parameters from which proxies get one.
type Credential struct {
	ID     string
	Kind   catalogkv.CredentialKind
	Sealed vault.Sealed
	// Disabled credentials are not published to proxies.
	Disabled bool
	// CertificateExpires is when the first of its client certificates expires; nil if it has none.
	CertificateExpires *time.Time
}

// Model is a model with its price and routes.
type Model struct {
	// Spec is the published entry without prices and routes.
	Spec catalogkv.Model
	// Sheet is the price in force, with its version.
	Sheet price.Sheet
	// Scheduled are the future prices, earliest first.
	Scheduled []Scheduled
	// Routes are keyed by id.
	Routes map[string]catalogkv.Route
	// ProviderSheets are the provider's prices in force, by the id of the route; those of routes without one are missing.
	ProviderSheets map[string]price.Sheet
	CreatedAt      time.Time
}

// Entry is an entry of the catalog's KV bucket; a nil Payload deletes it.
type Entry struct {
	Subject string
	Payload []byte
}

// Store stores the catalog.
type Store interface {
	// Load reads the catalog.
	Load(ctx context.Context) (*State, error)
	// Currency returns State.Currency.
	Currency(ctx context.Context) (string, error)
	// Prices returns the price versions of a model, newest first, without InForce.
	Prices(ctx context.Context, model string) ([]PriceVersion, error)
	// PriceDue reports whether the time of a scheduled price has come.
	PriceDue(ctx context.Context) (bool, error)
	// Apply changes the catalog in one transaction. It reads the catalog, calls plan and writes the plan at the next
	// revision, then calls entries with the states before and after and writes the entries into the outbox. An empty
	// plan writes nothing and keeps the revision. Both functions may be called twice.
	Apply(ctx context.Context, plan PlanFunc, entries EntriesFunc) (Applied, error)
	// Active returns how many accounts used each of the models since a day, and how many used any of them.
	Active(ctx context.Context, models []string, since time.Time) (byModel map[string]int64, together int64, err error)
	// Traffic returns the accounts that used the models since a day, highest cost first.
	Traffic(ctx context.Context, models []string, since time.Time, limit int) ([]Traffic, error)
}

// PlanFunc computes what to write for a change of the catalog.
type PlanFunc func(*State) (*Plan, error)

// EntriesFunc computes the entries that differ between two states.
type EntriesFunc func(before, after *State) ([]Entry, error)

// Applied is the result of a transaction that changed the catalog.
type Applied struct {
	// Before and After are the catalog before and after the change; the same if the plan is empty.
	Before, After *State
	Plan          *Plan
}

// Config holds the dependencies of a Service.
type Config struct {
	Store Store
	// Vault encrypts credentials in the database, Fleet for the proxies.
	Vault *vault.Vault
	Fleet *seal.Key
	// FleetFingerprint is the fingerprint of the fleet key.
	FleetFingerprint string
	// RequireHTTPS refuses new provider addresses without TLS.
	RequireHTTPS bool
	Log          *slog.Logger
}

// Service manages the catalog.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Options are the options of Service.Apply.
type Options struct {
	// DryRun computes the changes and writes nothing.
	DryRun bool
	// Match is the If-Match condition of the change.
	Match etag.Match
}

// Outcome is the result of applying a document.
type Outcome struct {
	// Changes are the differences between the catalog and the document.
	Changes []Change
	// Rev is the revision of the catalog with the changes; of a dry run, the current revision.
	Rev int64
}

// Apply changes the catalog to the state that the document describes. For an invalid
// document it returns validation.Errors with all field errors.
func (s *Service) Apply(ctx context.Context, doc *Document, o Options) (Outcome, error) {
	target, err := doc.target()
	if err != nil {
		return Outcome{}, err
	}
	if o.DryRun {
		return s.dryRun(ctx, target, o.Match)
	}

	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		if err := o.Match.Check(state.Tag()); err != nil {
			return nil, err
		}
		return s.plan(state, target)
	})
	if err != nil {
		return Outcome{}, err
	}

	s.cfg.Log.InfoContext(ctx, "catalog applied", "rev", applied.After.Rev, "changes", len(applied.Plan.Changes))
	return Outcome{applied.Plan.Changes, applied.After.Rev}, nil
}

func (s *Service) dryRun(ctx context.Context, t *target, match etag.Match) (Outcome, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if err := match.Check(state.Tag()); err != nil {
		return Outcome{}, err
	}
	plan, err := s.plan(state, t)
	if err != nil {
		return Outcome{}, err
	}
	calls(state, t, plan.Changes)
	return Outcome{plan.Changes, state.Rev}, s.reach(ctx, state, t, plan.Changes)
}

// apply changes the catalog in one transaction. plan may be called twice.
func (s *Service) apply(ctx context.Context, plan PlanFunc) (Applied, error) {
	return s.cfg.Store.Apply(ctx, plan, s.entries)
}

// Export returns the catalog as a document without secrets, and its tag.
func (s *Service) Export(ctx context.Context) (*Document, etag.Tag, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, "", err
	}
	return state.document(), state.Tag(), nil
}

// Currency returns the one currency of the system.
func (s *Service) Currency(ctx context.Context) (string, error) { return s.cfg.Store.Currency(ctx) }

// Grants returns the models granted to an account, sorted.
func (s *Service) Grants(ctx context.Context, id account.ID) ([]string, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	return state.Grants[id], nil
}

// Grant grants a model to an account, or withdraws the grant. It is idempotent
// and returns the catalog revision that includes the change.
func (s *Service) Grant(ctx context.Context, id account.ID, model string, granted bool) (rev int64, err error) {
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		if _, known := state.Models[model]; !known && granted {
			return nil, ErrModelNotFound
		}
		p := &Plan{Grants: map[account.ID][]string{}}
		before := state.Grants[id]
		after := slices.DeleteFunc(slices.Clone(before), func(m string) bool { return m == model })
		if granted {
			after = append(after, model)
			slices.Sort(after)
		}
		p.grant(id, before, after)
		return p, nil
	})
	if err != nil {
		return 0, err
	}

	return applied.After.Rev, nil
}

// Snapshot returns all entries of the catalog with its revision, to restore a bucket that has lost
// them.
func (s *Service) Snapshot(ctx context.Context) ([]Entry, int64, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, 0, err
	}
	entries, err := s.entries(&State{}, state)
	return entries, state.Rev, err
}
