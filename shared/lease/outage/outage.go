// Package outage keeps what the account queues of a proxy know together about the
// control plane: how long it takes to respond, since when it decides nothing, and
// what requests have used of the outage allowances.
package outage

import (
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/shared/wire"
)

// ResponseTime is the smoothed time that the control plane takes to respond.
// Messages are not repeated before a multiple of it has passed: otherwise a slow
// control plane would receive everything several times and become slower. It is
// safe for concurrent use; the zero value has no measurements.
type ResponseTime struct {
	smoothed atomic.Int64
	// failingSince is the time of the first attempt to get a decision that failed since the last one succeeded, plus one;
	// zero if none failed.
	failingSince atomic.Int64
	// decidedAt is when a control plane last decided something, or said that it works on it.
	decidedAt atomic.Int64
}

// Decided records that a control plane has decided something.
func (t *ResponseTime) Decided(now time.Duration) {
	if last := t.decidedAt.Load(); int64(now) > last {
		t.decidedAt.CompareAndSwap(last, int64(now)) // if another one was faster, its time is as good
	}
}

// Failed records that an attempt to get a decision has failed, and returns since
// when no attempt of the proxy has succeeded.
func (t *ResponseTime) Failed(now time.Duration) time.Duration {
	t.failingSince.CompareAndSwap(0, int64(now)+1)
	return time.Duration(t.failingSince.Load() - 1)
}

// FailingFor returns for how long every attempt of the proxy has failed, zero if the
// last one succeeded.
func (t *ResponseTime) FailingFor(now time.Duration) time.Duration {
	if since := t.failingSince.Load(); since != 0 {
		return now - time.Duration(since-1)
	}
	return 0
}

// Succeeded records that an attempt to get a decision has succeeded.
func (t *ResponseTime) Succeeded(now time.Duration) {
	t.failingSince.Store(0)
	t.Decided(now)
}

// UndecidedFor returns for how long no control plane has decided anything.
func (t *ResponseTime) UndecidedFor(now time.Duration) time.Duration {
	return now - time.Duration(t.decidedAt.Load())
}

// Observe adds a measurement. Of two concurrent measurements, one may be lost.
func (t *ResponseTime) Observe(took time.Duration) {
	const weight = 8
	old := t.smoothed.Load()
	t.smoothed.Store(old + (int64(took)-old)/weight)
}

// RetryAfter returns how long to wait for a response before the first
// repetition.
func (t *ResponseTime) RetryAfter(least, most time.Duration) time.Duration {
	const spread = 3 // few responses take three times as long as the average
	return min(max(spread*time.Duration(t.smoothed.Load()), least), most)
}

// AllowanceUse counts what the requests of a proxy use of the outage allowances, by
// pool: what running requests need, and the costs of ended ones until they are
// settled. All queues of a proxy share one, so that neither a new session nor a
// response gives an allowance back that is not settled. It is safe for concurrent
// use; the zero value counts nothing yet.
type AllowanceUse struct {
	mu   sync.Mutex
	used map[wire.PoolID]int64
	// balance is the sum over the pools that are balances.
	balance int64
}

// Take counts the needs if each fits into what is left of its pool's allowance.
func (u *AllowanceUse) Take(needs []wire.Need, allowance func(wire.PoolID) int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range needs {
		if n.Amount > allowance(n.Pool)-u.used[n.Pool] {
			return false
		}
	}
	for _, n := range needs {
		u.add(n, n.Amount)
	}
	return true
}

// End replaces the needs of a request that has ended by its cost. A slot is free
// again.
func (u *AllowanceUse) End(needs []wire.Need, cost int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range needs {
		u.add(n, -n.Amount)
		if n.Kind != wire.Slots {
			u.add(n, cost)
		}
	}
}

// Settled records that the cost of a request is settled that has ended with these
// needs.
func (u *AllowanceUse) Settled(needs []wire.Need, cost int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range needs {
		if n.Kind != wire.Slots {
			u.add(n, -cost)
		}
	}
}

// Recovered counts the cost of a request that an earlier process has ended with
// these needs and that is not settled.
func (u *AllowanceUse) Recovered(needs []wire.Need, cost int64) {
	u.Settled(needs, -cost)
}

// add is called with the lock held.
func (u *AllowanceUse) add(n wire.Need, amount int64) {
	if u.used == nil {
		u.used = map[wire.PoolID]int64{}
	}
	if u.used[n.Pool] += amount; u.used[n.Pool] == 0 {
		delete(u.used, n.Pool)
	}
	if n.Kind == wire.Balance {
		u.balance += amount
	}
}

// Balance returns what is used of the allowances of balances, in nano-units.
func (u *AllowanceUse) Balance() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.balance
}
