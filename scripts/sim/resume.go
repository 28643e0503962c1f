package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// ResumeRules are the steps by which a new process continues in the session of an
// earlier one. The correct ones are those of the data plane.
type ResumeRules struct {
	// Void removes the checkpoint before the proxy acts on something that it does not say.
	Void func(p *proxy)
	// Freshness continues that of the earlier process.
	Freshness func(window time.Duration, state checkpoint.Freshness, now session.Instant) (*session.Freshness, bool)
	// Known returns the changes that the proxy knows.
	Known func(p *proxy) (checkpoint.KnownChanges, bool)
	// Idle returns the idle units of a queue that a checkpoint has.
	Idle func(q *holder.Queue, zeroMS int64) []checkpoint.IdleUnits
	// Add adds an event to what is consumed since the checkpoint.
	Add func(c checkpoint.Consumption, account string, cost, reservation int64, since bool)
	// ChecksMark means that the mark of the bucket of key records says at which revision a record was read.
	ChecksMark bool
}

func correctResume() *ResumeRules {
	return &ResumeRules{
		Void:       func(p *proxy) { p.disk.checkpoint = nil },
		Freshness:  session.ResumeFreshness,
		Known:      func(p *proxy) (checkpoint.KnownChanges, bool) { return p.history.Known(p.client.Applied()) },
		Idle:       (*holder.Queue).IdleUnits,
		Add:        checkpoint.Consumption.Add,
		ChecksMark: true,
	}
}

// keptCheckpoint is a checkpoint with what the oracle knows of it.
type keptCheckpoint struct {
	checkpoint.Checkpoint
	// written counts the records of the disk before the idle units were noted.
	written int
	// provenAt is when the last beat was sent that the process had read.
	provenAt time.Duration
}

// write counts one more record of the disk, and returns its number.
func (d *disk) write() int {
	d.records++
	return d.records
}

// saveCheckpoint keeps what a later process needs, while no control plane responds.
func (p *proxy) saveCheckpoint() {
	f := p.fresh
	if !p.alone || f == nil || p.session == 0 {
		return
	}

	known, ok := p.w.rules.Resume.Known(p)
	state, fresh := f.State(p.clock())
	if !ok || !fresh {
		p.disk.checkpoint = nil
		return
	}

	kept := &keptCheckpoint{written: p.disk.records, provenAt: f.provenAt, Checkpoint: checkpoint.Checkpoint{
		Session:   p.session,
		BootID:    p.usage.Session(p.session).BootID,
		Epoch:     p.w.oracle.epochs[p.session],
		Window:    window,
		Source:    f.source,
		Freshness: state,
		Known:     known,
		Idle:      map[string][]checkpoint.IdleUnits{},
	}}

	for _, account := range sortedKeys(p.queues) {
		kept.Idle[account] = p.w.rules.Resume.Idle(p.queues[account].queue, p.zeroMS())
	}

	p.disk.checkpoint = kept
	p.w.stats.count("checkpoints")
}

// loadCheckpoint prepares a new process to continue in the session of the one before.
func (p *proxy) loadCheckpoint() {
	p.resumable, p.isResumed, p.idle, p.alone, p.history = nil, false, nil, false, checkpoint.ChangeHistory{}
	kept := p.disk.checkpoint
	if kept == nil || p.usage.Session(kept.Session) == nil {
		return
	}

	fresh, ok := p.w.rules.Resume.Freshness(kept.Window, kept.Freshness, p.clock())
	if !ok {
		p.w.rules.Resume.Void(p) // this process closes the session
		return
	}

	used := checkpoint.Consumption{}
	for _, l := range p.disk.sessions {
		for _, e := range l.events {
			if e.Session == kept.Session && e.written > kept.written {
				p.w.rules.Resume.Add(used, e.request.customer.name, e.cost, e.request.amount, e.request.written > kept.written)
			}
		}
	}

	p.resumable, p.idle = &proxyFreshness{
		Freshness: fresh,
		source:    kept.Source,
		number:    kept.Freshness.Number,
		sequence:  kept.Freshness.Last,
		sentAt:    map[int64]time.Duration{},
		provenAt:  kept.provenAt,
		resumed:   true,
		last:      kept.Freshness.Last,
	}, kept.Left(used)
	p.client.MayResume(kept.Session)
}

// resume continues in the session of the process before, because no control plane has
// answered.
func (p *proxy) resumeSession() {
	kept := p.disk.checkpoint
	if p.resumable == nil || kept == nil || p.draining {
		return
	}
	p.fresh, p.resumable = p.resumable, nil
	p.client.Resume(kept.Epoch, kept.Known)
	p.disk.checkpoint = kept // applying what it knows has removed it
	p.history, p.alone = checkpoint.ResumeHistory(kept.Known), true
}

func (h proxyHost) SessionResumed(id wire.SessionID) {
	p := h.p
	p.w.stats.count("sessions resumed")
	p.w.log("%s goes on in session %d", p.name, id)
	p.session, p.isResumed = id, true
}

// bucketEvery is how often a replica writes the bucket of key records.
const bucketEvery = 500 * time.Millisecond

// keyBucket is the bucket of key records: those at a revision in a cluster epoch.
type keyBucket struct {
	revision, epoch int64
	records         map[apikey.Hash]wire.KeyRecord
}

// writeBucket copies the key records into the bucket.
func (c *replica) writeBucket() {
	if c.w.changes.down {
		return
	}

	var copied keyBucket
	c.tx("key records", func(d *database) {
		copied = keyBucket{revision: d.mark.Revision, epoch: d.mark.Epoch, records: map[apikey.Hash]wire.KeyRecord{}}
		for _, cust := range c.w.customers {
			for _, k := range cust.keys {
				for _, secret := range d.secretsOf(k.hash).changed(wire.KeyRevoked, 0) {
					if record := d.keyRecord(cust, k, secret, c.w.wallMS()); record != nil {
						copied.records[secret] = *record
					}
				}
			}
		}
	}, func(ok bool) {
		if b := &c.w.keys; ok && (copied.epoch > b.epoch || copied.epoch == b.epoch && copied.revision >= b.revision) {
			*b = copied
		}
	})
}

// readBucket finds the record of a key in the bucket.
func (p *proxy) readBucket(r *request, asked int64) {
	w := p.w
	id := p.session
	askChanges(&p.actor, func() bool { return p.minority }, func(*changeStream) keyBucket { return w.keys }, func(b keyBucket, ok bool) {
		record, found := b.records[r.secret]
		if !ok || !found || id == 0 || b.epoch != w.oracle.epochs[id] {
			return
		}

		reading := session.RecordVersion{
			Hash:     r.secret,
			Account:  r.customer.name,
			Revision: b.revision,
			Session:  asked,
		}
		if !w.rules.Resume.ChecksMark {
			reading.Revision = madeUp
		}

		if !w.rules.IsCurrent(&p.invalidations, reading) {
			w.stats.count("records of the bucket out of date")
			return
		}

		w.stats.count("key records read from the bucket")
		p.cache[r.secret] = &cached{record, reading}
		r.record, r.version = record, reading
		p.admit(r)
	})
}

// checkResumed checks I2 in a resumed session: its leases cover what its requests
// have used, and what running ones need. The lease of a key that got its limit during
// the session is charged for requests from before that, too, which have reserved
// nothing of it.
func (w *world) checkResumed(r *request) {
	w.stats.count("requests admitted in resumed sessions")
	w.checkResumedWindows(r)
	needs := []wire.Need{{Pool: r.record.BalancePool, Kind: wire.Balance, Amount: r.amount}}
	if r.record.LimitPool != 0 {
		needs = append(needs, wire.Need{Pool: r.record.LimitPool, Kind: wire.Limit, Amount: r.amount})
	}
	for _, pool := range r.windows {
		needs = append(needs, wire.Need{Pool: pool, Kind: wire.Limit, Amount: r.amount})
	}
	for _, pool := range r.slots() {
		needs = append(needs, wire.Need{Pool: pool, Kind: wire.Slots, Amount: 1})
	}

	for _, n := range needs {
		if w.oracle.everUnlimited[n.Pool] {
			continue
		}
		l := w.pg.leases[n.Pool][r.session]
		if l == nil {
			w.fail("I2: %s has resumed session %d, which has no lease of pool %d", r.p.name, r.session, n.Pool)
		}
		if left := l.Granted - l.Returned - w.usedBy(r.p, r.session, n); left < 0 {
			w.fail("I2: %s lacks %d of pool %d for the requests of session %d, which it has resumed", r.p.name, -left, n.Pool, r.session)
		}
	}
}

// checkResumedWindows checks I11 in a resumed session: no request is admitted by idle units of a window or a raise that had ended by the
// clock of the proxy.
func (w *world) checkResumedWindows(r *request) {
	const drift = time.Second // of its monotonic clock, in the longest world
	for _, pool := range r.windows {
		until := w.oracle.idleUntil[poolOfSession{r.session, pool}]
		if until == 0 {
			continue
		}
		w.stats.count("requests admitted in resumed sessions by units that may be used until a time")
		if late := begunMS + (r.windowsAt + r.p.wallOffset).Milliseconds() - until; late > drift.Milliseconds() {
			w.fail("I11: %s uses idle units of pool %d in resumed session %d, %d ms after their end", r.p.name, pool, r.session, late)
		}
	}
}

// usedBy returns what the requests of a session have used of the pool of a need: the costs of those that have ended, also beyond
// what they had reserved, which their proxy took from its idle units, and the reservations of those that run.
func (w *world) usedBy(p *proxy, id wire.SessionID, n wire.Need) (used int64) {
	for _, e := range w.oracle.events {
		if e.session == id && (e.balance == n.Pool || e.limit == n.Pool || slices.Contains(e.windows, n.Pool)) {
			used += e.cost
		}
	}
	for _, x := range p.running {
		switch {
		case x.session != id || x.lost:
		case n.Kind == wire.Slots && slices.Contains(x.slots(), n.Pool):
			used++
		case n.Kind == wire.Balance && x.record.BalancePool == n.Pool, n.Kind == wire.Limit && x.record.LimitPool == n.Pool,
			slices.Contains(x.windows, n.Pool):
			used += x.amount
		}
	}
	return used
}

// resumeProfile has outages in which proxies are restarted.
const resumeProfile = "restarts in outages"

// resumeWindowsProfile has these outages, and limits whose windows and raises end during them.
const resumeWindowsProfile = "limits in outages"

func (p *Profile) needResume(r *rand.Rand) {
	p.NoQuorum, p.NewChanges, p.Minority, p.LoseChanges = r.Float64()/4, r.Float64()/8, r.Float64()/4, r.Float64()/2
	p.Poor, p.HeadroomPeriod, p.RequestEvery, p.RequestDuration = false, 30*time.Millisecond, 25*time.Millisecond, min(
		p.RequestDuration,
		500*time.Millisecond,
	)
	p.SettleEvery = min(p.SettleEvery, 50*time.Millisecond)
	p.Outage, p.KillProxy, p.Drain, p.LoseSpool, p.BusDown, p.KillFleet, p.RestartWithin = 3, 2, 1, .05, 1, 1, time.Second
	p.Halt /= 4
	p.Suspend /= 4
	p.Cut /= 2
	p.KillReplica /= 4
	p.PostgresDown /= 4
	p.DeleteStream = 0
	p.LoseTail = 0
	p.HaltInTx, p.TxFail, p.TxUnknown, p.LoseMessage, p.DelayMessage = 0, p.TxFail/4, p.TxUnknown/4, p.LoseMessage/4, p.DelayMessage/4
	p.FaultEvery, p.Length, p.LoseCommits, p.SpoolCapacity, p.RevokeEvery = 1500*time.Millisecond, 40*time.Second, 0, 600, time.Second
	p.SuspendEvery, p.AdjustEvery = 4*p.SuspendEvery, 2*p.AdjustEvery
}

// resumeMutations break the rules of resumed sessions.
func resumeMutations() []Mutation {
	resume := func(name string, budget uint64, apply func(r *ResumeRules)) Mutation {
		return Mutation{name, budget, func(r *Rules) {
			r.Profile = resumeProfile
			apply(r.Resume)
		}}
	}
	return []Mutation{
		resume("a later process uses what was consumed since the checkpoint", 200, func(r *ResumeRules) {
			r.Add = func(checkpoint.Consumption, string, int64, int64, bool) {}
		}),
		resume("a later process leaves out what earlier requests have cost beyond their reservations", 4000, func(r *ResumeRules) {
			r.Add = func(c checkpoint.Consumption, account string, cost, reservation int64, since bool) {
				if since {
					c.Add(account, cost, reservation, since)
				}
			}
		}),
		resume("a later process goes on after the earlier one was no longer fresh", 4000, func(r *ResumeRules) {
			r.Freshness = func(window time.Duration, state checkpoint.Freshness, now session.Instant) (*session.Freshness, bool) {
				state.UntilBoot = max(state.UntilBoot, now.Boot+window)
				return session.ResumeFreshness(window, state, now)
			}
		}),
		resume("a later process does not know the changes that the earlier one has applied", 4000, func(r *ResumeRules) {
			r.Known = func(p *proxy) (checkpoint.KnownChanges, bool) {
				known, ok := p.history.Known(p.client.Applied())
				known.Changes = nil
				return known, ok
			}
		}),
		resume("a later process has no floor for key records", 4000, func(r *ResumeRules) {
			r.Known = func(p *proxy) (checkpoint.KnownChanges, bool) {
				known, ok := p.history.Known(p.client.Applied())
				known.Floor = 0
				return known, ok
			}
		}),
		resume("a record of the bucket counts as new", 4000, func(r *ResumeRules) { r.ChecksMark = false }),
		{"the checkpoint has no times", 400, func(r *Rules) {
			r.Profile = resumeWindowsProfile
			r.Resume.Idle = func(q *holder.Queue, zeroMS int64) []checkpoint.IdleUnits {
				idle := q.IdleUnits(zeroMS)
				for i := range idle {
					idle[i].UntilMS = 0
				}
				return idle
			}
		}},
	}
}
