package webhook

import (
	"math/bits"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Alarmed is the set of alarms of a pool that are raised and not cleared yet.
type Alarmed int16

// The alarms of a pool: Near for a low balance or a limit that is nearly spent, Out for an
// exhausted balance or a spent limit.
const (
	Near Alarmed = 1 << iota
	Out
)

// backShare is the hysteresis of the low-balance alarm: it is cleared when the balance is a tenth
// of the threshold above the threshold, so that an account around the threshold is not reported
// again and again.
const backShare = 10

// Pool is the state that the alarms of a balance or a key limit are computed from.
type Pool struct {
	// AccountID is the owner; KeyID is zero for a balance.
	AccountID, KeyID ident.UUID
	Kind             wire.PoolKind
	Unlimited        bool
	// Total is the amount put into the pool, Settled the amount charged; both in nano-units.
	Total, Settled int64
	// LowAt is the balance below which the account is low; zero disables the alarm.
	LowAt int64
	// Percent is the share of a limit at which it is nearly spent; zero disables the alarm.
	Percent int16
	Alarmed Alarmed
}

// Left returns the amount that is not charged yet.
func (p *Pool) Left() int64 { return p.Total - p.Settled }

// Judge returns the alarms that hold now, and the events of those that were not raised before.
// refused reports that a request was just refused because the pool cannot cover it; such a pool
// counts as exhausted whatever is left.
func (p *Pool) Judge(refused bool) (now Alarmed, raised []Type) {
	var types [2]Type
	switch p.Kind {
	case wire.Balance:
		now, types = p.judgeBalance(refused), [2]Type{LowBalance, BalanceExhausted}
	case wire.KeyLimit:
		now, types = p.judgeLimit(refused), [2]Type{LimitNear, LimitReached}
	case wire.Slots:
		return 0, nil
	}
	for i, alarm := range []Alarmed{Near, Out} {
		if now&^p.Alarmed&alarm != 0 {
			raised = append(raised, types[i])
		}
	}
	return now, raised
}

func (p *Pool) judgeBalance(refused bool) Alarmed {
	var now Alarmed
	back := p.LowAt
	if p.Alarmed&Near != 0 {
		back += p.LowAt / backShare
	}
	if p.LowAt > 0 && p.Left() < back {
		now |= Near
	}
	// Exhaustion by refusal ends only with more money: Refill clears it.
	if p.Left() <= 0 || refused || p.Alarmed&Out != 0 {
		now |= Out
	}
	return now
}

func (p *Pool) judgeLimit(refused bool) Alarmed {
	var now Alarmed
	if p.Unlimited {
		return 0
	}
	if p.Percent > 0 && !lessShare(p.Settled, p.Total, uint64(p.Percent)) {
		now |= Near
	}
	if p.Left() <= 0 || refused || p.Alarmed&Out != 0 {
		now |= Out
	}
	return now
}

// Event returns the event of an alarm of the pool that was raised.
func (p *Pool) Event(t Type, refused bool) Event {
	amount := func(n int64) *money.Nano { return (*money.Nano)(&n) }
	e := Event{Type: t, AccountID: p.AccountID, KeyID: p.KeyID}
	if p.Kind == wire.Balance {
		e.Facts.Balance = amount(p.Left())
	} else {
		e.Facts.SpendLimit, e.Facts.Spent = amount(p.Total), amount(p.Settled)
	}
	switch t {
	case LowBalance:
		e.Facts.Threshold = amount(p.LowAt)
	case LimitNear:
		e.Facts.Percent = p.Percent
	default:
		e.Facts.Refused = refused
	}
	return e
}

// Refill clears the exhaustion alarm of a pool that has received more money.
func (p *Pool) Refill() {
	if p.Left() > 0 {
		p.Alarmed &^= Out
	}
}

// lessShare reports whether part is less than percent of whole, without overflow.
func lessShare(part, whole int64, percent uint64) bool {
	if part < 0 {
		return true
	}
	partHigh, partLow := bits.Mul64(uint64(part), 100)
	wholeHigh, wholeLow := bits.Mul64(uint64(max(whole, 0)), percent)
	return partHigh < wholeHigh || (partHigh == wholeHigh && partLow < wholeLow)
}

// Alerts are the alarm thresholds of an account and its keys. The audit log keeps their JSON form.
type Alerts struct {
	// LowBalance is the balance below which the account is low; nil disables the alarm.
	LowBalance *money.Nano `json:"low_balance"`
	// LimitPercent is the share of a key limit at which it is nearly spent; zero disables the alarm.
	LimitPercent int `json:"spend_limit_percent"`
}

// maxLow keeps sums with thresholds far below the range of an int64.
const maxLow = 1_000_000_000 * money.Unit

// Validate reports all invalid fields as validation.Errors.
func (a *Alerts) Validate() error {
	var invalid validation.Errors
	if a.LowBalance != nil && (*a.LowBalance <= 0 || *a.LowBalance > maxLow) {
		invalid.Add("low_balance", "must be above 0 and at most %s", maxLow)
	}
	if a.LimitPercent < 0 || a.LimitPercent > 100 {
		invalid.Add("spend_limit_percent", "must be between 0 and 100")
	}
	return invalid.Err()
}
