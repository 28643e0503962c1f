package wire

import (
	"math"
	"slices"

	"modelgateway/shared/apikey"
	"modelgateway/shared/limit"
	"modelgateway/shared/price"
)

// RegisterRequest opens a session. A proxy sends it at each start and after
// each expiry of its session.
type RegisterRequest struct {
	V int `json:"v"`
	// Name is the proxy's stable name, BootID the random id of this process.
	Name   string `json:"name"`
	BootID string `json:"boot_id"`
	// Build is the version of the software, Capacity the spool capacity in events.
	Build    string `json:"build"`
	Capacity int64  `json:"capacity"`
	// ClockMS is the proxy's wall clock, in milliseconds since 1970; zero is not compared.
	ClockMS int64 `json:"clock_ms,omitempty"`
	// Peppers are the ids of the peppers of the proxy.
	Peppers []string `json:"peppers,omitempty"`
	// Earlier lists sessions of this proxy that may still hold units. The control plane restores those that Postgres has
	// lost.
	Earlier []EarlierSession `json:"earlier,omitempty"`
}

// EarlierSession is a session before the requested one.
type EarlierSession struct {
	Session SessionID `json:"session"`
	BootID  string    `json:"boot_id"`
}

// RegisterResponse answers a RegisterRequest. Status is Done, Unavailable or
// ClockDiffers.
type RegisterResponse struct {
	V       int       `json:"v"`
	Status  Status    `json:"status"`
	Session SessionID `json:"session,omitempty"`
	// AllHaveMAC means that every key that is not revoked has a MAC under one of the peppers of the proxy: it refuses others
	// without a lookup, until a change adds keys (KeysAdded).
	AllHaveMAC bool `json:"all_have_mac,omitempty"`
	// WindowMS is for how long the proxy may admit after a beat in the stream of changes, in milliseconds. If no
	// heartbeat to a control plane comes for as long, the session is to end.
	WindowMS int64 `json:"window_ms,omitempty"`
	// Revision is the current revision of keys and accounts: key records that were read before it must not be used.
	Revision int64 `json:"revision,omitempty"`
	// StreamIncarnation changes when the usage stream is created again, ClusterEpoch when Postgres has lost commits.
	StreamIncarnation string `json:"stream_incarnation,omitempty"`
	ClusterEpoch      int64  `json:"cluster_epoch,omitempty"`
}

// HeartbeatRequest extends a session and reports the proxy's state.
type HeartbeatRequest struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	BootID  string    `json:"boot_id"`
	// AppliedRevision is the revision up to which every key change is applied, CatalogRevision that of the catalog snapshot.
	AppliedRevision int64 `json:"applied_revision"`
	CatalogRevision int64 `json:"catalog_revision"`
	Running         int64 `json:"running"`
	// Started is how many requests have started in the session so far; each becomes one usage event.
	Started   int64 `json:"started,omitempty"`
	SpoolUsed int64 `json:"spool_used"`
	Draining  bool  `json:"draining,omitempty"`
	// Refused lists every credential that its provider rejects now; each heartbeat has the whole list.
	Refused []RefusedCredential `json:"refused,omitempty"`
}

// RefusedCredential is a provider credential that the provider rejected at its
// last use, or that could not be renewed when that was last tried.
type RefusedCredential struct {
	Credential string `json:"credential"`
	// Reason is KeyRejected, QuotaExhausted, SourceFailing or SourceFailed.
	Reason string `json:"reason"`
}

// The reasons for which a provider rejects a credential.
const (
	KeyRejected    = "key_rejected"
	QuotaExhausted = "quota_exhausted"
	// SourceFailing means that the credential cannot be renewed but still has a valid token, SourceFailed that it has
	// none left.
	SourceFailing = "source_failing"
	SourceFailed  = "source_failed"
)

// HeartbeatResponse answers a HeartbeatRequest. A proxy that is not fresh may become
// fresh when it has applied the changes.
type HeartbeatResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
	// Changes holds the key changes after AppliedRevision, in order. More means that there are further ones: the proxy
	// sends the next heartbeat at once.
	Changes []KeyChange `json:"changes,omitempty"`
	More    bool        `json:"more,omitempty"`
	// StreamIncarnation and ClusterEpoch are as in RegisterResponse. If the incarnation is new, the proxy publishes all
	// unsettled usage again; if the epoch is new, the session has ended.
	StreamIncarnation string `json:"stream_incarnation,omitempty"`
	ClusterEpoch      int64  `json:"cluster_epoch,omitempty"`
	// UsageBacklog means that settlement is behind: what is not settled yet waits in the usage stream, and the proxy does
	// not publish it again.
	UsageBacklog bool `json:"usage_backlog,omitempty"`
}

// NotFinal is the FinalCount of a session that has ended at its proxy, and in which
// requests still run: it is only fenced, and kept for as long as this is repeated.
const NotFinal = math.MaxInt64

// CloseRequest closes a session in which no request runs any more and every
// usage event has its sequence number. It is repeated until Status is Done.
type CloseRequest struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	BootID  string    `json:"boot_id"`
	// FinalCount is the number of usage events of the session, or NotFinal.
	FinalCount int64 `json:"final_count"`
}

// CloseResponse answers a CloseRequest: Done when all events are settled, else
// Wait.
type CloseResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
}

// KeyChangeKind is the kind of a KeyChange.
type KeyChangeKind string

// The kinds of key changes.
const (
	// KeyRevoked: the key must never be admitted again.
	KeyRevoked KeyChangeKind = "key_revoked"
	// KeyUpdated: the key's record must be read again.
	KeyUpdated KeyChangeKind = "key_updated"
	// AccountUpdated: the records of all keys of the account must be read again.
	AccountUpdated KeyChangeKind = "account_updated"
	// KeysAdded: a hash that was unknown may be that of a key now.
	KeysAdded KeyChangeKind = "keys_added"
)

// KeyChange is one change of a key or an account, pushed in revision order. A
// proxy that has not applied PreviousRevision has missed a change.
type KeyChange struct {
	V                int           `json:"v"`
	Revision         int64         `json:"revision"`
	PreviousRevision int64         `json:"previous_revision"`
	Kind             KeyChangeKind `json:"kind"`
	KeyHash          apikey.Hash   `json:"key_hash,omitzero"`
	Account          string        `json:"account,omitempty"`
	// Before, in a pushed change of a key that has several secrets, is the change before it, of another hash: both were committed
	// together. So a proxy needs no heartbeat for it.
	Before *KeyChange `json:"before,omitempty"`
}

// All returns the changes that were committed together, each without the others: those before c in their order, then c.
func (c *KeyChange) All() []KeyChange {
	all := []KeyChange{*c}
	for before := c.Before; before != nil; before = before.Before {
		all = append(all, *before)
	}
	slices.Reverse(all)
	for i := range all {
		all[i].Before = nil
	}
	return all
}

// MayReduce reports whether a pool of the account may have fewer units since: its
// balance, its slots, or the limit of the key.
func (c *KeyChange) MayReduce() bool { return c.Kind == KeyUpdated || c.Kind == AccountUpdated }

// Ack confirms that a session has applied every key change up to Revision.
type Ack struct {
	V        int       `json:"v"`
	Session  SessionID `json:"session"`
	Revision int64     `json:"revision"`
}

// LoadKeyRequest asks for the record of a key by its lookup hash.
type LoadKeyRequest struct {
	V       int         `json:"v"`
	KeyHash apikey.Hash `json:"key_hash"`
}

// LoadKeyResponse answers a LoadKeyRequest. Status is Done or Unavailable; a
// nil Record means that there is no such key.
type LoadKeyResponse struct {
	V      int    `json:"v"`
	Status Status `json:"status"`
	// ReadRevision is the revision at which the record was read.
	ReadRevision int64      `json:"read_revision,omitempty"`
	Record       *KeyRecord `json:"record,omitempty"`
}

// KeyRecord is a key as a proxy caches it.
type KeyRecord struct {
	KeyID     string `json:"key_id"`
	AccountID string `json:"account_id"`
	// ProjectID is the project that the key is in; empty if it is in none.
	ProjectID string `json:"project_id,omitempty"`
	// Active is false for a revoked key and for every key of a suspended account.
	Active bool `json:"active"`
	// SecretUntilMS is when the secret of the hash stops working, in milliseconds since 1970, since a rotation has replaced it;
	// zero means never, and 1 that it has stopped, whatever the proxy's clock says.
	SecretUntilMS int64 `json:"secret_until_ms,omitempty"`
	// Rules say when and for what the key may be used.
	Rules KeyRules `json:"rules,omitzero"`
	// The pools of the account and the key. LimitPool is zero for a key without a spend limit, KeySlotsPool for one without slots of its
	// own.
	BalancePool  PoolID `json:"balance_pool"`
	SlotsPool    PoolID `json:"slots_pool"`
	KeySlotsPool PoolID `json:"key_slots_pool,omitempty"`
	LimitPool    PoolID `json:"limit_pool,omitempty"`
	// Limits are the limits that apply to the key, besides that of LimitPool: its own first, then those of its project, then those of its
	// account.
	Limits []limit.Limit `json:"limits,omitempty"`
	// MaxConcurrent is how many requests of the account run at the same time at most; zero means unknown.
	MaxConcurrent int64 `json:"max_concurrent_requests,omitempty"`
	// KeyMaxConcurrent is how many requests of the key run at the same time at most; zero for a key without slots of its own, or unknown.
	KeyMaxConcurrent int64 `json:"key_max_concurrent_requests,omitempty"`
	// PriceMultiplier is the account's factor on list prices; ModelMultipliers replaces it for single models.
	PriceMultiplier  price.Multiplier            `json:"price_multiplier,omitempty"`
	ModelMultipliers map[string]price.Multiplier `json:"model_multipliers,omitempty"`
	// IncludeCost makes the answers to all requests of the account say what they cost.
	IncludeCost bool `json:"include_cost,omitempty"`
}

// Multiplier returns the factor that the key's account pays on the list price
// of a model.
func (k *KeyRecord) Multiplier(model string) price.Multiplier {
	return k.ModelMultipliers[model].Or(k.PriceMultiplier)
}

// ReservedRequest asks every proxy for the reservations of the running requests
// of an account.
type ReservedRequest struct {
	V       int    `json:"v"`
	Account string `json:"account"`
}

// ReservedResponse answers a ReservedRequest for one session, in the units of
// each pool.
type ReservedResponse struct {
	V        int              `json:"v"`
	Session  SessionID        `json:"session"`
	Reserved map[PoolID]int64 `json:"reserved,omitempty"`
}

// DescribeRequest asks every proxy to describe itself.
type DescribeRequest struct {
	V int `json:"v"`
}

// DescribeResponse describes a proxy, for a diagnosis.
type DescribeResponse struct {
	V       int       `json:"v"`
	Session SessionID `json:"session"`
	Name    string    `json:"name"`
	// ClockMS is the time of day of its machine, in milliseconds since 1970.
	ClockMS int64 `json:"clock_ms"`
	// Peppers (the current one first) and FleetKey are fingerprints of the secrets (package seal), to compare them between
	// programs.
	Peppers  []string `json:"peppers"`
	FleetKey string   `json:"fleet_key"`
	// PreviousFleetKeys are the fingerprints of further keys that decrypt provider credentials.
	PreviousFleetKeys []string `json:"previous_fleet_keys,omitempty"`
	// NotReady has the reasons for which it is not ready, by the name of the check.
	NotReady map[string]string `json:"not_ready,omitempty"`
	// FailingRoutes are the ids of the routes whose last calls have all failed.
	FailingRoutes []string `json:"failing_routes,omitempty"`
	// FailingModels are the ids of the enabled models all of whose routes are failing.
	FailingModels []string `json:"failing_models,omitempty"`
}

// BalanceRequest asks for the amounts of GET /v1/balance.
type BalanceRequest struct {
	V         int    `json:"v"`
	AccountID string `json:"account_id"`
	KeyID     string `json:"key_id"`
}

// BalanceResponse answers a BalanceRequest, in nano-units. Status is Done or
// Unavailable.
type BalanceResponse struct {
	V        int    `json:"v"`
	Status   Status `json:"status"`
	Currency string `json:"currency,omitempty"`
	// The pools of the account and the key.
	BalancePool PoolID `json:"balance_pool,omitempty"`
	LimitPool   PoolID `json:"limit_pool,omitempty"`
	// MaxConcurrent is how many requests of the account run at the same time at most; zero means unknown.
	MaxConcurrent int64 `json:"max_concurrent_requests,omitempty"`
	// Balance is deposits less settled charges; Reserved is the sum of the reservations of running requests on all proxies.
	Balance  int64 `json:"balance"`
	Reserved int64 `json:"reserved"`
	// Limited reports whether the key has a spend limit.
	Limited     bool  `json:"limited,omitempty"`
	Limit       int64 `json:"limit,omitempty"`
	KeySpent    int64 `json:"key_spent"`
	KeyReserved int64 `json:"key_reserved"`
}
