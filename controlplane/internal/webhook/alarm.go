package webhook

import (
	"math/bits"

	"modelgateway/controlplane/internal/fault"
	"modelgateway/shared/lease"
	"modelgateway/shared/money"
)

// Alarmed tells which alarms of a pool have been raised and not fallen back.
type Alarmed int16

// The alarms of a pool. A balance is low or exhausted, a limit near or
// reached.
const (
	Near Alarmed = 1 << iota
	Out
)

// backShare is the part of a threshold that a balance must rise above it
// before the alarm falls back: an account that swings around the threshold is
// not reported at every swing.
const backShare = 10

// Pool is what the alarms of a balance or a limit are judged by.
type Pool struct {
	Kind      lease.Kind
	Unlimited bool
	// Total is what the pool was given, Settled what is charged for good.
	Total, Settled int64
	// LowAt is the balance below which an account is low; zero for no alarm.
	LowAt int64
	// Percent is the share of a limit that makes it near; zero for no alarm.
	Percent int16
	Alarmed Alarmed
}

// Left is what is neither settled nor given out of the pool for good.
func (p *Pool) Left() int64 { return p.Total - p.Settled }

// Judge returns the alarms that hold now, and the events of those that were
// raised by that. Refused tells that a request was just refused because the
// pool is spent, for which that is out which does not cover a request.
func (p *Pool) Judge(refused bool) (now Alarmed, raised []Type) {
	var types [2]Type
	switch p.Kind {
	case lease.Balance:
		now, types = p.judgeBalance(refused), [2]Type{LowBalance, BalanceExhausted}
	case lease.Limit:
		now, types = p.judgeLimit(refused), [2]Type{LimitNear, LimitReached}
	case lease.Slots:
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
	// Only more money ends exhaustion by refusal: that is for the one who books it to say.
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

// Refill has an exhausted pool judged anew: after more was put into it.
func (p *Pool) Refill() {
	if p.Left() > 0 {
		p.Alarmed &^= Out
	}
}

// lessShare tells whether part is less than percent of whole, without
// overflow.
func lessShare(part, whole int64, percent uint64) bool {
	if part < 0 {
		return true
	}
	partHigh, partLow := bits.Mul64(uint64(part), 100)
	wholeHigh, wholeLow := bits.Mul64(uint64(max(whole, 0)), percent)
	return partHigh < wholeHigh || (partHigh == wholeHigh && partLow < wholeLow)
}

// Alerts are the thresholds of an account and its keys. Their JSON form is
// what the audit log keeps.
type Alerts struct {
	// LowBalance is the balance below which the account is low; nil for no alarm.
	LowBalance *money.Nano `json:"low_balance"`
	// LimitPercent is the share of a key's limit that makes it near; zero for no alarm.
	LimitPercent int `json:"spend_limit_percent"`
}

// maxLow keeps thresholds far from the end of an int64.
const maxLow = 1_000_000_000 * money.Unit

// Validate tells everything that is wrong with the thresholds.
func (a *Alerts) Validate() error {
	var faults fault.List
	if a.LowBalance != nil && (*a.LowBalance <= 0 || *a.LowBalance > maxLow) {
		faults.Add("low_balance", "must be above 0 and at most %s", maxLow)
	}
	if a.LimitPercent < 0 || a.LimitPercent > 100 {
		faults.Add("spend_limit_percent", "must be between 0 and 100")
	}
	return faults.Err()
}
