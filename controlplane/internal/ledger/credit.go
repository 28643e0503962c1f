package ledger

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/money"
)

// ErrNoCredit is returned for a refund of a credit that the account does not have.
var ErrNoCredit = errors.New("ledger: the account has no such credit")

// ErrRefundTooLarge is returned for a refund that exceeds what it refunds, together with earlier ones.
var ErrRefundTooLarge = errors.New("ledger: the refunds would exceed what they refund")

// DefaultPriority is the place in the order of use of a credit that names none; the lowest number is used first.
const DefaultPriority = 50

// HoldFor is how long an expired credit is held for the requests that began before it expired, if they do not end
// earlier. A request that runs longer is paid by other credits.
const HoldFor = time.Hour

// Credit is money that was given to an account, and what became of it:
// Amount = Used + Refunded + Expired + Left.
type Credit struct {
	// ID is the id of the transaction that booked it.
	ID        ID
	AccountID account.ID
	// Kind is Payment, Promotion, Refund or Correction.
	Kind      Kind
	Reference string
	Amount    money.Nano
	Priority  int
	// ExpiresAt is zero if the credit does not expire.
	ExpiresAt time.Time
	CreatedAt time.Time

	Used, Refunded, Expired money.Nano
	// Held is the part of an expired credit that is kept for the requests that began before it expired.
	Held money.Nano
	// EndedAt is when the expiry was booked; zero until then. Afterwards all that is left is held.
	EndedAt time.Time
	// Due reports that the credit has expired by the clock of the store.
	Due bool
}

// Left returns what was neither used, nor paid back, nor has expired.
func (c *Credit) Left() money.Nano { return c.Amount - c.Used - c.Refunded - c.Expired }

// Ended reports whether the expiry of the credit is booked.
func (c *Credit) Ended() bool { return !c.EndedAt.IsZero() }

// holdEnded reports whether nothing is held of an ended credit any more. What pays for a charge does not depend on when the end of
// the hold is booked.
func (c *Credit) holdEnded(now time.Time) bool { return now.Sub(c.EndedAt) >= HoldFor }

// CreditState is what a credit is good for.
type CreditState string

// The states. Of an active credit something is left.
const (
	CreditActive  CreditState = "active"
	CreditExpired CreditState = "expired"
	CreditUsed    CreditState = "used"
)

// CreditStates are all states.
var CreditStates = []CreditState{CreditActive, CreditExpired, CreditUsed}

// State returns the state of the credit. It is expired from its time on: until that is booked, nothing is granted of it.
func (c *Credit) State() CreditState {
	switch {
	case c.Ended():
		return CreditExpired
	case c.Left() == 0:
		return CreditUsed
	case c.Due:
		return CreditExpired
	}
	return CreditActive
}

// usable returns what new charges can use.
func (c *Credit) usable() money.Nano {
	if c.Ended() {
		return 0
	}
	return c.Left()
}

// Refundable returns how much of the credit can be paid back: all that was not paid back already and has not expired, whether it
// was used or not. It is nothing of what a refund has given back to the balance: a promotion may have paid for the request, and who has
// paid for it gets the payment back.
func (c *Credit) Refundable() money.Nano {
	if c.Kind == Refund {
		return 0
	}
	expiring := money.Nano(0)
	if c.Due { // its expiry is booked before anything is paid back
		expiring = c.usable()
	}
	return c.Amount - c.Refunded - c.Expired - c.Held - expiring
}

// kindsInOrder are the kinds of credits in the order of use, if priority and expiry do not decide: what was given for
// nothing goes before what was paid.
var kindsInOrder = []Kind{Promotion, Refund, Correction, Payment}

// compareUse orders credits by use: by priority, then the one that expires first, then by kind, then the oldest.
func compareUse(a, b *Credit) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		compareExpiry(a.ExpiresAt, b.ExpiresAt),
		cmp.Compare(slices.Index(kindsInOrder, a.Kind), slices.Index(kindsInOrder, b.Kind)),
		a.CreatedAt.Compare(b.CreatedAt),
		slices.Compare(a.ID[:], b.ID[:]),
	)
}

// compareExpiry orders times; the zero time, which is never, is last.
func compareExpiry(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// Credits are the open credits of an account with what they were used for. Charges are attributed to credits by their
// sum and not one by one: between two changes of the credits, the order of use stays the same, so that it makes no
// difference when a charge is attributed, as long as it is before the next change.
//
// Invariant: the usable credits less Uncovered are the total of the account's balance pool less Attributed.
type Credits struct {
	// Open are the credits of which something is left.
	Open []*Credit
	// Attributed is the sum of the charges that are attributed. Uncovered is what no credit has covered of charges and
	// of corrections; while there is any, nothing is usable.
	Attributed, Uncovered money.Nano
}

// NewCredits returns the credits of an account.
func NewCredits(open []*Credit, attributed, uncovered money.Nano) *Credits {
	slices.SortFunc(open, compareUse)
	return &Credits{open, attributed, uncovered}
}

// Advance attributes charges, whose sum so far is given. It comes before every other change.
func (c *Credits) Advance(charged money.Nano) {
	c.Take(charged - c.Attributed)
	c.Attributed = charged
}

// Take uses credits in their order.
func (c *Credits) Take(amount money.Nano) {
	for _, each := range c.Open {
		n := min(each.usable(), amount)
		each.Used += n
		amount -= n
	}
	c.Uncovered += amount
}

// Add adds a new credit. It pays first what no other has covered.
func (c *Credits) Add(added *Credit) {
	paid := min(added.Amount, c.Uncovered)
	added.Used += paid
	c.Uncovered -= paid
	at, _ := slices.BinarySearchFunc(c.Open, added, compareUse)
	c.Open = slices.Insert(c.Open, at, added)
}

// Find returns an open credit; nil if it is not open.
func (c *Credits) Find(id ID) *Credit {
	for _, each := range c.Open {
		if each.ID == id {
			return each
		}
	}
	return nil
}

// PayBack pays a part of a credit back to the customer. What charges have used of that part is taken from other credits. The
// credit need not be open.
func (c *Credits) PayBack(credit *Credit, amount money.Nano) error {
	if amount > credit.Refundable() {
		return ErrRefundTooLarge
	}
	used := amount - min(credit.usable(), amount)
	credit.Refunded += amount
	credit.Used -= used
	c.Take(used)
	return nil
}

// ExpiredPart is a part of a credit that has expired.
type ExpiredPart struct {
	Credit *Credit
	Amount money.Nano
	// At is when the credit expired; zero for a part that was held, and expires when it is released.
	At time.Time
}

// Expire ends the credits that are due, and returns what has expired, and by how much the balance is lower. outstanding is what
// the leases of the account hold: so much is held of each credit at most, for requests that run or are not settled yet.
func (c *Credits) Expire(outstanding money.Nano, now time.Time) (expired []ExpiredPart, withdrawn money.Nano) {
	for _, each := range c.Open {
		left := each.usable()
		if !each.Due || left == 0 {
			continue
		}
		each.Held, each.EndedAt = min(left, max(outstanding, 0)), now
		each.Expired += left - each.Held
		withdrawn += left
		if left > each.Held {
			expired = append(expired, ExpiredPart{each, left - each.Held, each.ExpiresAt})
		}
	}
	return expired, withdrawn
}

// Charge attributes the charge of a request that began at a time, and is settled now. It returns how much of it was held by
// expired credits, and so is not in the balance.
func (c *Credits) Charge(cost money.Nano, began, now time.Time) (held money.Nano) {
	for _, each := range c.Open {
		if each.Held == 0 || !began.Before(each.ExpiresAt) || each.holdEnded(now) {
			continue
		}
		n := min(each.Held, cost-held)
		each.Held -= n
		each.Used += n
		held += n
	}
	c.Take(cost - held)
	c.Attributed += cost
	return held
}

// Release ends the hold of expired credits: of what exceeds the units that leases of the account still hold, and of all that is
// held for HoldFor.
func (c *Credits) Release(outstanding money.Nano, now time.Time) (expired []ExpiredPart) {
	for _, each := range c.Open {
		kept := min(each.Held, max(outstanding, 0))
		if each.holdEnded(now) {
			kept = 0
		}
		if released := each.Held - kept; released > 0 {
			each.Held = kept
			each.Expired += released
			expired = append(expired, ExpiredPart{Credit: each, Amount: released})
		}
	}
	return expired
}

// Held returns what is held of expired credits.
func (c *Credits) Held() (sum money.Nano) {
	for _, each := range c.Open {
		sum += each.Held
	}
	return sum
}
