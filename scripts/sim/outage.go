package sim

import (
	"maps"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// outages has the times of the last absences of Postgres and of everything that
// hears proxies, as the oracle sees them.
type outages struct {
	// servedUntil is when a replica last reached Postgres, heardUntil when one could also receive messages.
	servedUntil, heardUntil time.Duration
	// served and heard are the ends of the last absences that were long enough to count.
	served, heard time.Duration
}

// outageSample is how often the oracle looks whether proxies are heard.
const outageSample = 50 * time.Millisecond

// countsAsAbsence is the least absence that every replica must notice: it is
// longer than the gap of session.Presence and the time between two sweeps.
const countsAsAbsence = window + 4*sweepEvery

// watchOutages keeps the times of the outages up to date.
func (w *world) watchOutages() {
	w.noteOutages()
	w.after(outageSample, w.watchOutages)
}

// noteOutages is also called when a replica has swept the sessions: one may be resumed and stopped again between two
// samples, and that ends an absence, too.
func (w *world) noteOutages() {
	o := &w.outages
	serves, hears := false, false
	for _, c := range w.replicas {
		works := c.alive && c.halted <= w.now && !w.pgDown
		serves = serves || works
		hears = hears || (works && !w.busDown && !c.deaf && !c.mute)
	}

	if serves {
		if w.now-o.servedUntil > countsAsAbsence {
			o.served = w.now
		}
		o.servedUntil = w.now
	}

	if hears {
		if w.now-o.heardUntil > countsAsAbsence {
			o.heard = w.now
		}
		o.heardUntil = w.now
	}
}

// clockTolerance is the share by which the clock of a replica may run fast.
const clockTolerance = 0.97

// checkEnding checks that a session does not end for its silence before its
// proxy could renew it after an absence of Postgres or of the replicas.
func (w *world) checkEnding(id wire.SessionID) {
	if o := w.outages; o.served > 0 && w.now-o.served < time.Duration(clockTolerance*float64(window))-outageSample {
		w.fail("session %d is to end %s after an outage, before its proxy could renew it", id, w.now-o.served)
	}
}

// checkHeard checks I2 when a session is closed for its silence: its proxy had
// closeAfter since the last outage to report the usage of the session.
func (w *world) checkHeard(id wire.SessionID) {
	if o := w.outages; o.heard > 0 && w.now-o.heard < time.Duration(clockTolerance*float64(closeAfter))-outageSample {
		w.fail("I2: session %d is closed %s after an outage, and its units are free while its usage may be on the way", id, w.now-o.heard)
	}
}

// outage makes Postgres, the bus or all replicas unreachable for longer than an
// expired session is kept. It is no new server incarnation.
func (w *world) outage() {
	d := w.between(closeAfter, closeAfter+3*window)
	if w.now+w.profile.raisedBefore()+d > w.profile.Length { // it must have ended when the world heals
		return
	}
	if !w.profile.RaiseBeforeOutage {
		w.beginOutage(d)
		return
	}

	untilMS := w.wallMS() + (raisedBefore + w.between(3*time.Second, 5*time.Second)).Milliseconds()
	for _, cust := range w.customers {
		w.raiseLimits(cust, untilMS)
	}
	w.after(raisedBefore, func() {
		w.beginOutage(d)
		w.after(w.between(time.Second, 2*time.Second), func() { // by then most proxies have a checkpoint
			for _, p := range w.proxies {
				if p.alive {
					p.kill(true)
				}
			}
		})
	})
}

// raisedBefore is how long before an outage limits are raised: proxies have idle units of the raise by then, and the bucket of key
// records has the change.
const raisedBefore = 1200 * time.Millisecond

// raiseLimits raises all limits of an account until a time.
func (w *world) raiseLimits(cust *customer, untilMS int64) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	locked := rows{pools: map[wire.PoolID]bool{}}
	for _, l := range w.pg.limitsOf(cust.name) {
		maps.Copy(locked.pools, w.pg.windowsOf(l.ID).pools)
	}
	var change wire.KeyChange
	c.writeTx("raise limits", locked, func(d *database) {
		change = d.change(wire.AccountUpdated, cust.name, apikey.Hash{})
		for _, l := range d.limitsOf(cust.name) {
			row := d.limits[l.ID]
			row.raisedBy, row.raisedUntilMS = w.profile.Limits, untilMS
			w.resizeLimit(d, row, row.amount)
		}
	}, func(ok bool) {
		if ok {
			w.stats.count("limits raised before an outage")
			c.announce(change, func() {})
		}
	})
}

func (p *Profile) raisedBefore() time.Duration {
	if p.RaiseBeforeOutage {
		return raisedBefore
	}
	return 0
}

func (w *world) beginOutage(d time.Duration) {
	kind := w.r.IntN(4)
	name := []string{"Postgres away for long", "bus away for long", "replicas stopped for long", "machines of replicas suspended for " +
		"long"}[kind]
	w.stats.count(name)
	w.log("%s: %s", name, d)

	switch kind {
	case 0:
		w.pgDown = true
		w.after(d, func() { w.pgDown = false })
	case 1:
		w.busDown = true
		w.after(d, func() { w.busDown = false })
	default:
		for _, c := range w.replicas {
			if kind == 3 {
				c.suspend(d)
			} else {
				c.stop(d)
			}
		}
	}
}
