package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

// purse is the model of the credits of an account: it charges unit by unit and at once, so it has no order of calls to get wrong.
type purse struct {
	credits []*Credit
	// owed is what no credit has covered.
	owed money.Nano
}

// next returns the credit that the next unit is taken from, by the documented order.
func (p *purse) next() (best *Credit) {
	rank := map[Kind]int{Promotion: 0, Refund: 1, Correction: 2, Payment: 3}
	before := func(a, b *Credit) bool {
		switch {
		case a.Priority != b.Priority:
			return a.Priority < b.Priority
		case !a.ExpiresAt.Equal(b.ExpiresAt):
			return !a.ExpiresAt.IsZero() && (b.ExpiresAt.IsZero() || a.ExpiresAt.Before(b.ExpiresAt))
		case a.Kind != b.Kind:
			return rank[a.Kind] < rank[b.Kind]
		case !a.CreatedAt.Equal(b.CreatedAt):
			return a.CreatedAt.Before(b.CreatedAt)
		}
		return string(a.ID[:]) < string(b.ID[:])
	}
	for _, c := range p.credits {
		if !c.Ended() && c.Left() > 0 && (best == nil || before(c, best)) {
			best = c
		}
	}
	return best
}

func (p *purse) take(amount money.Nano) {
	for range amount {
		if c := p.next(); c != nil {
			c.Used++
		} else {
			p.owed++
		}
	}
}

func (p *purse) add(c Credit) {
	for c.Used < c.Amount && p.owed > 0 {
		c.Used++
		p.owed--
	}
	p.credits = append(p.credits, &c)
}

var epoch = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// account is an account whose charges are attributed late, beside its model.
type creditWorld struct {
	r *rand.Rand
	*Credits
	all   []*Credit
	model purse
	// charged is the sum of the charges, total and pending those of the balance pool: what was put in, and what is held of
	// expired credits.
	charged, total money.Nano
	now            time.Time
}

// settle attributes all charges, as a read and every change does.
func (w *creditWorld) settle() { w.Advance(w.charged) }

func (w *creditWorld) give() {
	kinds := []Kind{Payment, Promotion, Refund, Correction}
	c := Credit{
		Kind: kinds[w.r.IntN(len(kinds))], Amount: money.Nano(1 + w.r.IntN(30)), Priority: 49 + w.r.IntN(3), CreatedAt: w.now,
		ID: ID{byte(len(w.all) >> 8), byte(len(w.all))},
	}
	if w.r.IntN(2) == 0 {
		c.ExpiresAt = w.now.Add(time.Duration(1+w.r.IntN(20)) * time.Second)
	}
	w.model.add(c)
	w.settle()
	w.Add(&c)
	w.all = append(w.all, &c)
	w.total += c.Amount
}

func (w *creditWorld) charge() {
	amount := money.Nano(w.r.IntN(12))
	w.model.take(amount)
	w.charged += amount
	if w.Held() > 0 { // settlement attributes at once while something is held
		w.charged -= amount
		w.settle()
		w.charged += amount
		w.total += w.Charge(amount, w.now, w.now)
	}
}

func (w *creditWorld) payBack() error {
	if len(w.all) == 0 {
		return nil
	}
	i := w.r.IntN(len(w.all))
	amount := money.Nano(1 + w.r.IntN(20))
	w.settle()
	fits := amount <= w.all[i].Refundable()
	if err := w.PayBack(w.all[i], amount); !fits || err != nil {
		if !fits && errors.Is(err, ErrRefundTooLarge) {
			return nil
		}
		return fmt.Errorf("paying back %d of %+v: %w", amount, *w.all[i], err)
	}
	w.total -= amount
	m := w.model.credits[i]
	used := amount
	if !m.Ended() {
		used -= min(m.Left(), amount)
	}
	m.Refunded += amount
	m.Used -= used
	w.model.take(used)
	return nil
}

func (w *creditWorld) correct() {
	amount := money.Nano(1 + w.r.IntN(5))
	w.model.take(amount)
	w.settle()
	w.Take(amount)
	w.total -= amount
}

// pass lets time pass, and the credits expire that are due. Nothing is outstanding, so nothing is held.
func (w *creditWorld) pass() error {
	w.now = w.now.Add(time.Duration(w.r.IntN(10)) * time.Second)
	for _, c := range w.all {
		c.Due = !c.ExpiresAt.IsZero() && !c.ExpiresAt.After(w.now)
	}
	w.settle()
	parts, withdrawn := w.Expire(0, w.now)
	w.total -= withdrawn
	sum := money.Nano(0)
	for _, part := range parts {
		sum += part.Amount
		if !part.At.Equal(part.Credit.ExpiresAt) {
			return fmt.Errorf("a credit that expired at %s is booked at %s", part.Credit.ExpiresAt, part.At)
		}
	}
	if sum != withdrawn {
		return fmt.Errorf("%d were booked and %d taken from the balance", sum, withdrawn)
	}
	for i, m := range w.model.credits {
		if w.all[i].Due && !m.Ended() && m.Left() > 0 {
			m.Expired, m.EndedAt = m.Left(), w.now
		}
	}
	return nil
}

func (w *creditWorld) step() error {
	switch w.r.IntN(8) {
	case 0, 1:
		w.give()
	case 2:
		return w.payBack()
	case 3:
		w.correct()
	case 4:
		return w.pass()
	default:
		w.charge()
	}
	return nil
}

// check compares the account with its model after all charges are attributed, and checks that no unit is lost.
func (w *creditWorld) check() error {
	w.settle()
	left := money.Nano(0)
	for i, m := range w.model.credits {
		c, want := w.all[i], *m
		if c.Amount != c.Used+c.Refunded+c.Expired+c.Left() || c.Left() < c.Held || min(c.Used, c.Refunded, c.Expired, c.Held) < 0 {
			return fmt.Errorf("credit %d loses units: %+v", i, *c)
		}
		want.Due = c.Due
		if diff := cmp.Diff(want, *c); diff != "" {
			return fmt.Errorf("credit %d (-unit by unit +by sums):\n%s", i, diff)
		}
		left += c.usable()
	}
	if w.Uncovered != w.model.owed || left-w.Uncovered != w.total-w.charged {
		return fmt.Errorf("%d are left and %d uncovered (%d unit by unit); the balance is %d", left, w.Uncovered, w.model.owed, w.total-w.charged)
	}
	w.Open = nil
	for _, c := range w.all { // as a store reads them
		if c.Left() > 0 {
			w.Open = append(w.Open, c)
		}
	}
	w.Credits = NewCredits(w.Open, w.Attributed, w.Uncovered)
	return nil
}

// Charges that are attributed by their sum, whenever the credits change or are read, are attributed as if each unit were taken
// when it was charged.
func TestCreditsAreUsedInOrderWheneverChargesAreAttributed(t *testing.T) {
	t.Parallel()
	const worlds, steps = 100, 80
	seed := rand.Uint64()
	for n := range worlds {
		w := &creditWorld{r: rand.New(rand.NewPCG(seed, uint64(n))), Credits: NewCredits(nil, 0, 0), now: epoch}
		for i := range steps {
			err := w.step()
			if err == nil && w.r.IntN(4) == 0 {
				err = w.check()
			}
			if err != nil {
				t.Fatalf("seed %d, world %d, step %d: %v", seed, n, i, err)
			}
		}
		if err := w.check(); err != nil {
			t.Fatalf("seed %d, world %d: %v", seed, n, err)
		}
	}
}

// Whatever is outstanding when a credit expires, and however requests from before and after it are charged and units come back: what
// was used and what has expired is all of the credit, requests from after do not use it, and others do not pay for what it holds.
func TestHeldCreditIsUsedOnlyByEarlierRequests(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 1000 {
		amount, other, running := money.Nano(1+r.IntN(50)), money.Nano(r.IntN(50)), money.Nano(r.IntN(60))
		promotion := &Credit{ID: ID{1}, Kind: Promotion, Amount: amount, ExpiresAt: epoch, Due: true}
		payment := &Credit{ID: ID{2}, Kind: Payment, Amount: other}
		c := NewCredits([]*Credit{payment, promotion}, 0, 0)
		running = min(running, amount+other)
		parts, withdrawn := c.Expire(running, epoch)
		total := amount + other - withdrawn
		early, late, expired := money.Nano(0), money.Nano(0), money.Nano(0)
		count := func(parts []ExpiredPart) {
			for _, p := range parts {
				expired += p.Amount
			}
		}
		count(parts)
		charged := money.Nano(0)
		for range r.IntN(8) {
			cost := min(money.Nano(r.IntN(9)), running)
			running -= cost
			charged += cost
			if r.IntN(2) == 0 {
				early += cost
				total += c.Charge(cost, epoch.Add(-time.Second), epoch)
			} else {
				late += cost
				if held := c.Charge(cost, epoch, epoch); held != 0 {
					t.Fatalf("seed %d, world %d: a request that began when the credit expired uses %d of it", seed, n, held)
				}
			}
			running -= min(money.Nano(r.IntN(4)), running)
			count(c.Release(running, epoch))
		}
		count(c.Release(0, epoch))
		usable := payment.usable() - c.Uncovered
		if promotion.Used > early || promotion.Used+expired != amount || promotion.Held != 0 || usable != total-charged || c.Attributed != charged {
			t.Fatalf("seed %d, world %d: %+v, expired %d, early %d, late %d, usable %d, balance %d", seed, n, *promotion, expired, early, late, usable, total-charged)
		}
	}
}

// The job that books the end of a hold may be behind: a charge does not use what is held no longer.
func TestChargeAfterTheHoldUsesOtherCredits(t *testing.T) {
	t.Parallel()
	promotion := &Credit{ID: ID{1}, Kind: Promotion, Amount: 10, ExpiresAt: epoch, Due: true}
	payment := &Credit{ID: ID{2}, Kind: Payment, Amount: 100}
	c := NewCredits([]*Credit{promotion, payment}, 0, 0)
	c.Expire(100, epoch)
	began := epoch.Add(-time.Second)
	if held := c.Charge(1, began, epoch.Add(HoldFor-time.Second)); held != 1 || promotion.Used != 1 {
		t.Errorf("before the end of the hold, %d of 1 is paid by the credit", held)
	}
	if held := c.Charge(2, began, epoch.Add(HoldFor)); held != 0 || promotion.Used != 1 || promotion.Held != 9 || payment.Used != 2 {
		t.Errorf("after the hold, %d is paid by it; %+v, %+v", held, *promotion, *payment)
	}
}

func TestHoldEndsAfterAnHour(t *testing.T) {
	t.Parallel()
	c := NewCredits([]*Credit{{ID: ID{1}, Kind: Promotion, Amount: 10, ExpiresAt: epoch, Due: true}}, 0, 0)
	parts, withdrawn := c.Expire(100, epoch)
	if len(parts) != 0 || withdrawn != 10 || c.Held() != 10 {
		t.Fatalf("got %v, %d and %d held; want nothing booked and 10 held", parts, withdrawn, c.Held())
	}
	if parts := c.Release(100, epoch.Add(HoldFor-time.Second)); len(parts) != 0 {
		t.Errorf("after less than an hour %v expires", parts)
	}
	if parts := c.Release(100, epoch.Add(HoldFor)); len(parts) != 1 || parts[0].Amount != 10 {
		t.Errorf("after an hour %v expires; want all", parts)
	}
}

// What has expired is not paid back, whether or not its expiry is booked yet.
func TestDueCreditIsPaidBackUpToWhatWasUsed(t *testing.T) {
	t.Parallel()
	c := &Credit{Kind: Promotion, Amount: 10, Used: 4, Refunded: 1, Due: true}
	before := c.Refundable()
	credits := Credits{Open: []*Credit{c}}
	credits.Expire(2, time.Unix(100, 0))
	if after := c.Refundable(); before != 4 || after != before {
		t.Errorf("refundable: %d before the expiry is booked, %d afterwards; want 4", before, after)
	}
}
