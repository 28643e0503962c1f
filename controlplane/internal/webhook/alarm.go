package webhook

import (
	"math/bits"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// AlarmSet is a set of alarms of a pool.
type AlarmSet int16

// The alarms of a pool: AlarmNear for a low balance or a limit that is nearly spent,
// AlarmExhausted for an exhausted balance or a spent limit.
const (
	AlarmNear AlarmSet = 1 << iota
	AlarmExhausted
)

// hysteresisShare is the hysteresis of the low-balance alarm: it is cleared when the balance
// exceeds the threshold by a tenth of it, so that a balance around the threshold does not raise
// it again and again.
const hysteresisShare = 10

// Pool is the state that the alarms of a balance or a key limit are computed from.
type Pool struct {
	// AccountID is the owner; KeyID is zero for a balance.
	AccountID, KeyID ident.UUID
	Kind             wire.PoolKind
	Unlimited        bool
	// Total is the amount put into the pool, Settled the amount charged; both in nano-units.
	Total, Settled int64
	// Peak is the highest that a balance was.
	Peak int64
	// LowAt is the balance below which the account is low; zero disables the alarm.
	LowAt int64
	// Percent is the share of a limit at which it is nearly spent; zero disables the alarm.
	Percent int16
	// Raised are the alarms that were raised and not cleared yet.
	Raised AlarmSet
}

// Left returns the amount that is not charged yet.
func (p *Pool) Left() int64 { return p.Total - p.Settled }

// EvaluateAlarms returns the alarms that hold now, and the events of those that were not raised before.
// refused reports that a request was just refused because the pool cannot cover it; such a pool
// counts as exhausted whatever is left.
func (p *Pool) EvaluateAlarms(refused bool) (now AlarmSet, raised []Type) {
	var types [2]Type
	switch p.Kind {
	case wire.Balance:
		now, types = p.balanceAlarms(refused), [2]Type{LowBalance, BalanceExhausted}
	case wire.Limit:
		now, types = p.limitAlarms(refused), [2]Type{LimitNear, LimitReached}
	case wire.Slots:
		return 0, nil
	}
	for i, alarm := range []AlarmSet{AlarmNear, AlarmExhausted} {
		if now&^p.Raised&alarm != 0 {
			raised = append(raised, types[i])
		}
	}
	return now, raised
}

func (p *Pool) balanceAlarms(refused bool) AlarmSet {
	var now AlarmSet
	threshold := p.LowAt
	if p.Raised&AlarmNear != 0 {
		threshold += p.LowAt / hysteresisShare
	}
	// Nothing is low or spent that was never above: a portal that sets alerts before the first payment hears nothing.
	if p.LowAt > 0 && p.Peak >= p.LowAt && p.Left() < threshold {
		now |= AlarmNear
	}
	// An exhaustion alarm raised by a refusal holds until a payment: ClearExhausted clears it.
	if p.Peak > 0 && (p.Left() <= 0 || refused || p.Raised&AlarmExhausted != 0) {
		now |= AlarmExhausted
	}
	return now
}

func (p *Pool) limitAlarms(refused bool) AlarmSet {
	var now AlarmSet
	if p.Unlimited {
		return 0
	}
	if p.Percent > 0 && !isBelowShare(p.Settled, p.Total, uint64(p.Percent)) {
		now |= AlarmNear
	}
	if p.Left() <= 0 || refused || p.Raised&AlarmExhausted != 0 {
		now |= AlarmExhausted
	}
	return now
}

// Event returns the event of an alarm of the pool.
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

// ClearExhausted clears the exhaustion alarm after the total of the pool was raised, unless the
// pool is still exhausted.
func (p *Pool) ClearExhausted() {
	if p.Left() > 0 {
		p.Raised &^= AlarmExhausted
	}
}

// isBelowShare reports whether part is less than percent of whole, without overflow.
func isBelowShare(part, whole int64, percent uint64) bool {
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
