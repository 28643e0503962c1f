package catalog

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// ErrPriceNotFound is returned for a scheduled price that does not exist or is already in force.
var ErrPriceNotFound = errors.New("catalog: no such scheduled price")

// maxAhead bounds how far ahead a price can be scheduled, to catch typing errors.
const maxAhead = 5 * 366 * 24 * time.Hour

// PriceID identifies a scheduled price. Its text form is "prc_…".
type PriceID ident.UUID

const priceKind ident.Kind = "prc"

// ParsePriceID parses the text form. It returns ErrPriceNotFound for any other text.
func ParsePriceID(text string) (PriceID, error) {
	u, err := priceKind.Parse(text)
	if err != nil {
		return PriceID{}, ErrPriceNotFound
	}
	return PriceID(u), nil
}

// String returns the text form.
func (id PriceID) String() string { return priceKind.Format(ident.UUID(id)) }

// Scheduled is a future price. It becomes a price version when its time comes; only then is it
// published to the proxies.
type Scheduled struct {
	ID            PriceID
	Sheet         price.Sheet
	EffectiveFrom time.Time
	CreatedAt     time.Time
	// Due reports that its time has come by the database's clock.
	Due bool
}

// PriceVersion is a past, current or scheduled price of a model.
type PriceVersion struct {
	// ID identifies a scheduled price; zero for a price version.
	ID PriceID
	// Version is zero for a scheduled price.
	Version       int64
	InForce       bool
	EffectiveFrom time.Time
	CreatedAt     time.Time
	Price         PriceEntry
}

// Prices returns the prices of a model: first the scheduled ones, latest first,
// then the versions, newest first.
func (s *Service) Prices(ctx context.Context, model string) ([]PriceVersion, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, err
	}

	m, known := state.Models[model]
	if !known {
		return nil, ErrModelNotFound
	}

	versions, err := s.cfg.Store.Prices(ctx, model)
	if err != nil {
		return nil, err
	}

	var all []PriceVersion
	for _, later := range slices.Backward(m.Scheduled) {
		all = append(all, scheduledView(&later))
	}

	for _, v := range versions {
		v.InForce = v.Version == m.Sheet.Version
		all = append(all, v)
	}

	return all, nil
}

func scheduledView(s *Scheduled) PriceVersion {
	return PriceVersion{
		ID:            s.ID,
		EffectiveFrom: s.EffectiveFrom,
		CreatedAt:     s.CreatedAt,
		Price:         priceEntry(&s.Sheet),
	}
}

// Sheet returns the price sheet of a new price of a model. Its version is zero.
func (s *Service) Sheet(ctx context.Context, model string, entry *PriceEntry) (price.Sheet, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return price.Sheet{}, err
	}
	m, known := state.Models[model]
	if !known {
		return price.Sheet{}, ErrModelNotFound
	}
	return entry.sheet(m.Spec.Type)
}

// SetPrice gives a model a new price at once. A price that equals the one in
// force changes nothing. It returns the catalog revision with the price.
func (s *Service) SetPrice(ctx context.Context, model string, entry *PriceEntry, match etag.Match) (rev int64, err error) {
	part := ModelPart(model)
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		if _, known := state.Models[model]; !known {
			return nil, ErrModelNotFound
		}
		found, err := part.read(state, match)
		if err != nil {
			return nil, err
		}
		m := found.entry()
		m.Price = *entry
		return s.planPart(state, found.doc, found.put(*m))
	})
	if err != nil {
		return 0, err
	}

	return applied.After.Rev, nil
}

// SchedulePrice gives a model a new price at a future time. It is idempotent by
// id and returns the catalog revision with the schedule.
func (s *Service) SchedulePrice(
	ctx context.Context,
	id PriceID,
	model string,
	entry *PriceEntry,
	from time.Time,
	match etag.Match,
) (rev int64, err error) {
	if now := time.Now(); !from.After(now) || from.After(now.Add(maxAhead)) {
		return 0, validation.New("effective_from", "must be in the future, at most five years from now")
	}

	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		m, known := state.Models[model]
		if !known {
			return nil, ErrModelNotFound
		}
		if slices.ContainsFunc(m.Scheduled, func(s Scheduled) bool { return s.ID == id }) {
			return &Plan{}, nil
		}

		part := ModelPart(model)
		if _, err := part.read(state, match); err != nil {
			return nil, err
		}

		b := builder{}
		sheet := b.sheet("price", m.Spec.Type, entry)
		p := &Plan{Schedule: []NewScheduled{{model, Scheduled{ID: id, Sheet: sheet, EffectiveFrom: from}}}}
		p.note(Create, "scheduled_price", model+" "+id.String(), nil, scheduleNote{from, *entry})

		return p, b.invalid.Err()
	})
	if err != nil {
		return 0, err
	}

	return applied.After.Rev, nil
}

// scheduleNote is the form in which a Change shows a scheduled price.
type scheduleNote struct {
	EffectiveFrom time.Time  `json:"effective_from"`
	Price         PriceEntry `json:"price"`
}

// CancelPrice cancels a scheduled price, or returns ErrPriceNotFound. It
// returns the catalog revision without the price.
func (s *Service) CancelPrice(ctx context.Context, model string, id PriceID) (rev int64, err error) {
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		m, known := state.Models[model]
		if !known {
			return nil, ErrModelNotFound
		}
		at := slices.IndexFunc(m.Scheduled, func(s Scheduled) bool { return s.ID == id })
		if at < 0 {
			return nil, ErrPriceNotFound
		}
		p := &Plan{Unschedule: []PriceID{id}}
		p.note(
			Remove,
			"scheduled_price",
			model+" "+id.String(),
			scheduleNote{m.Scheduled[at].EffectiveFrom, priceEntry(&m.Scheduled[at].Sheet)},
			nil,
		)
		return p, nil
	})
	if err != nil {
		return 0, err
	}

	return applied.After.Rev, nil
}

// ActivatePrices turns every scheduled price whose time has come into a price
// version, in the order of their times, and publishes it. Several replicas may
// call it at once.
func (s *Service) ActivatePrices(ctx context.Context) error {
	due, err := s.cfg.Store.PriceDue(ctx)
	if err != nil || !due {
		return err
	}

	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		p := &Plan{}
		for _, id := range slices.Sorted(maps.Keys(state.Models)) {
			p.activate(state.Models[id])
		}
		return p, nil
	})
	if err != nil {
		return err
	}
	if n := len(applied.Plan.Unschedule); n > 0 {
		s.cfg.Log.InfoContext(ctx, "scheduled prices came into force", "rev", applied.After.Rev, "prices", n)
	}

	return nil
}

// activate plans price versions for the due prices of a model. A price that does not fit the model
// any more, because the model's type has changed, is dropped.
func (p *Plan) activate(m Model) {
	before := m.Sheet
	slices.SortStableFunc(m.Scheduled, func(a, b Scheduled) int {
		return cmp.Or(a.EffectiveFrom.Compare(b.EffectiveFrom), slices.Compare(a.ID[:], b.ID[:]))
	})

	for i := range m.Scheduled {
		later := &m.Scheduled[i]
		if !later.Due {
			continue
		}
		p.Unschedule = append(p.Unschedule, later.ID)
		entry := priceEntry(&later.Sheet)
		b := builder{}
		if b.sheet("price", m.Spec.Type, &entry); b.invalid != nil {
			p.note(Remove, "scheduled_price", m.Spec.ID+" "+later.ID.String(), scheduleNote{later.EffectiveFrom, entry}, nil)
			continue
		}
		p.Prices = append(p.Prices, NewPrice{m.Spec.ID, later.Sheet})
		p.note(Update, "price", m.Spec.ID, priceEntry(&before), entry)
		before = later.Sheet
	}
}
