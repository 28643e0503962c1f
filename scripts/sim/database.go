package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/wire"
)

// database is the modelled Postgres. It can be restored from a copy.
type database struct {
	// server is the number of the history of commits: it changes with each restore and each declared loss.
	// serverIncarnation also changes with each start; connections to an earlier incarnation break. It ends with history,
	// which Postgres shows: a copy that is started like the original has the same one.
	server            int
	history           string
	serverIncarnation string
	mark              rollback.HighWaterMark
	// markers and replicas are the rows by which a loss of commits is detected: see rollback.Detector.
	markers  map[rollback.CommitMarker]bool
	replicas map[string]bool
	// commits counts the commits of this server, past those that were kept of each earlier server. By them the oracle
	// knows whether commits were lost.
	commits int64
	past    map[int]int64
	// clock is the offset of the server's clock from the world's. The ends of sessions are times of the server's clock.
	clock time.Duration
	// lostAt is when a loss was last declared, by the server's clock.
	lostAt time.Duration
	// recovered is the last epoch whose recovery wait is over.
	recovered   int64
	incarnation int64
	sessions    map[wire.SessionID]*sessionRow
	pools       map[wire.PoolID]*allocator.Pool
	leases      map[wire.PoolID]map[wire.SessionID]*allocator.Lease
	limits      map[int64]*limitRow
	// projects has the projects of keys that are in one.
	projects map[apikey.Hash]string
	paused   map[apikey.Hash]bool
	// secrets has the secrets of keys that were rotated, expires when keys expire.
	secrets    map[apikey.Hash]*keySecrets
	expires    map[apikey.Hash]int64
	keyRules   *KeyRules
	results    map[allocator.RequestKey]*allocator.Result
	usage      map[[16]byte]usageRecord
	spent      map[wire.PoolID]int64
	quarantine map[[16]byte]int
	suspended  map[string]bool
	revoked    map[apikey.Hash]int64
	changes    []wire.KeyChange
	// streamed is the revision up to which the stream of changes has confirmed all changes.
	streamed int64
}

// sessionRow is the row of a session.
type sessionRow struct {
	boot    string
	state   session.State
	until   time.Duration
	applied int64
	settled settlement.IntervalSet
	// closedByProxy means that the session was closed at its proxy's request, restored that its proxy reported it after a
	// loss of commits.
	closedByProxy, restored bool
	// ending means that the session is to be fenced when the stream of changes has confirmed it.
	ending bool
}

// usageRecord is the usage record of one request.
type usageRecord struct {
	cost        int64
	fingerprint [32]byte
}

func newDatabase(rules *KeyRules) *database {
	return &database{
		mark:        rollback.HighWaterMark{Epoch: 1, Revision: 1, Pool: 1000},
		lostAt:      -24 * time.Hour,
		recovered:   1,
		incarnation: 1,
		markers:     map[rollback.CommitMarker]bool{},
		replicas:    map[string]bool{},
		past:        map[int]int64{},
		sessions:    map[wire.SessionID]*sessionRow{},
		pools:       map[wire.PoolID]*allocator.Pool{},
		leases:      map[wire.PoolID]map[wire.SessionID]*allocator.Lease{},
		limits:      map[int64]*limitRow{},
		projects:    map[apikey.Hash]string{},
		paused:      map[apikey.Hash]bool{},
		secrets:     map[apikey.Hash]*keySecrets{},
		expires:     map[apikey.Hash]int64{},
		keyRules:    rules,
		results:     map[allocator.RequestKey]*allocator.Result{},
		usage:       map[[16]byte]usageRecord{},
		spent:       map[wire.PoolID]int64{},
		quarantine:  map[[16]byte]int{},
		suspended:   map[string]bool{},
		revoked:     map[apikey.Hash]int64{},
	}
}

// clone returns a deep copy.
func (d *database) clone() *database {
	c := *d
	c.sessions, c.pools = map[wire.SessionID]*sessionRow{}, map[wire.PoolID]*allocator.Pool{}
	for id, r := range d.sessions {
		stored := *r
		stored.settled = slices.Clone(r.settled)
		c.sessions[id] = &stored
	}

	for id, p := range d.pools {
		stored := *p
		c.pools[id] = &stored
	}

	c.limits = map[int64]*limitRow{}
	for id, row := range d.limits {
		stored := *row
		c.limits[id] = &stored
	}

	c.leases = map[wire.PoolID]map[wire.SessionID]*allocator.Lease{}
	for id, leases := range d.leases {
		c.leases[id] = map[wire.SessionID]*allocator.Lease{}
		for s, l := range leases {
			stored := *l
			c.leases[id][s] = &stored
		}
	}

	c.results, c.usage, c.spent = maps.Clone(d.results), maps.Clone(d.usage), maps.Clone(d.spent)
	c.quarantine, c.suspended, c.revoked = maps.Clone(d.quarantine), maps.Clone(d.suspended), maps.Clone(d.revoked)
	c.projects, c.paused, c.changes = maps.Clone(d.projects), maps.Clone(d.paused), slices.Clone(d.changes)
	c.secrets, c.expires = maps.Clone(d.secrets), maps.Clone(d.expires)
	c.markers, c.replicas, c.past = maps.Clone(d.markers), maps.Clone(d.replicas), maps.Clone(d.past)

	return &c
}

// recovering reports whether the recovery wait is not over.
func (d *database) recovering() bool { return d.recovered < d.mark.Epoch }

// now returns the reading of the server's clock.
func (d *database) now(w *world) time.Duration { return w.now + d.clock }

// sessionRecord reads a session.
func (d *database) sessionRecord(id wire.SessionID, now time.Duration) *session.Record {
	r := d.sessions[id]
	if r == nil {
		return &session.Record{ID: id}
	}
	return &session.Record{
		ID:              id,
		BootID:          r.boot,
		State:           r.state,
		Remaining:       r.until - now,
		AppliedRevision: r.applied,
		Ending:          r.ending,
	}
}

// saveSession writes a session that has changed.
func (d *database) saveSession(t *session.Record, now time.Duration) {
	r := d.sessions[t.ID]
	r.state, r.until, r.applied, r.ending = t.State, now+t.Remaining, t.AppliedRevision, t.Ending
}

func (d *database) sessionRecords(ids map[wire.SessionID]bool, now time.Duration) map[wire.SessionID]*session.Record {
	tenures := map[wire.SessionID]*session.Record{}
	for id := range ids {
		if d.sessions[id] != nil {
			tenures[id] = d.sessionRecord(id, now)
		}
	}
	return tenures
}

// activeSessions lists the active sessions in order.
func (d *database) activeSessions(now time.Duration) []*session.Record {
	var active []*session.Record
	for id, r := range d.sessions {
		if r.state == session.Active {
			active = append(active, d.sessionRecord(id, now))
		}
	}
	slices.SortFunc(active, func(a, b *session.Record) int { return cmp.Compare(a.ID, b.ID) })
	return active
}

// loadAllocator loads pools and the leases of sessions on them.
func (d *database) loadAllocator(pools map[wire.PoolID]bool, sessions map[wire.SessionID]bool) *allocator.Allocator {
	b := allocator.New()
	for id := range pools {
		stored := d.pools[id]
		if stored == nil {
			continue
		}
		p := *stored
		b.Pools[id] = &p
		for s, l := range d.leases[id] {
			if sessions[s] {
				held := *l
				b.Leases[allocator.LeaseKey{Pool: id, Session: s}] = &held
			}
		}
	}

	return b
}

// holders fills in the live holders of the pools that are in escrow mode, or that
// have fewer free units than are needed.
func (d *database) holders(b *allocator.Allocator, wanted map[wire.PoolID]int64) {
	for id, p := range b.Pools {
		if p.Central && p.Free >= wanted[id] {
			b.UnreadHolders[id] = true
			continue
		}
		for s, l := range d.leases[id] {
			if l.Outstanding() > 0 && d.sessions[s].state == session.Active {
				b.Holders[id] = append(b.Holders[id], allocator.LiveLease{Session: s, RecalledGeneration: l.RecalledGeneration})
			}
		}
		slices.SortFunc(b.Holders[id], func(x, y allocator.LiveLease) int { return cmp.Compare(x.Session, y.Session) })
	}
}

// falls reports whether a total of a lease has decreased.
func falls(old, l *allocator.Lease) bool {
	return old.Granted > l.Granted || old.Returned > l.Returned || old.Charged > l.Charged || old.RecalledGeneration > l.RecalledGeneration
}

// saveAllocator writes pools and leases, and checks the invariants of each pool.
func (w *world) saveAllocator(b *allocator.Allocator) {
	for key, l := range b.Leases {
		leases := w.pg.leases[key.Pool]
		if leases == nil {
			leases = map[wire.SessionID]*allocator.Lease{}
			w.pg.leases[key.Pool] = leases
		}
		stored := *l
		if old := leases[key.Session]; old != nil && falls(old, l) {
			w.fail("I10: lease %v went back from %+v to %+v", key, *old, *l)
		}
		leases[key.Session] = &stored
	}
	for id, p := range b.Pools {
		stored := *p
		if old := w.pg.pools[id]; old.Generation > p.Generation || old.Settled > p.Settled || old.Overrun > p.Overrun || old.Late > p.Late {
			w.fail("I10: pool went back from %+v to %+v", *old, *p)
		}
		w.pg.pools[id] = &stored
		w.checkPool(&stored)
	}
}

// change assigns the next revision to a key change.
func (d *database) change(kind wire.KeyChangeKind, account string, key apikey.Hash) wire.KeyChange {
	prev := int64(0)
	if n := len(d.changes); n > 0 {
		prev = d.changes[n-1].Revision
	}
	d.mark.Revision++
	c := wire.KeyChange{
		V:                wire.Version,
		Revision:         d.mark.Revision,
		PreviousRevision: prev,
		Kind:             kind,
		Account:          account,
		KeyHash:          key,
	}
	d.changes = append(d.changes, c)
	return c
}

// revoke revokes a key. If it is revoked already, revoke returns the changes of its secrets again.
func (d *database) revoke(account string, key apikey.Hash) wire.KeyChange {
	if d.revoked[key] > 0 {
		return d.revocation(key)
	}
	c := d.changeKey(wire.KeyRevoked, account, key)
	d.revoked[key] = c.Revision
	return c
}

// revocation returns the change of a key that is revoked, with those that were committed together with it.
func (d *database) revocation(key apikey.Hash) (last wire.KeyChange) {
	secrets := d.secretsOf(key).changed(wire.KeyRevoked, 0)
	var before *wire.KeyChange
	for _, c := range d.changes {
		if c.Kind == wire.KeyRevoked && slices.Contains(secrets, c.KeyHash) {
			c.Before, before = before, &c
			last = c
		}
	}
	return last
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func sortedHashes[V any](m map[apikey.Hash]V) []apikey.Hash {
	return slices.SortedFunc(maps.Keys(m), func(a, b apikey.Hash) int { return cmp.Compare(string(a[:]), string(b[:])) })
}
