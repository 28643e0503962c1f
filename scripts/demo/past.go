package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// fillPast settles the past usage once. The customers pay for it first, as each charge needs a lease of their money.
func (d *Demo) fillPast(ctx context.Context) error {
	one := 1
	found, err := d.api.ListUsage(ctx, &adminclient.ListUsageParams{AccountID: &d.customers[0].id, Limit: &one})
	if err != nil {
		return err
	}

	if len(found.Value.Data) > 0 {
		d.printf("  it is there already")
		return nil
	}

	return SettlePast(ctx, d.cfg.State, func(models map[string]catalogkv.Model) ([]event.Usage, error) {
		events, err := d.past(models)
		if err != nil {
			return nil, err
		}

		costs := map[string]money.Nano{}
		for _, e := range events {
			costs[e.AccountID] += e.Cost
		}
		for _, c := range d.customers {
			if err := d.pay(ctx, c, costs[c.id]); err != nil {
				return nil, err
			}
		}

		return append(events, d.implausible(models, events[len(events)-1])), nil
	})
}

// SettlePast settles what a proxy reports late: the events of past requests, which it makes from the models of the running stack. Their
// accounts must have the money for them then.
func SettlePast(ctx context.Context, state devstack.State, events func(models map[string]catalogkv.Model) ([]event.Usage, error)) error {
	p, err := openProxy(state.NATSURL)
	if err != nil {
		return err
	}
	defer p.disconnect()
	models, err := p.models(ctx)
	if err != nil {
		return err
	}

	all, err := events(models)
	if err != nil {
		return err
	}

	spending := map[string]map[string]money.Nano{}
	for i := range all {
		e := &all[i]
		if spending[e.AccountID] == nil {
			spending[e.AccountID] = map[string]money.Nano{}
		}
		spending[e.AccountID][e.KeyID] += e.LeaseCharge()
	}

	return p.settle(ctx, spending, all)
}

// past returns the events of the past in the order of their time, without session and number.
func (d *Demo) past(models map[string]catalogkv.Model) ([]event.Usage, error) {
	r, now := random(1), time.Now()
	var events []event.Usage
	for day := range d.cfg.Days {
		midnight := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, day-d.cfg.Days+1)
		for range d.requestsOf(midnight) {
			at := midnight.Add(timeOfDay(r))
			c := d.pick(r)
			model, ok := models[c.models[r.IntN(len(c.models))]]
			if !ok {
				return nil, fmt.Errorf("the catalog has not all models of %s", c.name)
			}
			e, err := pastEvent(r, c, model, at)
			if err != nil {
				return nil, err
			}
			if at.Before(now.Add(-time.Minute)) {
				events = append(events, e)
			}
		}
	}

	if len(events) == 0 {
		return nil, errors.New("the past has no requests")
	}

	slices.SortFunc(events, func(a, b event.Usage) int { return int(a.FinishedMS - b.FinishedMS) })
	return events, nil
}

// requestsOf returns the number of requests of a day: fewer at weekends, and more each day.
func (d *Demo) requestsOf(day time.Time) int {
	n := d.cfg.PerDay + d.cfg.PerDay*day.YearDay()%7/10
	if weekday := day.Weekday(); weekday == time.Saturday || weekday == time.Sunday {
		n /= 2
	}
	return n
}

// timeOfDay returns a time that is most often in the afternoon.
func timeOfDay(r *rand.Rand) time.Duration {
	hours := math.Mod(14+5*r.NormFloat64()+24, 24)
	return time.Duration(math.Abs(hours) * float64(time.Hour))
}

// pick returns a customer with the probability of its share.
func (d *Demo) pick(r *rand.Rand) *customer {
	sum := 0
	for _, c := range d.customers {
		sum += c.share
	}
	n := r.IntN(sum)
	for _, c := range d.customers {
		if n -= c.share; n < 0 {
			return c
		}
	}
	return d.customers[0] // never: the shares sum up
}

// pastKey returns a key of the customer that is not short of its limit.
func pastKey(r *rand.Rand, c *customer) issuedKey {
	for {
		if key := c.issued[r.IntN(len(c.issued))]; key.name != limitedKey {
			return key
		}
	}
}

func pastEvent(r *rand.Rand, c *customer, model catalogkv.Model, at time.Time) (event.Usage, error) {
	route := model.Routes[r.IntN(len(model.Routes))]
	took := time.Duration(300+r.IntN(6000)) * time.Millisecond
	e := event.Usage{
		V:                 event.Version,
		RequestID:         ident.Request.Format(ident.NewAt(at)),
		AccountID:         c.id,
		KeyID:             pastKey(r, c).id,
		Model:             model.ID,
		Format:            string(route.Formats[r.IntN(len(route.Formats))]),
		Provider:          route.Provider,
		Route:             route.ID,
		Credential:        "main",
		ProviderRequestID: fmt.Sprintf("req_past_%08x", r.Uint32()),
		Status:            event.Completed,
		HTTPStatus:        200,
		StartedMS:         at.UnixMilli(),
		FinishedMS:        at.Add(took).UnixMilli(),
		Rule:              event.RuleReported,
		MaxInput:          200_000,
		MaxOutput:         16_384,
	}
	if model.Type == catalogkv.Image {
		e.Usage = price.Usage{Images: 1 + r.Int64N(2), Size: "1024x1024", Quality: []string{"high", "medium"}[r.IntN(2)]}
	} else {
		e.Stream = r.IntN(3) > 0
		e.FirstByteMS = 80 + r.Int64N(took.Milliseconds()-200)
		input := int64(400 * math.Exp(1.3*r.NormFloat64()))
		e.Usage = price.Usage{Input: 1 + input%60_000, CachedInput: r.Int64N(3) * input / 4 % 60_000, Output: 40 + r.Int64N(1800)}
	}

	switch n := r.IntN(100); {
	case n < 3:
		e.Status, e.HTTPStatus, e.Rule, e.Usage, e.FirstByteMS = event.Failed, 502, event.RuleNone, price.Usage{}, 0
	case n < 6 && e.Stream:
		e.Status, e.Rule, e.Estimated, e.Doubt = event.ClientGone, event.RuleEstimated, true, "interrupted"
		e.Usage.Output /= 3
	}

	return e, charge(&e, c, model)
}

// charge sets the cost as a proxy does: the price of the usage at the account's multiplier.
func charge(e *event.Usage, c *customer, model catalogkv.Model) error {
	sheet := &model.Prices[0].Sheet
	e.PriceVersion = sheet.Version
	discount := c.discount
	if own, ok := c.discounts[model.ID]; ok {
		discount = own
	}

	if discount != "" {
		multiplier, err := price.ParseMultiplier(discount)
		if err != nil {
			return err
		}
		e.PriceMultiplier = multiplier
		sheet = sheet.WithMultiplier(multiplier)
	}

	if e.Rule == event.RuleNone {
		return nil
	}

	cost, err := price.Cost(&e.Usage, sheet)
	if err != nil {
		return fmt.Errorf("price of a request of %s: %w", model.ID, err)
	}

	e.Cost, e.Reservation = cost, 2*cost
	return nil
}

// implausible returns an event that goes into quarantine: its provider has reported more output than the request allowed.
// Its cost is the price of that usage, so that an operator can decide to charge it.
func (d *Demo) implausible(models map[string]catalogkv.Model, like event.Usage) event.Usage {
	c, model := d.customers[0], models["demo-chat"]
	e := like
	e.RequestID, e.AccountID, e.KeyID = ident.Request.Format(ident.NewAt(time.UnixMilli(like.StartedMS))), c.id, c.issued[0].id
	e.Model, e.Format, e.Provider, e.Route = model.ID, "chat", model.Routes[0].Provider, model.Routes[0].ID
	e.Status, e.HTTPStatus, e.Rule, e.Estimated = event.Completed, 200, event.RuleReported, false
	e.Usage, e.MaxOutput = price.Usage{Input: 900, Output: 90_000}, 256
	_ = charge(&e, c, model) // the model has a price for both
	return e
}
