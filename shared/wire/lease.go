// Package lease owns the protocol by which scarce things (an account's
// balance, a key's spend limit, an account's slots) are shared out to
// proxies: its messages, and the state machines of both sides.
//
// Each such thing is a pool, one row in Postgres. A proxy's session holds a
// lease on a pool; its state is three totals that only grow: G granted,
// R returned, C charged.
//
// The control plane's side: Docket, Book and Calm decide the ops and returns of
// one transaction, Tenure the life of a session, Settlement what becomes of
// usage, Barrier when a change is confirmed, Mark whether Postgres has lost
// commits. The proxy's side: Holder asks and gives back for one account of one
// session, Entry admits, Changes and Knowledge say what is known of keys and
// accounts, Unsettled keeps usage until it is in Postgres.
//
// All are plain state: no goroutine, no clock, no I/O, so that production and
// the simulation in sim run the same code.
//
// Invariants, for every pool: Total = Free + Σ(G − R − C) + Settled, with
// every G − R − C ≥ 0. A refusal is decided only here, by Book, and only when
// no session holds idle units.
package wire

// Version is the version of the messages that this build speaks.
const Version = 1

// SessionID numbers the life of one registration of a proxy.
type SessionID int64

// PoolID numbers a pool. Rows are locked in its order.
type PoolID int64

// Kind is what a pool holds.
type Kind int16

// The kinds of pools. Balance and limits are in nano-units and are charged;
// slots are counts that always come back.
const (
	Balance  Kind = 1
	KeyLimit Kind = 2
	Slots    Kind = 3
)

// Need is an amount wanted from one pool.
type Need struct {
	Pool   PoolID `json:"pool"`
	Kind   Kind   `json:"kind"`
	Amount int64  `json:"amount"`
}

// View is what a proxy reports of its lease on one pool.
type LeaseReport struct {
	Pool PoolID `json:"pool"`
	// Gen is the mode generation that the proxy acts by, GSeen the greatest G it has read, R its total returned.
	Generation  int64 `json:"generation"`
	GrantedSeen int64 `json:"granted_seen"`
	Returned    int64 `json:"returned"`
}

// Op asks for the needs of waiting requests of one account, in order. A
// session has one Op per account under way; it is repeated with the same No
// until answered.
type LeaseRequest struct {
	V       int           `json:"v"`
	Session SessionID     `json:"session"`
	BootID  string        `json:"boot_id"`
	Account string        `json:"account"`
	Number  int64         `json:"number"`
	Reports []LeaseReport `json:"reports,omitempty"`
	// Needs has one list per request: granted all together or not at all.
	Needs [][]Need `json:"needs"`
	// Ahead says that nobody waits for the needs: they are like those of requests to come. A control plane of before
	// 2026-11-22 takes them for those of someone who waits.
	Prefetch bool `json:"prefetch,omitempty"`
}

// Status says what became of an Op or a Return.
type Status string

// The outcomes. Only Done carries decisions.
const (
	Done Status = "done"
	// Wait: a recall is under way; ask again.
	Wait Status = "wait"
	// Fenced: the session is over; register anew.
	Fenced Status = "fenced"
	// Unavailable: the control plane cannot tell now.
	Unavailable Status = "unavailable"
)

// Reason is why a request was refused, in the order in which reasons are
// reported: first what waiting cannot cure.
type Reason string

// The reasons.
const (
	KeyLimitSpent    Reason = "key_limit_spent"
	BalanceSpent     Reason = "balance_spent"
	NoSlot           Reason = "no_slot"
	KeyLimitReserved Reason = "key_limit_reserved"
	BalanceReserved  Reason = "balance_reserved"
)

// Decision is the answer to one request of an Op. One that nobody waits for is
// not refused but passed over, without a Reason.
type Decision struct {
	Granted bool   `json:"granted,omitempty"`
	Reason  Reason `json:"reason,omitempty"`
	// Free and Held describe the pool of the Reason when it was refused: what was free, and what running requests held.
	Free     int64 `json:"free,omitempty"`
	Reserved int64 `json:"reserved,omitempty"`
}

// Grant tells the new state of one lease.
type LeaseState struct {
	Pool       PoolID `json:"pool"`
	Granted    int64  `json:"granted"`
	Generation int64  `json:"generation"`
	Central    bool   `json:"central"`
}

// OpReply answers an Op.
type LeaseResponse struct {
	V         int          `json:"v"`
	Number    int64        `json:"number"`
	Status    Status       `json:"status"`
	Decisions []Decision   `json:"decisions,omitempty"`
	Leases    []LeaseState `json:"leases,omitempty"`
}

// Return gives units back. Views hold totals, so that a repeated or late
// Return changes nothing.
type Return struct {
	V       int           `json:"v"`
	Session SessionID     `json:"session"`
	BootID  string        `json:"boot_id"`
	Account string        `json:"account"`
	Reports []LeaseReport `json:"reports"`
}

// ReturnReply answers a Return.
type ReturnResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
}

// Recall asks a session to hand back what it holds idle of a pool.
type Recall struct {
	V          int    `json:"v"`
	Account    string `json:"account"`
	Pool       PoolID `json:"pool"`
	Generation int64  `json:"generation"`
}
