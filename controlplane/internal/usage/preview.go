package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// The errors of a preview.
var (
	// ErrTooMany is returned if a period has more records than a preview reads.
	ErrTooMany = errors.New("usage: the period has too many requests for a preview")
	// ErrBusy is returned if as many previews run as may run at once.
	ErrBusy = errors.New("usage: too many previews run")
)

const (
	// maxPreviewed bounds the records of a preview.
	maxPreviewed = 5_000_000
	// previewPage is the number of records that a preview reads at a time.
	previewPage = 5_000
	// maxPreviews bounds the previews of one process that run at once.
	maxPreviews = 2
	// maxListed bounds the accounts that a preview lists.
	maxListed = 100
)

// PreviewQuery selects the requests of a model that started in From ≤ start < To.
type PreviewQuery struct {
	Model    string
	From, To time.Time
}

// Preview compares the charges of past requests with the charges by another sheet.
type Preview struct {
	PreviewSum
	// Unpriced is the number of requests with a quantity for which the sheet has no price. They are not in the sums;
	// UnpricedCharged is the sum of their charges.
	Unpriced        int64
	UnpricedCharged money.Nano
	// Accounts are the accounts whose sums differ most, and AccountCount is the number of all accounts.
	Accounts     []AccountPreview
	AccountCount int
}

// PreviewSum has the sum of the charges of requests, and the sum that the sheet gives.
type PreviewSum struct {
	Requests           int64
	Charged, Previewed money.Nano
	// ProviderCost is what the calls of the requests cost the operator whose cost is known, with those that served nobody. No sheet of
	// a model changes it.
	ProviderCost money.Nano
	// UnknownCalls counts the calls whose cost is unknown. The other two are the parts of Charged and Previewed that are of requests
	// whose last call is one of them: to count them as a margin would take an unknown cost for none.
	UnknownCalls                     int64
	UnknownCharged, UnknownPreviewed money.Nano
}

// Change returns how much more the sheet charges.
func (s *PreviewSum) Change() money.Nano { return s.Previewed - s.Charged }

// Margin returns what the operator has earned with the calls whose cost is known; it is negative for a loss.
func (s *PreviewSum) Margin() money.Nano { return s.Charged - s.UnknownCharged - s.ProviderCost }

// PreviewedMargin returns what Margin would have been by the sheet.
func (s *PreviewSum) PreviewedMargin() money.Nano {
	return s.Previewed - s.UnknownPreviewed - s.ProviderCost
}

// add adds a record that the sheet charges with previewed.
func (s *PreviewSum) add(r *Record, previewed money.Nano) error {
	s.Requests++
	err := errors.Join(addTo(&s.Charged, r.Cost), addTo(&s.Previewed, previewed))
	if r.ProviderCost != nil {
		err = errors.Join(err, addTo(&s.ProviderCost, *r.ProviderCost))
	} else {
		s.UnknownCalls++
		err = errors.Join(err, addTo(&s.UnknownCharged, r.Cost), addTo(&s.UnknownPreviewed, previewed))
	}

	for i := range r.Attempts {
		switch a := &r.Attempts[i]; {
		case !a.Spent():
		case a.ProviderCost == nil:
			s.UnknownCalls++
		default:
			err = errors.Join(err, addTo(&s.ProviderCost, *a.ProviderCost))
		}
	}

	return err
}

func addTo(sum *money.Nano, amount money.Nano) (err error) {
	*sum, err = money.Add(*sum, amount)
	return err
}

// AccountPreview is the part of a preview of one account.
type AccountPreview struct {
	AccountID account.ID
	PreviewSum
}

// Preview computes what a sheet would have charged for past requests, each with the multiplier that applied to it. It
// returns ErrTooMany or ErrBusy, or the error of the context if that ends before.
func (s *Service) Preview(ctx context.Context, q PreviewQuery, sheet *price.Sheet) (*Preview, error) {
	select {
	case s.previews <- struct{}{}:
		defer func() { <-s.previews }()
	default:
		return nil, ErrBusy
	}

	exceeds, err := s.store.Exceeds(ctx, q, s.maxPreviewed)
	if err != nil {
		return nil, err
	}
	if exceeds {
		return nil, ErrTooMany
	}

	sum := Preview{}
	accounts := map[account.ID]*PreviewSum{}

	page := Query{
		Model: q.Model,
		From:  q.From,
		To:    q.To,
		Limit: previewPage,
	}

	for {
		records, err := s.store.Export(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range records {
			if err := sum.take(&records[i], sheet, accounts); err != nil {
				return nil, fmt.Errorf("preview of %s: %w", records[i].RequestID, err)
			}
		}
		if len(records) < previewPage {
			break
		}
		page.After = records[len(records)-1].RequestID
	}

	sum.AccountCount = len(accounts)
	for id, of := range accounts {
		sum.Accounts = append(sum.Accounts, AccountPreview{id, *of})
	}

	slices.SortFunc(sum.Accounts, func(a, b AccountPreview) int {
		return cmp.Or(cmp.Compare(b.magnitude(), a.magnitude()), slices.Compare(a.AccountID[:], b.AccountID[:]))
	})

	sum.Accounts = sum.Accounts[:min(len(sum.Accounts), maxListed)]
	return &sum, nil
}

func (s *PreviewSum) magnitude() money.Nano { return max(s.Change(), -s.Change()) }

// take adds a record. A quantity without a price is no error of the preview: a request with it would be refused.
func (p *Preview) take(r *Record, sheet *price.Sheet, accounts map[account.ID]*PreviewSum) error {
	cost, err := price.Cost(&r.Usage, sheet.WithMultiplier(r.PriceMultiplier))
	if errors.Is(err, price.ErrUnpriced) {
		p.Unpriced++
		return addTo(&p.UnpricedCharged, r.Cost)
	}
	if err != nil {
		return err
	}
	of := accounts[r.AccountID]
	if of == nil {
		of = &PreviewSum{}
		accounts[r.AccountID] = of
	}
	return errors.Join(of.add(r, cost), p.add(r, cost))
}
