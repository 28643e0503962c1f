package settle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// PriceVersion is one version of a model's prices.
type PriceVersion struct {
	Model string
	Sheet *price.Sheet
}

// Holder is an account in a session.
type Holder struct {
	Session int64
	Account ident.UUID
}

// Facts reads what the events of proxies are compared with.
type Facts interface {
	// PriceVersions returns those of the versions that exist. They never change.
	PriceVersions(ctx context.Context, versions []int64) (map[int64]PriceVersion, error)
	// WithoutLease returns the holders whose session cannot have admitted a request of the account, as it holds no lease.
	// Sessions that are not active, or that began before a loss of commits, are left out.
	WithoutLease(ctx context.Context, holders []Holder) ([]Holder, error)
	// Owners reports for each publisher whether the session is one of its proxy. Unknown sessions are left out: their
	// proxies register them again after a loss of commits.
	Owners(ctx context.Context, publishers []Publisher) (map[Publisher]bool, error)
	// ProviderPrices returns the providers' prices of routes that were in force at any time of a span, oldest first.
	ProviderPrices(ctx context.Context, routes []string, from, to time.Time) (map[string][]ProviderPrice, error)
}

// knownFacts keeps facts that do not change: the price versions that were read,
// the accounts that have held a lease in a session, as a session keeps its leases
// until it is closed, and the sessions that were found to be their publishers'.
type knownFacts struct {
	facts      Facts
	mu         sync.Mutex
	versions   map[int64]PriceVersion
	holders    map[Holder]struct{}
	publishers map[Publisher]struct{}
}

// maxKnownHolders and maxKnownPublishers bound the memory; beyond them, all are looked up once more.
const (
	maxKnownHolders    = 200_000
	maxKnownPublishers = 10_000
)

// versionsOf returns the price versions that the items refer to, as far as they
// exist.
func (k *knownFacts) versionsOf(ctx context.Context, items []Item) (map[int64]PriceVersion, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := map[int64]PriceVersion{}
	var missing []int64
	for i := range items {
		if items[i].Event == nil {
			continue
		}
		version := items[i].Event.PriceVersion
		if _, ok := found[version]; ok {
			continue
		}
		known, ok := k.versions[version]
		if !ok {
			missing = append(missing, version)
		}
		found[version] = known
	}

	if len(missing) == 0 {
		return found, nil
	}

	read, err := k.facts.PriceVersions(ctx, missing)
	if err != nil {
		return nil, fmt.Errorf("settle: read prices: %w", err)
	}
	if k.versions == nil {
		k.versions = map[int64]PriceVersion{}
	}

	for version, sheet := range read {
		found[version], k.versions[version] = sheet, sheet
	}

	return found, nil
}

// withoutLease returns those holders that hold no lease.
func (k *knownFacts) withoutLease(ctx context.Context, wanted map[Holder]bool) (map[Holder]bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var unknown []Holder
	for h := range wanted {
		if _, ok := k.holders[h]; !ok {
			unknown = append(unknown, h)
		}
	}

	without := map[Holder]bool{}
	if len(unknown) == 0 {
		return without, nil
	}

	found, err := k.facts.WithoutLease(ctx, unknown)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}

	for _, h := range found {
		without[h] = true
	}

	if k.holders == nil || len(k.holders)+len(unknown) > maxKnownHolders {
		k.holders = make(map[Holder]struct{}, len(unknown))
	}

	for _, h := range unknown {
		if !without[h] {
			k.holders[h] = struct{}{}
		}
	}

	return without, nil
}

// foreign returns those publishers whose session is one of another proxy.
func (k *knownFacts) foreign(ctx context.Context, wanted map[Publisher]bool) (map[Publisher]bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var unknown []Publisher
	for p := range wanted {
		if _, ok := k.publishers[p]; !ok {
			unknown = append(unknown, p)
		}
	}

	foreign := map[Publisher]bool{}
	if len(unknown) == 0 {
		return foreign, nil
	}

	owners, err := k.facts.Owners(ctx, unknown)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	if k.publishers == nil || len(k.publishers)+len(unknown) > maxKnownPublishers {
		k.publishers = make(map[Publisher]struct{}, len(unknown))
	}

	for p, owner := range owners {
		if owner {
			k.publishers[p] = struct{}{}
		} else {
			foreign[p] = true
		}
	}

	return foreign, nil
}

// check sets a quarantine reason for the events that a proxy cannot have reported
// in good order.
func (s *Settler) check(ctx context.Context, items []Item) error {
	if s.known.facts == nil {
		return nil
	}
	if err := s.checkPublishers(ctx, items); err != nil {
		return err
	}
	if err := s.checkCosts(ctx, items); err != nil {
		return err
	}
	return s.checkLeases(ctx, items)
}

// checkPublishers puts the events into quarantine that a proxy has published for a
// session of another.
func (s *Settler) checkPublishers(ctx context.Context, items []Item) error {
	wanted := map[Publisher]bool{}
	var last *Publisher
	for i := range items {
		if p := items[i].Publisher; p != nil && p != last { // the events of a message have the same one
			wanted[*p], last = true, p
		}
	}

	foreign, err := s.known.foreign(ctx, wanted)
	if err != nil || len(foreign) == 0 {
		return err
	}

	for i := range items {
		if p := items[i].Publisher; p != nil && foreign[*p] {
			items[i].reject("event of session %d was published by the proxy %q, which does not have the session", items[i].Session, p.Proxy)
		}
	}

	return nil
}

// checkLeases sets a quarantine reason for events of requests that their session
// cannot have admitted. A charge for a video job holds no lease.
func (s *Settler) checkLeases(ctx context.Context, items []Item) error {
	wanted := map[Holder]bool{}
	needsLease := func(item *Item) bool {
		return item.QuarantineReason == "" && item.Event.Cost > 0 && item.Event.VideoJob == "" && !item.Reviewed
	}

	for i := range items {
		if needsLease(&items[i]) {
			wanted[Holder{items[i].Session, items[i].AccountID}] = true
		}
	}

	without, err := s.known.withoutLease(ctx, wanted)
	if err != nil || len(without) == 0 {
		return err
	}

	for i := range items {
		if needsLease(&items[i]) && without[Holder{items[i].Session, items[i].AccountID}] {
			items[i].QuarantineReason = ReasonNoLease
		}
	}

	return nil
}

// multiplied identifies a price version with the multiplier of an account.
type multiplied struct {
	version    int64
	multiplier price.Multiplier
}

// checkCosts sets a quarantine reason for the events whose usage is implausible,
// or whose cost is not the price of their usage. The cost is computed by the code
// that the proxies use, from prices that a proxy cannot change.
func (s *Settler) checkCosts(ctx context.Context, items []Item) error {
	versions, err := s.known.versionsOf(ctx, items)
	if err != nil {
		return err
	}

	sheets := map[multiplied]*price.Sheet{}
	for i := range items {
		item := &items[i]
		if item.QuarantineReason != "" {
			continue
		}
		version := versions[item.Event.PriceVersion]
		key := multiplied{item.Event.PriceVersion, item.Event.PriceMultiplier}
		sheet, ok := sheets[key]
		if !ok && version.Sheet != nil {
			sheet = version.Sheet.WithMultiplier(key.multiplier)
			sheets[key] = sheet
		}
		item.QuarantineReason = checkCost(item.Event, version.Model, sheet)
		if item.QuarantineReason == "" && !item.Reviewed {
			item.QuarantineReason = item.Event.Implausible()
		}
	}

	return nil
}

// checkModel returns why an event does not name the model of its price version, or an empty string. Also one that costs nothing must: each
// name would be a row of the roll-ups.
func checkModel(e *event.Usage, model string, sheet *price.Sheet) string {
	switch {
	case sheet == nil:
		return fmt.Sprintf("there is no price version %d", e.PriceVersion)
	case model != e.Model:
		return fmt.Sprintf("price version %d is of another model", e.PriceVersion)
	default:
		return ""
	}
}

// checkCost returns why an event's cost is not the price of its usage, or an
// empty string. sheet is nil if the price version does not exist.
func checkCost(e *event.Usage, model string, sheet *price.Sheet) string {
	switch {
	case e.VideoJob != "" && e.Status == event.Completed && e.Usage.Seconds == 0 && sheet != nil && len(sheet.Seconds) > 0:
		return "completed video without a length"
	case e.Rule == event.RuleNone || (e.Cost == 0 && e.Usage == price.Usage{}):
		if e.Cost != 0 {
			return fmt.Sprintf("cost %s although the billing rule is %s", e.Cost, e.Rule)
		}
		if reason := checkModel(e, model, sheet); reason != "" {
			return reason
		}
		if tier := e.Usage.ServiceTier; tier != "" && tier != price.DefaultTier && !sheet.HasServiceTier(tier) {
			return fmt.Sprintf("price version %d has no service tier %q", e.PriceVersion, tier) // each would be a row of the roll-ups
		}
		return ""
	}
	if reason := checkModel(e, model, sheet); reason != "" {
		return reason
	}

	cost, err := price.Cost(&e.Usage, sheet)
	if err != nil {
		return reason(fmt.Errorf("the usage has no price: %w", err))
	}
	if cost != e.Cost {
		return fmt.Sprintf("cost %s differs from %s, the price of the usage", e.Cost, cost)
	}

	return ""
}
