package sim

import (
	"errors"
	"fmt"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// proxy is one data plane process after another, with the disk that they share.
type proxy struct {
	actor
	boot  string
	disk  *disk
	usage *usagelog.Log[*usage]
	// schedule decides when usage is published. publishWake is the time of its timer, session.Never if it is not set.
	schedule    *usagelog.Schedule
	publishWake time.Duration

	client *session.Client
	closer *session.Closer
	// wake is the time of the timer of client and closer, which calls pump; session.Never if it is not set.
	wake time.Duration
	// session is the current one, zero if there is none.
	session       wire.SessionID
	invalidations session.Invalidations
	cache         map[apikey.Hash]*cached
	// windows has the current windows of limits, by the wall clock, which is wrong by wallOffset.
	windows    limit.Windows
	wallOffset time.Duration
	// fresh is the freshness of the current session.
	fresh *proxyFreshness
	// minority means that it is connected to a server that cannot reach the others of the stream of changes.
	minority bool
	// alone means that the last heartbeat of the session was not answered. history has the changes that the session knows.
	alone   bool
	history checkpoint.ChangeHistory
	// resumable is the freshness with which this process can continue in the session of an earlier one, idle its idle units.
	// isResumed means that session is that one.
	resumable *proxyFreshness
	idle      map[string][]checkpoint.IdleUnits
	isResumed bool
	// queues has the account queues of the current session, by account. allQueues also has those of earlier sessions.
	queues       map[string]*accountQueue
	allQueues    []*accountQueue
	timing       holder.Timing
	responseTime holder.ResponseTime
	// failing means that every attempt to get a decision has failed since failingSince, by the proxy's own clock.
	failing      bool
	failingSince time.Duration
	// lastNumber is the greatest number of a lease request of the queues that were dropped.
	lastNumber int64
	// running are the granted requests, in order. reserved and started count the units of spool capacity of requests that
	// are not started yet, and of running ones.
	running           []*request
	reserved, started int
	draining          bool
	// pushesLostUntil is the end of a period in which pushes are lost although responses arrive.
	pushesLostUntil time.Duration
}

type cached struct {
	record  wire.KeyRecord
	version session.RecordVersion
}

func (w *world) newProxy(name string) *proxy {
	p := &proxy{actor: actor{
		w:      w,
		name:   name,
		rate:   1 + 0.04*(w.r.Float64()-0.5),
		offset: w.between(0, time.Hour),
	}, disk: newDisk()}
	w.proxies = append(w.proxies, p)
	p.start()
	return p
}

// start starts a new process, which reads the disk.
func (p *proxy) start() {
	w := p.w
	p.alive = true
	p.process++
	p.boot = fmt.Sprintf("%s/%d", p.name, p.process)
	p.usage, p.schedule = usagelog.New[*usage](), nil
	p.session, p.wake, p.fresh = 0, session.Never, nil
	p.client = session.NewClient(p.clock(), p.boot, p.sessionTiming(), proxyHost{p})
	p.closer = session.NewCloser(p.clock(), p.sessionTiming(), proxyHost{p})
	p.invalidations = session.Invalidations{}
	p.invalidations.BeginSession(0)
	p.cache, p.queues, p.allQueues, p.responseTime = map[apikey.Hash]*cached{}, map[string]*accountQueue{}, nil, holder.ResponseTime{}
	p.failing, p.windows = false, limit.Windows{}
	p.timing = holder.DefaultTiming(func(below time.Duration) time.Duration { return w.between(0, below) })
	p.timing.IdleTimeout, p.timing.ForgetInterval = w.rules.IdleTimeout(w.profile), idleTimeout
	p.running, p.reserved, p.started, p.draining = nil, 0, 0, false
	for _, id := range sortedKeys(p.disk.sessions) {
		kept := p.disk.sessions[id]
		l := p.usage.Open(id, kept.boot)
		l.Last = kept.watermark
		for _, n := range sortedKeys(kept.events) {
			e := *kept.events[n]
			e.Delivery = usagelog.Delivery{Session: id}
			kept.events[n] = &e
			p.usage.Add(n, &e)
			p.usage.Enqueue(&e)
		}
		l.Last = max(l.Last, kept.last)
	}

	for _, id := range sortedIDs(p.disk.started) { // unfinished requests are billed by their progress
		r := p.disk.started[id]
		delete(p.disk.started, id)
		p.recordUsage(r, r.progress())
		w.stats.count("requests aborted")
	}

	p.loadCheckpoint()
	p.pump()
	p.after(w.between(0, window/4), p.beat)

	p.schedule, p.publishWake = usagelog.NewSchedule(p.clock().Mono), session.Never
	if len(p.disk.sessions) > 0 {
		p.schedule.EventQueued(p.clock().Mono)
	}

	p.publish()
}

// kill ends the process without notice, and loses the disk unless keep is set.
func (p *proxy) kill(keep bool) {
	w := p.w
	p.alive = false
	w.stats.count("proxies killed")
	w.log("%s killed, spool kept: %v", p.name, keep)

	for _, r := range p.running {
		r.lost = true
	}

	if !keep {
		w.stats.count("spools lost")
		w.oracle.spoolLost(p.disk)
		p.disk = newDisk()
		w.oracle.destroyed()
	}

	process := p.process
	w.after(w.between(50*time.Millisecond, w.profile.RestartWithin), func() {
		if p.process == process {
			p.start()
		}
	})
}

// sessionTiming returns intervals that suit the short sessions of the simulation.
func (p *proxy) sessionTiming() session.Timing {
	return session.Timing{
		HeartbeatInterval:    p.w.profile.HeartbeatInterval,
		MinHeartbeatInterval: 2 * time.Millisecond,
		HeartbeatsPerWindow:  2,
		RetryInterval:        200 * time.Millisecond,
		CloseInterval:        400 * time.Millisecond,
		LeaveInterval:        50 * time.Millisecond,
		Jitter:               func(below time.Duration) time.Duration { return p.w.between(0, below) },
	}
}

// drain lets running requests finish, closes the sessions, and restarts.
func (p *proxy) drain() {
	p.w.stats.count("proxies restarted gracefully")
	p.draining = true
	deadline := p.clock().Mono + maxRequest + 2*time.Second
	var wait func()
	leaving := false
	wait = func() {
		switch {
		case p.clock().Mono < deadline && len(p.running) > 0:
		case !leaving && p.alone && p.disk.checkpoint != nil: // the next process continues the session
			p.alive = false
			for _, r := range p.running {
				r.lost = true
			}
			p.start()
			return
		case !leaving:
			leaving = true
			p.leave()
		case p.clock().Mono >= deadline || p.closer.Done():
			p.alive = false
			for _, r := range p.running {
				r.lost = true
			}
			p.start()
			return
		}
		p.after(50*time.Millisecond, wait)
	}
	wait()
}

// leave ends the session; no request is admitted any more.
func (p *proxy) leave() {
	p.draining = true
	p.w.rules.Resume.Void(p)
	p.client.Leave(p.clock())
	p.closer.Leave(p.clock())
	p.pump()
}

// pump does what the client and the closer require now.
func (p *proxy) pump() {
	now := p.clock()
	out := p.client.Next(now)
	opened, resumed := p.client.Opened()
	closing, wake := p.closer.Next(now, opened, resumed)
	if out.Register != nil {
		p.register(out.Register)
	}
	if out.Open != 0 {
		p.open(out.Open)
	}
	if out.Heartbeat != nil {
		p.heartbeat(now, out.Heartbeat)
	}

	for _, r := range closing {
		p.close(r)
	}

	if at := min(out.Wake, wake); at < p.wake {
		p.wake = at
		p.after(at-now.Mono+time.Microsecond, func() {
			if p.wake == at {
				p.wake = session.Never
				p.pump()
			}
		})
	}
}

func (p *proxy) register(r *wire.RegisterRequest) {
	r.Name = p.name
	for _, id := range p.usage.Sessions() {
		r.Earlier = append(r.Earlier, wire.EarlierSession{Session: id, BootID: p.usage.Session(id).BootID})
	}

	ask(
		p,
		"registration",
		callTimeout,
		func(c *replica, reply func(wire.RegisterResponse)) { c.register(r, reply) },
		func(a wire.RegisterResponse) {
			p.w.log("%s opens session %d at rev %d, epoch %d", p.name, a.Session, a.Revision, a.ClusterEpoch)
			p.w.oracle.epochs[a.Session] = a.ClusterEpoch
			p.w.rules.Resume.Void(p)
			p.resumable = nil
			_ = p.client.HandleRegistered(p.clock(), &a)
			p.pump()
		},
		func() {
			p.client.RegisterFailed(p.clock())
			p.resumeSession()
			p.pump()
		},
	)
}

// open records a new session on the disk.
func (p *proxy) open(id wire.SessionID) {
	w := p.w
	w.stats.count("sessions opened")
	p.usage.Open(id, p.boot)
	p.disk.sessions[id] = &diskSession{boot: p.boot, events: map[int64]*usage{}}
	w.oracle.owner[id] = p
	w.oracle.server[id] = w.pg.server
	p.client.HandleOpened(p.clock(), nil)
	if w.chance(w.profile.LosePushes) {
		w.stats.count("sessions that pushes do not reach")
		p.pushesLostUntil = w.now + w.between(0, 3*window)
	}
	p.pump()
}

func (p *proxy) heartbeat(sentAt session.Instant, r *wire.HeartbeatRequest) {
	ask(
		p,
		"heartbeat",
		callTimeout,
		func(c *replica, reply func(wire.HeartbeatResponse)) { c.heartbeat(r, reply) },
		func(a wire.HeartbeatResponse) {
			p.w.rules.Resume.Void(p)
			p.alone = false
			p.resynced(sentAt, p.w.rules.HandleHeartbeat(p, r, &a))
			if len(a.Changes) > 0 {
				p.stall()
			}
			p.pump()
		},
		func() {
			p.alone = true
			p.client.HeartbeatFailed(p.clock(), r)
			p.pump()
		},
	)
}

func (p *proxy) close(r wire.CloseRequest) {
	ask(p, "close", callTimeout, func(c *replica, reply func(wire.CloseResponse)) { c.close(&r, reply) }, func(a wire.CloseResponse) {
		p.closer.HandleClosed(p.clock(), r, a.Status == wire.Done)
		p.pump()
	}, func() {
		p.closer.HandleClosed(p.clock(), r, false)
		p.pump()
	})
}

// stall sometimes stops the process until shortly before it is not fresh any more.
// Changes that it has not applied by then come too late.
func (p *proxy) stall() {
	w := p.w
	if !w.chance(w.profile.Stall) {
		return
	}
	p.after(w.between(0, 100*time.Millisecond), func() {
		if p.fresh == nil {
			return
		}
		left := time.Duration(float64(p.fresh.Until().Mono-p.clock().Mono) / p.rate)
		if d := left - w.between(0, window/10); d > 0 && !w.healed {
			p.stop(d)
			w.stats.count("processes stalled")
			w.log("%s stalls for %s", p.name, d)
		}
	})
}

// handlePushed handles a change that was pushed.
func (p *proxy) handlePushed(c wire.KeyChange, ack func(wire.Ack)) {
	p.w.rules.Resume.Void(p)
	if p.w.rules.HandlePushed(p.client, c, ack) {
		p.w.stats.count("gaps in pushed changes")
	}
	p.pump()
}

// applyChange applies one change.
func (p *proxy) applyChange(c wire.KeyChange) {
	p.w.rules.Resume.Void(p)
	p.history.Applied(c)
	p.invalidations.Apply(c)
	delete(p.cache, c.KeyHash)

	if q := p.queues[c.Account]; q != nil && p.w.rules.MayReduce(&c) {
		q.queue.DisableEscrow()
		q.pump()
	}

	if c.Kind != wire.KeyRevoked {
		return
	}

	for _, r := range p.running {
		if r.secret == c.KeyHash && r.started {
			p.after(p.w.between(0, time.Second), func() { p.finish(r, min(r.cost, r.progress())) })
		}
	}
}

func (p *proxy) handleRecall(session wire.SessionID, r wire.Recall) {
	if p.isResumed && p.session == session {
		p.client.EndResumed(p.clock())
		p.pump()
		return
	}
	if q := p.queues[r.Account]; q != nil && p.session == session {
		p.w.rules.Resume.Void(p)
		p.w.rules.HandleRecall(q.queue, r.Pool, r.Generation)
		q.pump()
	}
}

var errSpoolFull = errors.New("the spool is full")
