package sim

import (
	"fmt"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// The intervals of a replica. A replica without a checkpoint for the time silence
// counts as silent.
const (
	sweepEvery         = 500 * time.Millisecond
	confirmEvery       = 120 * time.Millisecond
	checkpointInterval = 100 * time.Millisecond
	silence            = 1500 * time.Millisecond
	restartLimit       = 300 * time.Millisecond
)

// replica is one control plane replica. Its only state is the batcher, and in the
// detector the commits that it has answered.
type replica struct {
	actor
	batcher *allocator.Batcher
	// running is the batch whose transaction runs, or nil.
	running *allocator.Transaction
	// wake is the time of the batcher's timer, which calls pump; allocator.Never if it is not set.
	wake     time.Duration
	detector *rollback.Detector
	checking bool
	// serving tracks the transactions of the sweeps, hearing those while the replica can receive messages.
	serving, hearing session.Presence
	// suspects are the pools whose rows the last batch found locked.
	suspects map[wire.PoolID]bool
	// confirmations are those of the stream of changes, streamed the streamed revision that was read, confirmedEpoch the last
	// epoch that it has confirmed.
	confirmations     map[confirming]*session.Confirmation
	streamed          int64
	confirmedEpoch    int64
	confirmingChanges bool
}

func (w *world) newReplica(name string) *replica {
	c := &replica{actor: actor{
		w:      w,
		name:   name,
		rate:   1 + 0.04*(w.r.Float64()-0.5),
		offset: w.between(0, time.Hour),
	}}
	w.replicas = append(w.replicas, c)
	c.start()
	return c
}

func (c *replica) start() {
	c.alive, c.running = true, nil
	c.process++

	c.wake, c.batcher = allocator.Never, allocator.NewBatcher(allocator.BatcherConfig{
		MaxBatch: 32,
		MaxQueue: 200,
		Escrow:   c.w.profile.HeadroomPeriod >= 0,
		Policy:   allocator.EscrowPolicy{HeadroomPeriod: c.w.profile.HeadroomPeriod},
	})
	c.suspects = map[wire.PoolID]bool{}
	c.confirmations, c.streamed, c.confirmedEpoch, c.confirmingChanges = nil, 0, 0, false
	c.serving, c.hearing = session.NewPresence(c.clock()), session.NewPresence(c.clock())
	c.detector, c.checking = rollback.NewDetector(fmt.Sprintf("%s/%d", c.name, c.process), rollback.Config{
		SilenceLimit: silence, RestartLimit: restartLimit, Keeps: c.w.profile.Keeps,
	}), false
	c.every(sweepEvery, c.sweep)
	c.every(checkpointInterval, c.check)
	c.every(c.w.profile.SettleEvery, c.settle)

	c.every(confirmEvery, c.confirmChanges)
	c.every(bucketEvery, c.writeBucket)
}

func (c *replica) every(d time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		c.after(d, again)
	}
	c.after(c.w.between(0, d), again)
}

// kill kills the process, and starts another one later.
func (c *replica) kill() {
	c.alive = false
	c.releaseRows()
	c.w.stats.count("control planes killed")
	c.w.log("%s killed", c.name)
	process := c.process
	c.w.after(c.w.between(50*time.Millisecond, time.Second), func() {
		if c.process == process {
			c.start()
		}
	})
}

// tx runs a transaction. It may fail, it may commit without an answer, and the
// replica may be killed right after the commit.
func (c *replica) tx(name string, do func(d *database), done func(ok bool)) {
	commit, ok := c.detector.Begin()
	if !ok {
		c.after(0, func() { done(false) })
		return
	}
	c.commit(name, commit, func(d *database) bool {
		do(d)
		return true
	}, done)
}

// commit runs a transaction on a connection to the current server incarnation. do
// returns false if the server has ended the transaction.
func (c *replica) commit(name string, commit rollback.Transaction, do func(d *database) bool, done func(ok bool)) {
	w, incarnation := c.w, c.detector.Incarnation()
	failed := func() {
		c.detector.Failed(commit)
		done(false)
	}

	c.after(w.between(300*time.Microsecond, w.profile.TxTime), func() {
		switch {
		case w.pgDown || w.pg.serverIncarnation != incarnation:
			failed()
			return
		case w.chance(w.profile.TxFail):
			w.stats.count("transactions failed")
			failed()
			return
		case !w.pg.replicas[c.detector.ID()]:
			w.stats.count("control planes fenced")
			c.detector.StopServing()
			failed()
			return
		}

		w.checkLossDeclared()
		if !do(w.pg) {
			failed()
			return
		}

		w.pg.markers[commit.CommitMarker] = true
		w.pg.commits++
		server, number, epoch := w.pg.server, w.pg.commits, w.pg.mark.Epoch
		switch {
		case w.chance(w.profile.CrashAfterCommit):
			w.stats.count("crashes after commit")
			w.log("%s is killed after the commit of %s", c.name, name)
			c.kill()
		case w.chance(w.profile.TxUnknown):
			w.stats.count("commits without an answer")
			failed()
		default:
			c.after(w.between(0, w.profile.AnswerTime), func() {
				if !c.detector.Committed(commit) {
					w.stats.count("commits of an earlier server incarnation")
					done(false)
					return
				}
				w.oracle.committed(server, number, epoch)
				done(true)
			})
		}
	})
}

// maxChanges bounds the changes in one heartbeat response.
const maxChanges = 4

func (c *replica) load(cust *customer, k *key, secret apikey.Hash, reply func(wire.LoadKeyResponse)) {
	var answer wire.LoadKeyResponse
	c.tx("load", func(d *database) {
		answer = wire.LoadKeyResponse{
			V:            wire.Version,
			Status:       wire.Done,
			ReadRevision: d.mark.Revision,
			Record:       d.keyRecord(cust, k, secret, c.w.wallMS()),
		}
	}, func(ok bool) {
		if ok {
			reply(answer)
		}
	})
}

// keyRecord returns the record of a key for one of its secrets; nil if Postgres has lost the key or the secret.
func (d *database) keyRecord(cust *customer, k *key, secret apikey.Hash, nowMS int64) *wire.KeyRecord {
	limit := k.limit
	secretUntilMS, found := d.secretsOf(k.hash).until(secret, nowMS)
	if d.pools[limit] == nil || !found {
		return nil
	}
	if d.pools[limit].Unlimited {
		limit = 0
	}
	return &wire.KeyRecord{
		KeyID:        k.name,
		AccountID:    cust.name,
		Active:       d.revoked[k.hash] == 0 && !d.suspended[cust.name],
		BalancePool:  cust.balance,
		SlotsPool:    cust.slots,
		KeySlotsPool: d.slotsOf(k),
		LimitPool:    limit,

		SecretUntilMS: secretUntilMS,
		Rules:         wire.KeyRules{Paused: d.paused[k.hash], ExpiresMS: d.expires[k.hash]},
		ProjectID:     d.projects[k.hash],
		Limits:        d.limitsFor(cust.name, d.projects[k.hash]),
	}
}

// servingFor returns for how long the replica has served in the server incarnation
// without an absence.
func (c *replica) servingFor() time.Duration {
	return min(c.detector.ServingFor(c.clock().Mono), c.w.rules.PresentFor(&c.serving, c.clock(), window))
}
