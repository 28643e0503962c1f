package session

import (
	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// maxFloors bounds what is remembered of single keys and accounts; beyond it,
// every record read before now is too old instead.
const maxFloors = 1 << 16

// Reading is where a key's record comes from.
type RecordVersion struct {
	Hash    apikey.Hash
	Account string
	// Rev is the revision at which it was read, Session the value of Knowledge.Session before it was asked for.
	Revision, Session int64
}

// Knowledge is what a proxy knows of changes of keys and accounts: which keys
// are revoked, and which readings of records are too old to be used. Begin is
// to be called before anything else.
type Invalidations struct {
	// session counts the sessions: what was read before the last one began is not used any more.
	session int64
	// floor is the least revision that any record must have been read at.
	floor    int64
	revoked  map[apikey.Hash]int64
	keys     map[apikey.Hash]int64
	accounts map[string]int64
}

// Begin begins a session: nothing read before it, or at a revision below floor,
// is used any more. Revisions of different sessions do not compare: Postgres
// may have lost commits between them.
func (k *Invalidations) BeginSession(floor int64) {
	*k = Invalidations{session: k.session + 1, floor: floor, revoked: map[apikey.Hash]int64{}, keys: map[apikey.Hash]int64{}, accounts: map[string]int64{}}
}

// Session is to be noted before a record is asked for.
func (k *Invalidations) Session() int64 { return k.session }

// Revoked tells whether a key is known to be revoked.
func (k *Invalidations) Revoked(hash apikey.Hash) bool {
	_, revoked := k.revoked[hash]
	return revoked
}

// Current tells whether a record may be used: nothing that is known makes its
// reading too old. It is asked again after every wait.
func (k *Invalidations) IsCurrent(r RecordVersion) bool {
	return !k.Revoked(r.Hash) && r.Session == k.session && r.Revision >= k.floor && r.Revision >= k.keys[r.Hash] && r.Revision >= k.accounts[r.Account]
}

// Apply takes in a change. After it, no record that the change makes obsolete
// is current any more.
func (k *Invalidations) Apply(c wire.KeyChange) {
	switch c.Kind {
	case wire.KeyRevoked:
		k.revoked[c.KeyHash] = max(c.Revision, k.revoked[c.KeyHash])
	case wire.KeyUpdated:
		k.keys[c.KeyHash] = max(c.Revision, k.keys[c.KeyHash])
	case wire.AccountUpdated:
		k.accounts[c.Account] = max(c.Revision, k.accounts[c.Account])
	default: // a kind that this build does not know may be about anything
		k.floor = max(c.Revision, k.floor)
	}
	if len(k.revoked)+len(k.keys)+len(k.accounts) > maxFloors {
		k.compact(c.Revision)
	}
}

// compact makes every record too old that was read before rev, and drops with
// them the notes about single ones. A record read later knows of all changes up
// to rev, so that a revoked key comes back as not active.
func (k *Invalidations) compact(rev int64) {
	k.floor = max(rev, k.floor)
	drop(k.revoked, k.floor)
	drop(k.keys, k.floor)
	drop(k.accounts, k.floor)
}

func drop[K comparable](floors map[K]int64, floor int64) {
	for key, at := range floors {
		if at <= floor {
			delete(floors, key)
		}
	}
}
