package providerbill

import (
	"cmp"
	"context"
	"slices"
	"time"

	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// maxRequests bounds the requests that are shown behind a difference.
const maxRequests = 200

// Request is a request behind a difference: one that differs, or one that can explain what is left of a day.
type Request struct {
	// Kind is empty for a request that explains nothing.
	Kind Kind
	// RequestID is empty if the gateway did not make the call.
	RequestID, ProviderRequestID string
	At                           time.Time
	Model, Credential            string
	Billed, Recorded             money.Nano
	Lines, Calls                 int64
}

// magnitude is what a request can explain.
func (r *Request) magnitude() money.Nano {
	if r.Lines == 0 {
		return r.Recorded
	}
	return abs(r.Billed - r.Recorded)
}

// Requests are the requests behind a difference, those with a kind first, then the largest. More is set if there are more.
type Requests struct {
	Difference Difference
	Requests   []Request
	More       bool
}

// Requests returns the requests behind a difference.
func (s *Service) Requests(ctx context.Context, id ident.UUID, number int64) (*Requests, error) {
	bill, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	difference, err := s.store.Difference(ctx, id, number)
	if err != nil {
		return nil, err
	}
	zone, err := bill.zone()
	if err != nil {
		return nil, err
	}

	scope := bill.scope()
	scope.From, scope.To = difference.Day, difference.Day
	c := &comparing{bill: bill, zone: zone}
	found := &Requests{Difference: *difference}
	for p, err := range s.store.Pairs(ctx, scope) {
		if err != nil {
			return nil, err
		}
		if request, is := c.behind(difference, p); is {
			found.add(request)
		}
	}
	slices.SortFunc(found.Requests, order)
	if len(found.Requests) > maxRequests {
		found.Requests, found.More = found.Requests[:maxRequests], true
	}
	return found, nil
}

// add keeps at most twice as many as are returned.
func (f *Requests) add(r *Request) {
	f.Requests = append(f.Requests, *r)
	if len(f.Requests) > 2*maxRequests {
		slices.SortFunc(f.Requests, order)
		f.Requests, f.More = f.Requests[:maxRequests], true
	}
}

func order(a, b Request) int {
	kind := func(r *Request) int {
		if at := slices.Index(Kinds, r.Kind); at >= 0 {
			return at
		}
		return len(Kinds)
	}
	return cmp.Or(kind(&a)-kind(&b), cmp.Compare(b.magnitude(), a.magnitude()),
		cmp.Compare(a.RequestID, b.RequestID), cmp.Compare(a.ProviderRequestID, b.ProviderRequestID))
}

// behind returns the request of a pair if it is behind a difference.
func (c *comparing) behind(d *Difference, p *Pair) (*Request, bool) {
	g, ours, early := c.groupOf(p)
	if !c.bill.Comparison.ByModel {
		g.model = ""
	}
	if !c.bill.Comparison.ByCredential {
		g.credential = ""
	}
	if !ours || g != (group{d.Day, d.Model, d.Credential}) {
		return nil, false
	}

	r := &Request{
		RequestID:         p.RequestID,
		ProviderRequestID: p.ProviderRequestID,
		At:                p.At,
		Model:             cmp.Or(p.CalledModel, p.Model),
		Credential:        cmp.Or(p.CalledCredential, p.Credential),
		Billed:            p.Billed.Round(),
		Recorded:          p.Recorded,
		Lines:             p.Lines,
		Calls:             p.Calls,
	}
	if c.byRequest(p) {
		r.Kind = c.kindOf(p)
		return r, r.Billed != r.Recorded
	}
	if r.Kind = c.reasonOf(p); early {
		r.Kind = OtherDay
	} else if r.Kind == "" && p.NoPrice {
		r.Kind = NoPrice
	}
	return r, p.Calls > 0
}
