// Package wire holds the messages that the planes exchange about leases,
// sessions, key changes and key records. It is the contract between them: a
// field is added, never renamed or reused, and every message carries a version.
// docs/protocol explains the messages.
package wire

import "modelgateway/shared/limit"

// Version is the version of the messages that this build sends.
const Version = 1

// SessionID identifies one registration of a proxy.
type SessionID int64

// PoolID identifies a pool. Database rows are locked in the order of their pool
// ids.
type PoolID int64

// PoolKind is the kind of a pool.
type PoolKind int16

// The kinds of pools. Balances and limits are in nano-units and are
// charged; slots are counts that always come back.
const (
	Balance PoolKind = 1
	Limit   PoolKind = 2
	Slots   PoolKind = 3
)

// The bounds of a lease message: the reports of a LeaseRequest or a Return, the
// requests that one LeaseRequest is about, and the needs of each of them. A session
// with more of them sends further messages; the control plane refuses a message
// that has more, because its work grows with them.
const (
	MaxReports = 200
	MaxWaiters = 64
	// MaxNeeds: the balance, a slot, and the limits of limit.MaxPerKey. Slots of the key count as one of them.
	MaxNeeds = limit.MaxPerKey + 2
)

// Need is the amount that one request wants of one pool.
type Need struct {
	Pool   PoolID   `json:"pool"`
	Kind   PoolKind `json:"kind"`
	Amount int64    `json:"amount"`
}

// LeaseReport is a proxy's view of its lease on one pool.
type LeaseReport struct {
	Pool PoolID `json:"pool"`
	// Generation is the generation of the pool that the proxy has applied.
	Generation int64 `json:"generation"`
	// GrantedSeen is the greatest granted total that the proxy has read, Returned the total that it has returned.
	GrantedSeen int64 `json:"granted_seen"`
	Returned    int64 `json:"returned"`
	// Idle is the number of units that no request uses. An allotment is smaller by it.
	Idle int64 `json:"idle,omitempty"`
	// Charged is the total of the costs of finished requests.
	Charged int64 `json:"charged,omitempty"`
	// Target is how many idle units the session would need to serve its requests of the last minutes for some time without
	// the control plane; only in a LeaseRequest.
	Target int64 `json:"target,omitempty"`
}

// LeaseRequest asks for the needs of waiting requests of one account, in their
// order. A session has at most one outstanding lease request per account; it
// repeats it with the same number until it is answered.
type LeaseRequest struct {
	V       int           `json:"v"`
	Session SessionID     `json:"session"`
	BootID  string        `json:"boot_id"`
	Account string        `json:"account"`
	Number  int64         `json:"number"`
	Reports []LeaseReport `json:"reports,omitempty"`
	// Needs has one list per waiting request; the needs of a list are granted together or not at all. It is empty if the
	// session only asks for the Targets of its reports.
	Needs [][]Need `json:"needs"`
}

// Status is the outcome of a message.
type Status string

// The outcomes. Only Done carries decisions.
const (
	Done Status = "done"
	// Wait: a recall is under way; repeat the request.
	Wait Status = "wait"
	// Fenced: the session has ended; register again.
	Fenced Status = "fenced"
	// ClockDiffers: no session is opened, because the clock of the proxy is wrong.
	ClockDiffers Status = "clock_differs"
	// TooLarge: the message exceeds the bounds of a lease message, and is never decided.
	TooLarge Status = "too_large"
	// Unavailable: the control plane cannot decide now.
	Unavailable Status = "unavailable"
)

// RefusalReason is why a request was refused. If several reasons apply, the first one in
// the order of the constants is reported: first those that waiting cannot change.
type RefusalReason string

// The reasons. A limit or a balance is insufficient if it has less than the request may cost, also before anything is spent; it is
// reserved if it had enough without what running requests have reserved. WrongWindow is none for a client: the request counts in
// another window of a limit, and is asked for again.
const (
	WrongWindow         RefusalReason = "wrong_window"
	LimitInsufficient   RefusalReason = "limit_insufficient"
	BalanceInsufficient RefusalReason = "balance_insufficient"
	NoSlot              RefusalReason = "no_slot"
	LimitReserved       RefusalReason = "limit_reserved"
	BalanceReserved     RefusalReason = "balance_reserved"
)

// Pool returns the kind of the pool that is short.
func (r RefusalReason) Pool() PoolKind {
	switch r {
	case LimitInsufficient, LimitReserved:
		return Limit
	case NoSlot:
		return Slots
	default:
		return Balance
	}
}

// Decision is the decision about one waiting request of a LeaseRequest.
type Decision struct {
	Granted bool          `json:"granted,omitempty"`
	Reason  RefusalReason `json:"reason,omitempty"`
	// Pool is the pool of the Reason; for WrongWindow, that of the window in which the request counts.
	Pool PoolID `json:"pool,omitempty"`
	// Free and Reserved describe the pool of the Reason at the moment of the refusal, in the pool's units.
	Free     int64 `json:"free,omitempty"`
	Reserved int64 `json:"reserved,omitempty"`
}

// LeaseState is the control plane's state of one lease after a decision.
type LeaseState struct {
	Pool       PoolID `json:"pool"`
	Granted    int64  `json:"granted"`
	Generation int64  `json:"generation"`
	Central    bool   `json:"central"`
	// Allotment is how many idle units the session may keep for later requests. Zero leaves the number as it was.
	Allotment int64 `json:"allotment,omitempty"`
	// EndMS is when the window of a limit ends whose pool it is, in milliseconds since 1970; zero: never, or another pool.
	EndMS int64 `json:"end_ms,omitempty"`
	// IdleUntil is when idle units must be returned, in milliseconds since 1970: EndMS, or before, when a raise of the limit ends; zero:
	// never.
	IdleUntil int64 `json:"idle_until_ms,omitempty"`
	// Returned and Charged are the totals for a session that has forgotten the lease.
	Returned int64 `json:"returned,omitempty"`
	Charged  int64 `json:"charged,omitempty"`
}

// LeaseResponse answers a LeaseRequest of the same number. Decisions are in the
// order of its needs; Leases has every lease that the request names.
type LeaseResponse struct {
	V         int          `json:"v"`
	Number    int64        `json:"number"`
	Status    Status       `json:"status"`
	Decisions []Decision   `json:"decisions,omitempty"`
	Leases    []LeaseState `json:"leases,omitempty"`
}

// Return gives units back. Its reports hold totals, so that a repeated or late
// Return has no effect.
type Return struct {
	V       int           `json:"v"`
	Session SessionID     `json:"session"`
	BootID  string        `json:"boot_id"`
	Account string        `json:"account"`
	Reports []LeaseReport `json:"reports"`
}

// ReturnResponse answers a Return.
type ReturnResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
	// Settled lists the pools of the Return whose lease holds nothing any more: every charge that the Return reports is
	// settled. The session may forget such a lease.
	Settled []PoolID `json:"settled,omitempty"`
}

// Recall asks a session to return its idle units of a pool.
type Recall struct {
	V          int    `json:"v"`
	Account    string `json:"account"`
	Pool       PoolID `json:"pool"`
	Generation int64  `json:"generation"`
}
