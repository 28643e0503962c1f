package wire

import (
	"modelgateway/shared/apikey"
	"modelgateway/shared/price"
)

// Register opens a session: at each boot of a proxy and after each expiry.
type RegisterRequest struct {
	V int `json:"v"`
	// Name is the proxy's stable name, Boot the id of this process's life.
	Name   string `json:"name"`
	BootID string `json:"boot_id"`
	// Build is the version of the software, Capacity the places in the spool.
	Build    string `json:"build"`
	Capacity int64  `json:"capacity"`
	// Earlier are sessions of this proxy that may still hold something, for the case that Postgres has lost them.
	Earlier []EarlierSession `json:"earlier,omitempty"`
}

// Earlier is a session before the one that is asked for.
type EarlierSession struct {
	Session SessionID `json:"session"`
	BootID  string    `json:"boot_id"`
}

// Registered answers Register. Status is Done or Unavailable.
type RegisterResponse struct {
	V       int       `json:"v"`
	Status  Status    `json:"status"`
	Session SessionID `json:"session,omitempty"`
	// ValidMS is the session's length from the moment the request was sent.
	ValidMS int64 `json:"valid_ms,omitempty"`
	// Rev is the revision of keys and accounts: a record read before it is too old to be used.
	Revision int64 `json:"revision,omitempty"`
	// StreamIncarnation changes when the usage stream was made anew, ClusterEpoch when Postgres lost commits.
	StreamIncarnation string `json:"stream_incarnation,omitempty"`
	ClusterEpoch      int64  `json:"cluster_epoch,omitempty"`
}

// Renew extends a session and reports on the proxy.
type HeartbeatRequest struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	BootID  string    `json:"boot_id"`
	// AppliedRev is the revision up to which every change of keys and accounts is applied; CatalogRev the catalog's.
	AppliedRevision int64 `json:"applied_revision"`
	CatalogRevision int64 `json:"catalog_revision"`
	Running         int64 `json:"running"`
	SpoolUsed       int64 `json:"spool_used"`
	Draining        bool  `json:"draining,omitempty"`
	// Refused are the credentials that their providers refuse, all of them at every renewal.
	Refused []RefusedCredential `json:"refused,omitempty"`
}

// RefusedCredential is a provider's credential that it refused when it was
// tried last.
type RefusedCredential struct {
	Credential string `json:"credential"`
	// Reason is KeyRejected or QuotaExhausted.
	Reason string `json:"reason"`
}

// Why a provider refuses a credential.
const (
	KeyRejected    = "key_rejected"
	QuotaExhausted = "quota_exhausted"
)

// Renewed answers Renew. Changes are applied before the session is extended.
type HeartbeatResponse struct {
	V       int    `json:"v"`
	Status  Status `json:"status"`
	ValidMS int64  `json:"valid_ms,omitempty"`
	// Changes holds those after AppliedRev, in order. If More is set there are further ones: renew again at once.
	Changes []KeyChange `json:"changes,omitempty"`
	More    bool        `json:"more,omitempty"`
	// StreamIncarnation and ClusterEpoch as in Registered; a new incarnation means that unsettled usage is published again,
	// a new epoch that the session is over.
	StreamIncarnation string `json:"stream_incarnation,omitempty"`
	ClusterEpoch      int64  `json:"cluster_epoch,omitempty"`
}

// CloseSession ends a session: nothing is running any more and every event of
// it is numbered. It is repeated until Status is Done.
type CloseRequest struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	BootID  string    `json:"boot_id"`
	// FinalCount is the number of events that the session has made.
	FinalCount int64 `json:"final_count"`
}

// Closed answers CloseSession: Done when all events are settled, else Wait.
type CloseResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
}

// ChangeKind is what a Change is about.
type KeyChangeKind string

// The kinds of changes.
const (
	// KeyRevoked is for ever: the key is dead.
	KeyRevoked KeyChangeKind = "key_revoked"
	// KeyChanged: the key's record is to be read again.
	KeyUpdated KeyChangeKind = "key_updated"
	// AccountChanged: the records of all keys of the account are to be read again.
	AccountUpdated KeyChangeKind = "account_updated"
	// KeysAdded: hashes that were asked for in vain may be those of keys now. A proxy of before 2026-11 reads every record
	// again.
	KeysAdded KeyChangeKind = "keys_added"
)

// Change is one change of keys and accounts, pushed in revision order. Prev
// is the revision before it: a proxy that has not applied Prev has a gap.
type KeyChange struct {
	V                int           `json:"v"`
	Revision         int64         `json:"revision"`
	PreviousRevision int64         `json:"previous_revision"`
	Kind             KeyChangeKind `json:"kind"`
	KeyHash          apikey.Hash   `json:"key_hash,omitzero"`
	Account          string        `json:"account,omitempty"`
}

// Ack confirms that a session has applied every change up to Rev.
type Ack struct {
	V        int       `json:"v"`
	Session  SessionID `json:"session"`
	Revision int64     `json:"revision"`
}

// LoadKey asks for the record of a key.
type LoadKeyRequest struct {
	V       int         `json:"v"`
	KeyHash apikey.Hash `json:"key_hash"`
}

// LoadedKey answers LoadKey. Status is Done or Unavailable; a nil Record means
// that there is no such key.
type LoadKeyResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
	// ReadRev is the revision at which the record was read.
	ReadRevision int64      `json:"read_revision,omitempty"`
	Record       *KeyRecord `json:"record,omitempty"`
}

// KeyRecord is what a proxy knows of a key.
type KeyRecord struct {
	KeyID     string `json:"key_id"`
	AccountID string `json:"account_id"`
	// Active is false for a revoked key and for every key of a suspended account.
	Active bool `json:"active"`
	// The pools of the account and the key. LimitPool is zero for a key without spend limit.
	BalancePool PoolID `json:"balance_pool"`
	SlotsPool   PoolID `json:"slots_pool"`
	LimitPool   PoolID `json:"limit_pool,omitempty"`
	// PriceMultiplier is what the account pays of list prices, ModelMultipliers what it pays for single models instead.
	PriceMultiplier  price.Multiplier            `json:"price_multiplier,omitempty"`
	ModelMultipliers map[string]price.Multiplier `json:"model_multipliers,omitempty"`
}

// Multiplier is what the key's account pays of the list price of a model.
func (k *KeyRecord) Multiplier(model string) price.Multiplier {
	return k.ModelMultipliers[model].Or(k.PriceMultiplier)
}

// HeldQuery asks every proxy what the running requests of an account hold.
type ReservedRequest struct {
	V       int    `json:"v"`
	Account string `json:"account"`
}

// Held answers HeldQuery for one session, in the units of each pool.
type ReservedResponse struct {
	V        int              `json:"v"`
	Session  SessionID        `json:"session"`
	Reserved map[PoolID]int64 `json:"reserved,omitempty"`
}

// DescribeQuery asks every proxy to describe itself.
type DescribeRequest struct {
	V int `json:"v"`
}

// Description is what a proxy says about itself, for a diagnosis.
type DescribeResponse struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	Name    string    `json:"name"`
	// ClockMS is its time of day, in milliseconds since 1970.
	ClockMS int64 `json:"clock_ms"`
	// Peppers, the one in force first, and FleetKey are fingerprints (package seal), by which two programs see whether they
	// hold the same.
	Peppers  []string `json:"peppers"`
	FleetKey string   `json:"fleet_key"`
}

// BalanceQuery asks for the figures of GET /v1/balance.
type BalanceRequest struct {
	V         int    `json:"v"`
	AccountID string `json:"account_id"`
	KeyID     string `json:"key_id"`
}

// BalanceReply answers BalanceQuery, in nano-units. Status is Done or
// Unavailable.
type BalanceResponse struct {
	V        int    `json:"v"`
	Status   Status `json:"status"`
	Currency string `json:"currency,omitempty"`
	// The pools that the figures are of.
	BalancePool PoolID `json:"balance_pool,omitempty"`
	LimitPool   PoolID `json:"limit_pool,omitempty"`
	// Balance is deposits minus settled charges; Reserved is what running requests hold on all proxies.
	Balance  int64 `json:"balance"`
	Reserved int64 `json:"reserved"`
	// Limited tells whether the key has a spend limit.
	Limited     bool  `json:"limited,omitempty"`
	Limit       int64 `json:"limit,omitempty"`
	KeySpent    int64 `json:"key_spent"`
	KeyReserved int64 `json:"key_reserved"`
}
