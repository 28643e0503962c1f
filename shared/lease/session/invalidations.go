package session

import (
	"math"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// maxFloors bounds the entries for keys and accounts; beyond it, every record
// that was read before the newest change counts as out of date.
const maxFloors = 1 << 16

// RecordVersion says when a cached key record was read.
type RecordVersion struct {
	Hash    apikey.Hash
	Account string
	// Revision is the revision at which the record was read, Session the value of Invalidations.Session before the read.
	Revision, Session int64
}

// Invalidations is the effect of the key changes that a proxy has applied: which
// keys are revoked, and which cached key records are out of date. BeginSession
// must be called before any other method.
type Invalidations struct {
	// session counts the sessions: records that were read before the last one began must not be used.
	session int64
	// floor is the least revision at which a record that may be used was read; keys and accounts have it for single keys
	// and accounts.
	floor    int64
	revoked  map[apikey.Hash]int64
	keys     map[apikey.Hash]int64
	accounts map[string]int64
}

// BeginSession starts a session: records that were read before it, or at a
// revision below floor, must not be used any more. Revisions of different
// sessions cannot be compared: Postgres may have lost commits between them.
func (i *Invalidations) BeginSession(floor int64) {
	*i = Invalidations{
		session:  i.session + 1,
		floor:    floor,
		revoked:  map[apikey.Hash]int64{},
		keys:     map[apikey.Hash]int64{},
		accounts: map[string]int64{},
	}
}

// Session returns the number of the current session, for the RecordVersion of a
// record that will be read.
func (i *Invalidations) Session() int64 { return i.session }

// Revoked reports whether a key is known to be revoked.
func (i *Invalidations) Revoked(hash apikey.Hash) bool {
	_, revoked := i.revoked[hash]
	return revoked
}

// IsCurrent reports whether a cached record may be used: no known change is newer
// than its read. It must be checked again after every wait.
func (i *Invalidations) IsCurrent(r RecordVersion) bool {
	return !i.Revoked(r.Hash) && r.Session == i.session && r.Revision >= i.floor && r.Revision >= i.keys[r.Hash] &&
		r.Revision >= i.accounts[r.Account]
}

// Apply applies a change: the records that it makes out of date are no longer
// current.
func (i *Invalidations) Apply(c wire.KeyChange) {
	switch c.Kind {
	case wire.KeyRevoked:
		rev := c.Revision
		if rev == 0 { // Postgres lacks this one, so a record that is read later may still be that of an active key
			rev = math.MaxInt64
		}
		i.revoked[c.KeyHash] = max(rev, i.revoked[c.KeyHash])
	case wire.KeyUpdated:
		i.keys[c.KeyHash] = max(c.Revision, i.keys[c.KeyHash])
	case wire.AccountUpdated:
		i.accounts[c.Account] = max(c.Revision, i.accounts[c.Account])
	default: // a kind that only later versions know may concern any record
		i.floor = max(c.Revision, i.floor)
	}
	if len(i.revoked)+len(i.keys)+len(i.accounts) > maxFloors {
		i.compact(c.Revision)
	}
}

// compact invalidates every record that was read before rev, and drops the
// entries for keys and accounts that are redundant then. A record that is read
// later contains all changes up to rev; that of a revoked key is not active.
func (i *Invalidations) compact(rev int64) {
	i.floor = max(rev, i.floor)
	drop(i.revoked, i.floor)
	drop(i.keys, i.floor)
	drop(i.accounts, i.floor)
}

func drop[K comparable](floors map[K]int64, floor int64) {
	for key, at := range floors {
		if at <= floor {
			delete(floors, key)
		}
	}
}
