package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// expiryRules are the steps by which credits expire. The correct ones are those of Credits; a fault replaces one of them, and the world must
// find it.
type expiryRules struct {
	expire  func(c *Credits, outstanding money.Nano, now time.Time) ([]ExpiredPart, money.Nano)
	charge  func(c *Credits, cost money.Nano, began, now time.Time) money.Nano
	release func(c *Credits, outstanding money.Nano, now time.Time) []ExpiredPart
	// bookFirst means that nothing is granted or charged between the expiry of a credit and its booking.
	bookFirst bool
}

func correctExpiry() *expiryRules {
	return &expiryRules{(*Credits).Expire, (*Credits).Charge, (*Credits).Release, true}
}

// expiryWorld is an account whose credits expire while its requests run, with the leases that the allocator grants them. It calls both as the
// store does, which locks the balance for each step.
type expiryWorld struct {
	*Credits
	rules   *expiryRules
	r       *rand.Rand
	now     time.Time
	units   *allocator.Allocator
	pool    *allocator.Pool
	all     []*Credit
	running []leasedRequest
	session wire.SessionID
}

// leasedRequest is a request with a lease of a session of its own.
type leasedRequest struct {
	session wire.SessionID
	began   time.Time
	granted int64
}

func (w *expiryWorld) outstanding() money.Nano { return money.Nano(w.pool.Outstanding()) }

// due reports whether the expiry of a credit is not booked yet.
func (w *expiryWorld) due() (some bool) {
	for _, c := range w.all {
		c.Due = !c.ExpiresAt.IsZero() && !c.ExpiresAt.After(w.now)
		some = some || c.Due && c.usable() > 0
	}
	return some
}

// book books what has expired. The ledger gets no more than what no lease holds.
func (w *expiryWorld) book() error {
	w.Advance(money.Nano(w.pool.Settled))
	if !w.due() {
		return nil
	}
	free := money.Nano(max(w.pool.Free, 0))
	parts, withdrawn := w.rules.expire(w.Credits, w.outstanding(), w.now)
	w.pool.Adjust(-int64(withdrawn))
	if sum := sumOf(parts); sum > free {
		return fmt.Errorf("an expiry takes %d, of which %d are free", sum, free)
	}
	return nil
}

func (w *expiryWorld) release() error {
	w.Advance(money.Nano(w.pool.Settled))
	spare := money.Nano(0)
	for _, c := range w.all {
		spare += max(c.Held-max(w.outstanding(), 0), 0)
	}
	if sum := sumOf(w.rules.release(w.Credits, w.outstanding(), w.now)); sum > spare {
		return fmt.Errorf("%d of what is held expire, of which leases do not need %d", sum, spare)
	}
	return nil
}

func sumOf(parts []ExpiredPart) (sum money.Nano) {
	for _, p := range parts {
		sum += p.Amount
	}
	return sum
}

func (w *expiryWorld) give() error {
	if w.rules.bookFirst {
		if err := w.book(); err != nil {
			return err
		}
	}
	c := &Credit{ID: ID{byte(len(w.all) >> 8), byte(len(w.all))}, Kind: Promotion, Amount: money.Nano(1 + w.r.IntN(40)), CreatedAt: w.now}
	if w.r.IntN(3) > 0 {
		c.ExpiresAt = w.now.Add(time.Duration(1+w.r.IntN(15)) * time.Second)
	}
	w.Advance(money.Nano(w.pool.Settled))
	w.Add(c)
	w.all = append(w.all, c)
	w.pool.Adjust(int64(c.Amount))
	return nil
}

// begin begins a request if the balance has a lease for it. A batch leaves out an account of which an expiry is not booked.
func (w *expiryWorld) begin() {
	if w.rules.bookFirst && w.due() {
		return
	}
	w.session++
	need := wire.Need{Pool: w.pool.ID, Kind: wire.Balance, Amount: 1 + w.r.Int64N(12)}
	response, _ := w.units.Decide(&wire.LeaseRequest{Session: w.session, Number: 1, Needs: [][]wire.Need{{need}}}, &allocator.PendingRequest{})
	if response.Status == wire.Done && response.Decisions[0].Granted {
		w.running = append(w.running, leasedRequest{w.session, w.now, need.Amount})
	}
}

// end settles a request and returns what is left of its lease. Only credits that had not expired when it began pay for it.
func (w *expiryWorld) end() error {
	if len(w.running) == 0 {
		return nil
	}
	if w.rules.bookFirst {
		if err := w.book(); err != nil {
			return err
		}
	}

	i := w.r.IntN(len(w.running))
	q := w.running[i]
	w.running = append(w.running[:i], w.running[i+1:]...)
	cost := w.r.Int64N(q.granted + 1)
	w.Advance(money.Nano(w.pool.Settled))
	used := map[*Credit]money.Nano{}
	for _, c := range w.all {
		used[c] = c.Used
	}

	if w.Held() > 0 {
		w.pool.Adjust(int64(w.rules.charge(w.Credits, money.Nano(cost), q.began, w.now)))
	}
	w.units.Charge(q.session, false, w.pool.ID, cost)
	w.units.ApplyReports(q.session, []wire.LeaseReport{{Pool: w.pool.ID, Generation: w.pool.Generation, GrantedSeen: q.granted, Returned: q.granted - cost}})
	w.Advance(money.Nano(w.pool.Settled))
	for _, c := range w.all {
		if !c.ExpiresAt.IsZero() && !q.began.Before(c.ExpiresAt) && c.Used != used[c] {
			return fmt.Errorf("a request that began %s after the expiry of a credit uses %d of it", q.began.Sub(c.ExpiresAt), c.Used-used[c])
		}
	}
	return nil
}

func (w *expiryWorld) step() error {
	switch w.r.IntN(9) {
	case 0:
		return w.give()
	case 1, 2, 3:
		w.begin()
	case 4, 5:
		return w.end()
	case 6:
		return w.book()
	case 7:
		return w.release()
	default:
		w.now = w.now.Add(time.Duration(w.r.IntN(5000)) * time.Millisecond)
	}
	return nil
}

// play plays a world and returns what is wrong in it.
func playExpiry(seed uint64, rules *expiryRules) error {
	w := &expiryWorld{
		Credits: NewCredits(nil, 0, 0), rules: rules, r: rand.New(rand.NewPCG(seed, 7)), now: epoch, units: allocator.New(),
		pool: &allocator.Pool{ID: 1, Kind: wire.Balance, Account: "account", Central: true, Generation: 1},
	}
	w.units.Pools[1] = w.pool
	for range 200 {
		if err := w.step(); err != nil {
			return err
		}
	}

	for len(w.running) > 0 {
		if err := w.end(); err != nil {
			return err
		}
	}
	w.now = w.now.Add(time.Minute)
	for _, last := range []func() error{w.book, w.release} {
		if err := last(); err != nil {
			return err
		}
	}
	usable := money.Nano(0)
	for _, c := range w.all {
		usable += c.usable()
		if c.Due && c.Left() != 0 {
			return fmt.Errorf("%d are left of a credit that has expired, after all requests have ended: %+v", c.Left(), *c)
		}
	}
	if balance := money.Nano(w.pool.Free); usable-w.Uncovered != balance || w.outstanding() != 0 {
		return fmt.Errorf("the credits have %d, less %d that none covers, and the balance %d", usable, w.Uncovered, balance)
	}
	return nil
}

// Credits that expire while requests run pay for those that had begun before and for no others, and what comes back later expires, too.
func TestCreditsExpireWhileRequestsRun(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		if err := playExpiry(seed, correctExpiry()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// If the world did not find these faults, it would prove nothing about the correct rules.
func TestFaultsOfExpiryAreFound(t *testing.T) {
	t.Parallel()
	for name, apply := range map[string]func(r *expiryRules){
		"an expired credit is used by requests that begin later": func(r *expiryRules) {
			r.charge = func(c *Credits, cost money.Nano, _, now time.Time) money.Nano {
				return c.Charge(cost, time.Time{}, now)
			}
		},
		"an expired credit is used until its expiry is booked": func(r *expiryRules) { r.bookFirst = false },
		"an expiry takes more than what is free": func(r *expiryRules) {
			r.expire = func(c *Credits, _ money.Nano, now time.Time) ([]ExpiredPart, money.Nano) { return c.Expire(0, now) }
		},
		"an expiry does not take what comes back later": func(r *expiryRules) {
			r.release = func(*Credits, money.Nano, time.Time) []ExpiredPart { return nil }
		},
		"an expiry takes what running requests need": func(r *expiryRules) {
			r.release = func(c *Credits, _ money.Nano, now time.Time) []ExpiredPart { return c.Release(0, now) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const budget = 50
			rules := correctExpiry()
			apply(rules)
			for seed := range uint64(budget) {
				if err := playExpiry(seed, rules); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("not found in %d seeds", budget)
		})
	}
}
