// Package catalogstore keeps the catalog in Postgres, and writes its entries to the
// outbox, from which they are published after the change.
package catalogstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// The rows of settings that belong to the catalog.
const (
	catalogSettings = "catalog"
	catalogHead     = "catalog_head"
)

// Store keeps the catalog.
type Store struct{ db *postgres.DB }

// New returns a store that uses db.
func New(db *postgres.DB) *Store { return &Store{db} }

// Load implements catalog.Store. It reads one snapshot.
func (s *Store) Load(ctx context.Context) (state *catalog.State, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db.Pool(), snapshot, func(tx pgx.Tx) error {
		state, err = loadCatalog(ctx, sqlcgen.New(tx))
		return err
	})
	return state, postgres.Translate("load catalog", err)
}

// errNothing rolls back the transaction of an empty plan.
var errNothing = errors.New("nothing to write")

func (s *Store) Apply(ctx context.Context, plan catalog.PlanFunc, entries catalog.EntriesFunc) (applied catalog.Applied, err error) {
	err = s.db.InRevision(ctx, "apply catalog", func(q *sqlcgen.Queries, rev int64) error {
		applied, err = apply(ctx, q, rev, plan, entries)
		return err
	})
	switch {
	case errors.Is(err, errNothing):
		return applied, nil
	case postgres.Violates(err, "model_grants_account_id_fkey"):
		return catalog.Applied{}, validation.New("grants", "names an account that does not exist")
	case err != nil:
		return catalog.Applied{}, err
	}
	return applied, nil
}

// apply reads the catalog, plans the change and writes it at a revision, with
// the changed entries and the audit entry. An empty plan gives errNothing.
func apply(
	ctx context.Context,
	q *sqlcgen.Queries,
	rev int64,
	plan catalog.PlanFunc,
	entries catalog.EntriesFunc,
) (catalog.Applied, error) {
	before, err := loadCatalog(ctx, q)
	if err != nil {
		return catalog.Applied{}, err
	}

	p, err := plan(before)
	if err != nil {
		return catalog.Applied{}, err
	}
	if len(p.Changes) == 0 {
		return catalog.Applied{Before: before, After: before, Plan: p}, errNothing
	}
	if err := writePlan(ctx, q, rev, p); err != nil {
		return catalog.Applied{}, err
	}

	after, err := loadCatalog(ctx, q)
	if err != nil {
		return catalog.Applied{}, err
	}

	changed, err := entries(before, after)
	if err != nil {
		return catalog.Applied{}, err
	}
	if err := writeOutbox(ctx, q, rev, changed); err != nil {
		return catalog.Applied{}, err
	}

	applied := catalog.Applied{Before: before, After: after, Plan: p}
	return applied, changestore.InsertAudit(ctx, q, catalog.ApplyAction, catalogObject{}, nil, p.Changes)
}

// catalogObject names the catalog in the audit log.
type catalogObject struct{}

// String returns the name.
func (catalogObject) String() string { return "catalog" }

// loadCatalog reads the whole catalog. The queries must see one state: they
// run in a snapshot, or after the revision was taken.
func loadCatalog(ctx context.Context, q *sqlcgen.Queries) (*catalog.State, error) {
	l := loader{ctx: ctx, q: q, state: &catalog.State{
		Providers: map[string]catalog.Provider{}, Models: map[string]catalog.Model{}, Grants: map[account.ID][]string{},
	}}
	steps := []func() error{l.settings, l.providers, l.credentials, l.models, l.scheduled, l.routes, l.providerPrices, l.grants}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return l.state, nil
}

type loader struct {
	ctx   context.Context //nolint:containedctx // used within one call only
	q     *sqlcgen.Queries
	state *catalog.State
}

func (l *loader) settings() error {
	var err error
	if err = readSetting(l.ctx, l.q, catalogSettings, &l.state.Settings); err != nil {
		return err
	}
	if l.state.Rev, err = ReadHead(l.ctx, l.q); err != nil {
		return err
	}
	l.state.Booked, err = l.q.HasLedgerTransactions(l.ctx)
	return err
}

// readSetting reads a row of settings. If there is none, the value stays as it is.
func readSetting(ctx context.Context, q *sqlcgen.Queries, name string, into any) error {
	value, err := q.GetSetting(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("read setting %s: %w", name, err)
	}
	return nil
}

// ReadHead reads the revision of the catalog; zero if there is none.
func ReadHead(ctx context.Context, q *sqlcgen.Queries) (int64, error) {
	var head catalogkv.Head
	err := readSetting(ctx, q, catalogHead, &head)
	return head.Rev, err
}

// Currency returns the one currency of the system.
func (s *Store) Currency(ctx context.Context) (string, error) {
	currency, err := ReadCurrency(ctx, s.db.Queries())
	return currency, postgres.Translate("read currency", err)
}

// ReadCurrency reads the one currency of the system.
func ReadCurrency(ctx context.Context, q *sqlcgen.Queries) (string, error) {
	var state catalog.State
	err := readSetting(ctx, q, catalogSettings, &state.Settings)
	return state.Currency(), err
}

func (l *loader) providers() error {
	rows, err := l.q.ListProviders(l.ctx)
	for _, row := range rows {
		p := catalog.Provider{Credentials: map[string]catalog.Credential{}}
		if err := json.Unmarshal(row.Spec, &p.Spec); err != nil {
			return fmt.Errorf("read provider %s: %w", row.ID, err)
		}
		l.state.Providers[row.ID] = p
	}
	return err
}

func (l *loader) credentials() error {
	rows, err := l.q.ListCredentials(l.ctx)
	for _, row := range rows {
		l.state.Providers[row.ProviderID].Credentials[row.Name] = catalog.Credential{
			ID:       row.ID,
			Kind:     catalogkv.CredentialKind(row.Kind),
			Sealed:   vault.Sealed{Text: row.Sealed, KeyID: row.CipherKeyID},
			Disabled: !row.Enabled,

			CertificateExpires: row.CertificateExpiresAt,
		}
	}
	return err
}

func (l *loader) models() error {
	rows, err := l.q.ListModels(l.ctx)
	for _, row := range rows {
		m := catalog.Model{
			Routes:         map[string]catalogkv.Route{},
			ProviderSheets: map[string]price.Sheet{},
			CreatedAt:      row.CreatedAt,
		}
		if err := errors.Join(json.Unmarshal(row.Spec, &m.Spec), json.Unmarshal(row.Sheet, &m.Sheet)); err != nil {
			return fmt.Errorf("read model %s: %w", row.ID, err)
		}
		m.Sheet.Version = row.Version
		l.state.Models[row.ID] = m
	}
	return err
}

func (l *loader) scheduled() error {
	rows, err := l.q.ListScheduledPrices(l.ctx)
	for _, row := range rows {
		later := catalog.Scheduled{
			ID:            catalog.PriceID(row.ID),
			EffectiveFrom: row.EffectiveFrom,
			CreatedAt:     row.CreatedAt,
			Due:           row.Due,
		}
		if err := json.Unmarshal(row.Sheet, &later.Sheet); err != nil {
			return fmt.Errorf("read scheduled price %s: %w", later.ID, err)
		}
		if m, known := l.state.Models[row.ModelID]; known {
			m.Scheduled = append(m.Scheduled, later)
			l.state.Models[row.ModelID] = m
		}
	}

	return err
}

func (s *Store) Prices(ctx context.Context, model string) ([]catalog.PriceVersion, error) {
	rows, err := s.db.Queries().ListPrices(ctx, model)
	versions := make([]catalog.PriceVersion, len(rows))
	for i, row := range rows {
		var sheet price.Sheet
		if err := json.Unmarshal(row.Sheet, &sheet); err != nil {
			return nil, fmt.Errorf("postgres: read price %d: %w", row.Version, err)
		}
		versions[i] = catalog.PriceVersion{
			Version:       row.Version,
			EffectiveFrom: row.EffectiveFrom,
			CreatedAt:     row.CreatedAt,
			Price:         catalog.PriceEntryOf(&sheet),
		}
	}
	return versions, postgres.Translate("list prices", err)
}

func (s *Store) PriceDue(ctx context.Context) (bool, error) {
	due, err := s.db.Queries().AnyPriceDue(ctx)
	return due, postgres.Translate("read due prices", err)
}

func (l *loader) routes() error {
	rows, err := l.q.ListRoutes(l.ctx)
	for _, row := range rows {
		var r catalogkv.Route
		if err := json.Unmarshal(row.Spec, &r); err != nil {
			return fmt.Errorf("read route %s: %w", row.ID, err)
		}
		l.state.Models[row.ModelID].Routes[row.ID] = r
	}
	return err
}

func (l *loader) providerPrices() error {
	rows, err := l.q.ListProviderPrices(l.ctx)
	for _, row := range rows {
		var sheet price.Sheet
		if err := json.Unmarshal(row.Sheet, &sheet); err != nil {
			return fmt.Errorf("read provider price %d: %w", row.Version, err)
		}
		sheet.Version = row.Version
		l.state.Models[row.ModelID].ProviderSheets[row.RouteID] = sheet
	}
	return err
}

func (l *loader) grants() error {
	rows, err := l.q.ListGrants(l.ctx)
	for _, row := range rows {
		id := account.ID(row.AccountID)
		l.state.Grants[id] = append(l.state.Grants[id], row.ModelID)
	}
	return err
}

// writePlan writes the changes. The order keeps every reference valid: providers
// are written before routes, and routes are removed before their providers.
func writePlan(ctx context.Context, q *sqlcgen.Queries, rev int64, p *catalog.Plan) error {
	w := planWriter{
		ctx:  ctx,
		q:    q,
		rev:  rev,
		plan: p,
	}
	steps := []func() error{w.settings, w.providers, w.credentials, w.models, w.routes, w.providerPrices, w.removals, w.grants}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type planWriter struct {
	ctx  context.Context //nolint:containedctx // used within one call only
	q    *sqlcgen.Queries
	rev  int64
	plan *catalog.Plan
}

func (w *planWriter) setting(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode setting %s: %w", name, err)
	}
	return w.q.PutSetting(w.ctx, sqlcgen.PutSettingParams{Name: name, Value: text})
}

func (w *planWriter) settings() error {
	if w.plan.Settings != nil {
		if err := w.setting(catalogSettings, w.plan.Settings); err != nil {
			return err
		}
	}
	return w.setting(catalogHead, catalogkv.Head{V: headVersion, Rev: w.rev})
}

func (w *planWriter) providers() error {
	for _, spec := range w.plan.Providers {
		text, err := json.Marshal(spec)
		if err != nil {
			return fmt.Errorf("encode provider %s: %w", spec.ID, err)
		}
		row := sqlcgen.PutProviderParams{
			ID:       spec.ID,
			Name:     spec.Name,
			Spec:     text,
			Revision: w.rev,
		}
		if err := w.q.PutProvider(w.ctx, row); err != nil {
			return err
		}
	}
	return nil
}

func (w *planWriter) credentials() error {
	// Only one credential can have a name, so the old one is removed first.
	if err := w.q.RemoveCredentials(w.ctx, w.plan.RemoveCredentials); err != nil {
		return err
	}

	for _, c := range w.plan.Credentials {
		row := sqlcgen.InsertCredentialParams{
			ID:          c.ID,
			ProviderID:  c.Provider,
			Name:        c.Name,
			Kind:        string(c.Kind),
			Sealed:      c.Sealed.Text,
			CipherKeyID: c.Sealed.KeyID,
			Enabled:     c.Enabled,
		}
		if !c.CertificateExpires.IsZero() {
			row.CertificateExpiresAt = &c.CertificateExpires
		}
		if err := w.q.InsertCredential(w.ctx, row); err != nil {
			return err
		}
	}

	for id, enabled := range w.plan.EnableCredentials {
		if err := w.q.EnableCredential(w.ctx, sqlcgen.EnableCredentialParams{ID: id, Enabled: enabled}); err != nil {
			return err
		}
	}

	return nil
}

func (w *planWriter) models() error {
	for _, spec := range w.plan.Models {
		text, err := json.Marshal(spec)
		if err != nil {
			return fmt.Errorf("encode model %s: %w", spec.ID, err)
		}
		row := sqlcgen.PutModelParams{
			ID:       spec.ID,
			Type:     string(spec.Type),
			Enabled:  spec.Enabled,
			Public:   spec.Public,
			Spec:     text,
			Revision: w.rev,
		}
		if err := w.q.PutModel(w.ctx, row); err != nil {
			return err
		}
	}

	for _, p := range w.plan.Prices {
		text, err := json.Marshal(p.Sheet)
		if err != nil {
			return fmt.Errorf("encode price of %s: %w", p.Model, err)
		}
		if err := w.q.InsertPrice(w.ctx, sqlcgen.InsertPriceParams{ModelID: p.Model, Sheet: text}); err != nil {
			return err
		}
	}

	return w.scheduled()
}

func (w *planWriter) scheduled() error {
	for _, s := range w.plan.Schedule {
		text, err := json.Marshal(s.Sheet)
		if err != nil {
			return fmt.Errorf("encode scheduled price of %s: %w", s.Model, err)
		}
		row := sqlcgen.InsertScheduledPriceParams{
			ID:            ident.UUID(s.ID),
			ModelID:       s.Model,
			Sheet:         text,
			EffectiveFrom: s.EffectiveFrom,
		}
		if err := w.q.InsertScheduledPrice(w.ctx, row); err != nil {
			return err
		}
	}

	ids := make([]ident.UUID, len(w.plan.Unschedule))
	for i, id := range w.plan.Unschedule {
		ids[i] = ident.UUID(id)
	}

	return w.q.RemoveScheduledPrices(w.ctx, ids)
}

func (w *planWriter) routes() error {
	for _, r := range w.plan.Routes {
		text, err := json.Marshal(r.Route)
		if err != nil {
			return fmt.Errorf("encode route %s: %w", r.Route.ID, err)
		}
		row := sqlcgen.PutRouteParams{
			ID:         r.Route.ID,
			ModelID:    r.Model,
			ProviderID: r.Route.Provider,
			Spec:       text,
		}
		if err := w.q.PutRoute(w.ctx, row); err != nil {
			return err
		}
	}
	return nil
}

func (w *planWriter) providerPrices() error {
	for _, p := range w.plan.ProviderPrices {
		row := sqlcgen.InsertProviderPriceParams{RouteID: p.Route}
		if p.Sheet != nil {
			text, err := json.Marshal(p.Sheet)
			if err != nil {
				return fmt.Errorf("encode provider price of %s: %w", p.Route, err)
			}
			row.Sheet = text
		}
		if err := w.q.InsertProviderPrice(w.ctx, row); err != nil {
			return err
		}
	}
	return nil
}

func (w *planWriter) removals() error {
	if err := w.q.RemoveRoutes(w.ctx, w.plan.RemoveRoutes); err != nil {
		return err
	}
	if err := w.q.DeleteModels(w.ctx, sqlcgen.DeleteModelsParams{Revision: w.rev, Ids: w.plan.RemoveModels}); err != nil {
		return err
	}
	if err := w.q.RemoveScheduledPricesOf(w.ctx, w.plan.RemoveModels); err != nil {
		return err
	}
	return w.q.RemoveProviders(w.ctx, w.plan.RemoveProviders)
}

func (w *planWriter) grants() error {
	for id, models := range w.plan.Grants {
		if err := w.q.RemoveGrants(w.ctx, ident.UUID(id)); err != nil {
			return err
		}
		row := sqlcgen.InsertGrantsParams{AccountID: ident.UUID(id), ModelIds: models}
		if err := w.q.InsertGrants(w.ctx, row); err != nil {
			return err
		}
	}
	return nil
}
