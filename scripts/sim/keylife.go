package sim

import (
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// keyLifeProfile has keys that are rotated and expire.
const keyLifeProfile = "lives of keys"

// KeyRules are the steps by which secrets and keys end. The correct ones are those of shared/pulse, and of the statement
// FurtherHashes of the control plane.
type KeyRules struct {
	// Reason says why a key may not be used; empty if it may.
	Reason func(k *wire.KeyRecord, now func() time.Time) string
	// Hashes are those of the secrets that a change of a key concerns at a revision, that of the current one last.
	Hashes func(s *keySecrets, kind wire.KeyChangeKind, revision int64) []apikey.Hash
	// Appended are the changes that the stream of changes gets of one, Recorded those that the recovery bucket gets of a revocation: all
	// that were committed together.
	Appended, Recorded func(c *wire.KeyChange) []wire.KeyChange
}

// recordedKey is the key of a secret whose revocation was recorded, with its account.
type recordedKey struct {
	account string
	key     apikey.Hash
}

func correctKeys() *KeyRules {
	return &KeyRules{
		Reason:   pulse.KeyReason,
		Hashes:   (*keySecrets).changed,
		Appended: (*wire.KeyChange).All,
		Recorded: (*wire.KeyChange).All,
	}
}

// keySecrets are the secrets of a key. A value is never changed: copies of the database share it.
type keySecrets struct {
	current apikey.Hash
	// further are the secrets that rotations have replaced. One that has not ended is valid until untilMS.
	further []replacedSecret
	untilMS int64
}

// replacedSecret is a secret that a rotation has replaced; revision is that of its last change.
type replacedSecret struct {
	hash     apikey.Hash
	ended    bool
	revision int64
}

func (s *keySecrets) changed(kind wire.KeyChangeKind, revision int64) (hashes []apikey.Hash) {
	for _, f := range s.further {
		if !f.ended || f.revision >= revision || kind == wire.KeyRevoked {
			hashes = append(hashes, f.hash)
		}
	}
	return append(hashes, s.current)
}

// rotated returns the secrets after a rotation, as the statements RetireHashes and RotateKey write them.
func (s *keySecrets) rotated(next apikey.Hash, untilMS, revision int64) *keySecrets {
	r := &keySecrets{current: next, untilMS: untilMS}
	for _, f := range s.further {
		if !f.ended {
			f.ended, f.revision = true, revision
		}
		r.further = append(r.further, f)
	}
	r.further = append(r.further, replacedSecret{s.current, untilMS == 0, revision})
	return r
}

// until returns when the secret of a hash stops working, as in a record of the key.
func (s *keySecrets) until(hash apikey.Hash, nowMS int64) (untilMS int64, found bool) {
	if hash == s.current {
		return 0, true
	}
	for _, f := range s.further {
		switch {
		case f.hash != hash:
		case f.ended || s.untilMS <= nowMS:
			return 1, true
		default:
			return s.untilMS, true
		}
	}
	return 0, false
}

// secretsOf returns the secrets of a key, which is known by the hash of its first one.
func (d *database) secretsOf(key apikey.Hash) *keySecrets {
	if s := d.secrets[key]; s != nil {
		return s
	}
	return &keySecrets{current: key}
}

// changeKey assigns revisions to a change of a key, one for each of its secrets, and returns the last one, that of the current secret: a
// proxy that has applied it has applied the others.
func (d *database) changeKey(kind wire.KeyChangeKind, account string, key apikey.Hash) (last wire.KeyChange) {
	var before *wire.KeyChange
	for _, hash := range d.keyRules.Hashes(d.secretsOf(key), kind, d.mark.Revision+1) {
		last = d.change(kind, account, hash)
		last.Before, before = before, &wire.KeyChange{}
		*before = last
	}
	return last
}

// ends has what the oracle knows of the ends of keys and secrets.
type ends struct {
	// secrets are all secrets of a key that was rotated, keys the keys of secrets.
	secrets map[apikey.Hash][]apikey.Hash
	keys    map[apikey.Hash]apikey.Hash
	// until are the confirmed ends of secrets, in milliseconds by the wall clocks of proxies, expires those of keys. expiries counts how
	// often the expiry of a key was set.
	until, expires map[apikey.Hash]int64
	expiries       map[apikey.Hash]int
}

func newEnds() ends {
	return ends{
		secrets:  map[apikey.Hash][]apikey.Hash{},
		keys:     map[apikey.Hash]apikey.Hash{},
		until:    map[apikey.Hash]int64{},
		expires:  map[apikey.Hash]int64{},
		expiries: map[apikey.Hash]int{},
	}
}

// keyOf returns the key of a secret.
func (e *ends) keyOf(secret apikey.Hash) apikey.Hash {
	if key, replaced := e.keys[secret]; replaced {
		return key
	}
	return secret
}

// secretOf returns the secret of which a client makes a request: mostly the last one, sometimes one that was replaced.
func (w *world) secretOf(k *key) apikey.Hash {
	all := w.oracle.ends.secrets[k.hash]
	switch {
	case len(all) == 0:
		return k.hash
	case w.healed:
		return w.pg.secretsOf(k.hash).current
	case w.r.IntN(3) == 0:
		return all[w.r.IntN(len(all))]
	default:
		return all[len(all)-1]
	}
}

// rotateKey gives a key a new secret. The old one is valid for an overlap, or ends at once.
func (w *world) rotateKey(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	k, overlap := cust.keys[w.r.IntN(len(cust.keys))], w.between(200*time.Millisecond, 8*time.Second)
	if w.r.IntN(4) == 0 {
		overlap = 0
	}
	w.nextSecret++
	next := apikey.Hash{byte(w.nextSecret), byte(w.nextSecret >> 8), 2}
	var change wire.KeyChange
	var made *keySecrets
	c.writeTx("rotate key", rows{}, func(d *database) {
		if made = nil; d.revoked[k.hash] != 0 { // as key.Rotation.check says
			return
		}
		untilMS := int64(0)
		if overlap > 0 {
			untilMS = w.wallMS() + overlap.Milliseconds()
		}
		made = d.secretsOf(k.hash).rotated(next, untilMS, d.mark.Revision+1)
		d.secrets[k.hash] = made
		change = d.changeKey(wire.KeyUpdated, cust.name, k.hash)
		all := w.oracle.ends.secrets[k.hash]
		if len(all) == 0 {
			all = []apikey.Hash{k.hash}
		}
		w.oracle.ends.secrets[k.hash] = append(all, next)
		w.oracle.ends.keys[next] = k.hash
	}, func(ok bool) {
		if !ok || made == nil {
			return
		}
		w.stats.count("keys rotated")
		w.log("key %s is rotated at rev %d, the secret before is valid until %d", k.name, change.Revision, made.untilMS)
		c.announce(change, func() {
			w.log("the rotation of %s is confirmed", k.name)
			for _, f := range made.further {
				until := made.untilMS
				if f.ended {
					until = 1
				}
				if before := w.oracle.ends.until[f.hash]; before == 0 || until < before {
					w.oracle.ends.until[f.hash] = until
				}
			}
		})
	})
}

// expireKey sets when a key expires, or that it never does.
func (w *world) expireKey(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	k, in := cust.keys[w.r.IntN(len(cust.keys))], w.between(200*time.Millisecond, 3*time.Second)
	never := w.r.IntN(3) == 0
	var change wire.KeyChange
	expiresMS, number := int64(0), 0
	c.writeTx("expire key", rows{}, func(d *database) {
		delete(d.expires, k.hash)
		if !never {
			expiresMS = w.wallMS() + in.Milliseconds()
			d.expires[k.hash] = expiresMS
		}
		change = d.changeKey(wire.KeyUpdated, cust.name, k.hash)
		delete(w.oracle.ends.expires, k.hash)
		w.oracle.ends.expiries[k.hash]++
		number = w.oracle.ends.expiries[k.hash]
	}, func(ok bool) {
		if !ok {
			return
		}
		w.log("key %s expires at %d ms, at rev %d", k.name, expiresMS, change.Revision)
		c.announce(change, func() {
			if !never && number == w.oracle.ends.expiries[k.hash] { // no other one has followed
				w.stats.count("expiries of keys confirmed")
				w.oracle.ends.expires[k.hash] = expiresMS
			}
		})
	})
}

// checkEnds checks I4 for secrets and keys that have ended by the clock of the proxy.
func (w *world) checkEnds(r *request) {
	if w.oracle.lost {
		return
	}
	now := r.p.wallMS()
	if until := w.oracle.ends.until[r.secret]; until != 0 && now >= until {
		w.fail("I4: %s admits a secret of %s, which was replaced, %d ms after its end", r.p.name, r.key.name, now-until)
	}
	if expires := w.oracle.ends.expires[r.key.hash]; expires != 0 && now >= expires {
		w.fail("I4: %s admits %s %d ms after its expiry", r.p.name, r.key.name, now-expires)
	}
}

// keyLifeMutations break the rules of rotation and expiry.
func keyLifeMutations() []Mutation {
	mutate := func(name string, budget uint64, apply func(r *KeyRules)) Mutation {
		return Mutation{name, budget, func(r *Rules) {
			r.Profile = keyLifeProfile
			apply(r.Keys)
		}}
	}
	return []Mutation{
		mutate("the old secret of a key works after its overlap", 50, func(r *KeyRules) {
			r.Reason = func(k *wire.KeyRecord, now func() time.Time) string {
				record := *k
				if record.SecretUntilMS > 1 {
					record.SecretUntilMS = 0
				}
				return pulse.KeyReason(&record, now)
			}
		}),
		mutate("a secret that a rotation has ended at once works", 50, func(r *KeyRules) {
			r.Reason = func(k *wire.KeyRecord, now func() time.Time) string {
				record := *k
				if record.SecretUntilMS == 1 {
					record.SecretUntilMS = 0
				}
				return pulse.KeyReason(&record, now)
			}
		}),
		mutate("a key works after its expiry", 50, func(r *KeyRules) {
			r.Reason = func(k *wire.KeyRecord, now func() time.Time) string {
				record := *k
				record.Rules.ExpiresMS = 0
				return pulse.KeyReason(&record, now)
			}
		}),
		mutate("a revocation ends only the current secret of a key", 500, func(r *KeyRules) {
			r.Hashes = func(s *keySecrets, kind wire.KeyChangeKind, revision int64) []apikey.Hash {
				if kind == wire.KeyRevoked {
					return []apikey.Hash{s.current}
				}
				return s.changed(kind, revision)
			}
		}),
		mutate("the stream of changes gets a revocation of the current secret only", 100, func(r *KeyRules) { r.Appended = lastOf }),
		mutate("only the current secret of a revoked key is recorded outside of Postgres", 900, func(r *KeyRules) { r.Recorded = lastOf }),
		mutate("proxies are not told of the secrets that a rotation replaces", 50, func(r *KeyRules) {
			r.Hashes = func(s *keySecrets, kind wire.KeyChangeKind, revision int64) []apikey.Hash {
				if kind == wire.KeyUpdated {
					return []apikey.Hash{s.current}
				}
				return s.changed(kind, revision)
			}
		}),
		{"a pushed change counts without those that were committed with it", 50, func(r *Rules) {
			r.Profile = keyLifeProfile
			r.HandlePushed = func(c *session.Client, change wire.KeyChange, ack func(wire.Ack)) bool {
				for ; change.Before != nil; change.Before = change.Before.Before {
					change.PreviousRevision = change.Before.PreviousRevision
				}
				return c.HandlePushed(change, ack)
			}
		}},
		mutate("a change of a key does not reach the secret that is still valid", 400, func(r *KeyRules) {
			r.Hashes = func(s *keySecrets, kind wire.KeyChangeKind, revision int64) []apikey.Hash {
				all := s.changed(kind, revision)
				if rotates := len(s.further) > 0 && s.further[len(s.further)-1].revision >= revision; kind == wire.KeyUpdated && !rotates {
					return all[len(all)-1:]
				}
				return all
			}
		}),
	}
}

// lastOf returns the last of the changes that were committed together, that of the current secret.
func lastOf(c *wire.KeyChange) []wire.KeyChange {
	all := c.All()
	return all[len(all)-1:]
}
