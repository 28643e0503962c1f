// Package checkpoint has what a proxy keeps on its disk while no control plane
// responds, so that its next process can continue in the same session: until when it is
// fresh, which changes of keys and accounts it knows, and its idle units.
//
// A checkpoint is true only as long as nothing happens that it does not say. So it is
// removed before the proxy acts on a message of a control plane, or on a change that
// the stream of changes brings, and before its session ends. What requests have used
// since is in the usage log (Consumption).
package checkpoint

import (
	"time"

	"modelgateway/shared/wire"
)

// Mark is a place in the usage log of a proxy.
type Mark struct {
	Segment int64 `json:"segment"`
	Offset  int64 `json:"offset"`
	// Inode is that of the segment's file. A copy has another one: the process that continues with the original may still run.
	Inode uint64 `json:"inode"`
}

// Checkpoint is what the next process needs to continue in a session.
type Checkpoint struct {
	// KernelBoot identifies the boot of the machine: after another one, records of the usage log may be missing.
	KernelBoot string `json:"kernel_boot"`
	// Mark is the end of the usage log before the idle units were noted.
	Mark Mark `json:"mark"`

	Session wire.SessionID `json:"session"`
	// BootID is that of the process that registered the session.
	BootID string `json:"boot_id"`
	// Epoch is the cluster epoch of the session, Window its window of freshness.
	Epoch  int64         `json:"epoch"`
	Window time.Duration `json:"window"`
	// Source is the random id of the session's beats in the stream of changes, Freshness until when the proxy is fresh.
	Source    string       `json:"source"`
	Freshness Freshness    `json:"freshness"`
	Known     KnownChanges `json:"known"`
	// Idle has the idle units, by account.
	Idle map[string][]IdleUnits `json:"idle"`
}

// Left returns the idle units of the accounts less what was charged since.
func (c *Checkpoint) Left(since Consumption) map[string][]IdleUnits {
	left := map[string][]IdleUnits{}
	for account, idle := range c.Idle {
		if units := since.Left(account, idle); len(units) > 0 {
			left[account] = units
		}
	}
	return left
}

// Freshness is the state of a session.Freshness, for the next process of the proxy
// on the same machine.
type Freshness struct {
	// Last is the sequence number of the last own beat that was read, in an incarnation of the stream, Number the number
	// of the last beat.
	Last        uint64 `json:"last"`
	Incarnation string `json:"incarnation"`
	Number      int64  `json:"number"`
	// UntilBoot is the end of freshness on the boot-time clock, which all processes of a machine share.
	UntilBoot time.Duration `json:"until_boot"`
}

// IdleUnits are the idle units of a pool in escrow mode, which a later process of
// the proxy may use in the same session.
type IdleUnits struct {
	Pool  wire.PoolID `json:"pool"`
	Units int64       `json:"units"`
	// Slots means that the units are slots, which are not charged.
	Slots bool `json:"slots,omitempty"`
	// UntilMS is when no later request may use them, in milliseconds since 1970; zero: never. It is the end of a window of a limit, or that
	// of a raise of it.
	UntilMS int64 `json:"until_ms,omitempty"`
}

// Consumption sums up, by account, what the idle units of a process are less by
// since it noted them, as its usage log shows.
type Consumption map[string]int64

// Add adds an event. since means that its request had started after the units were
// noted; otherwise they leave out its reservation already.
func (c Consumption) Add(account string, cost, reservation int64, since bool) {
	if !since {
		cost = max(cost-reservation, 0)
	}
	c[account] += cost
}

// Left returns what is left of the idle units of an account. What was charged may
// have been charged to any of its pools.
func (c Consumption) Left(account string, idle []IdleUnits) []IdleUnits {
	left := make([]IdleUnits, 0, len(idle))
	for _, u := range idle {
		if !u.Slots {
			u.Units -= c[account]
		}
		if u.Units > 0 {
			left = append(left, u)
		}
	}
	return left
}
