package sim

import (
	"slices"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/lease"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/wire"
)

// Mutation is a deliberate fault of the protocol. The simulation must find each
// one; otherwise its checks prove nothing about the correct protocol.
type Mutation struct {
	Name string
	// Budget is the number of seeds within which the simulation must find the mutation.
	Budget uint64
	apply  func(r *Rules)
}

// Rules returns the correct rules with the mutation.
func (m Mutation) Rules() *Rules {
	r := Correct()
	m.apply(r)
	return r
}

// Find runs seeds until one violates an invariant. It returns nil if none does.
func (m Mutation) Find(budget uint64) (found *Result, played uint64) {
	Search(1, budget, m.Rules, func(r Result) bool {
		played++
		if r.Violation != "" {
			found = &r
		}
		return found == nil
	})
	return found, played
}

// Mutations lists all mutations.
func Mutations() []Mutation {
	return slices.Concat(
		leaseMutations(),
		holdingMutations(),
		grantMutations(),
		changeMutations(),
		sessionMutations(),
		usageMutations(),
		recoveryMutations(),
		rogueMutations(),
		abortMutations(),
		freshMutations(),
		resumeMutations(),
		limitMutations(),
		keySlotMutations(),
		keyLifeMutations(),
	)
}

// mutateReports changes the lease reports of returns and lease requests.
func mutateReports(change func(b *allocator.Allocator, s wire.SessionID, v wire.LeaseReport) wire.LeaseReport) func(r *Rules) {
	return func(r *Rules) {
		views := func(d *allocator.Batch, s wire.SessionID, views []wire.LeaseReport) []wire.LeaseReport {
			changed := make([]wire.LeaseReport, len(views))
			for i, v := range views {
				changed[i] = change(d.Allocator, s, v)
			}
			return changed
		}

		r.ApplyReturn = func(d *allocator.Batch, ret *wire.Return) wire.ReturnResponse {
			copied := *ret
			copied.Reports = views(d, ret.Session, ret.Reports)
			return d.ApplyReturn(&copied)
		}

		r.Decide = func(
			d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
		) (*wire.LeaseResponse, bool) {
			copied := *request
			copied.Reports = views(d, request.Session, request.Reports)
			return d.Decide(&copied, pending, applyPolicy)
		}
	}
}

// undoOverrun undoes the grants by which do covers overruns.
func undoOverrun(b *allocator.Allocator, do func()) {
	type state struct{ overrun int64 }
	before := map[wire.PoolID]state{}
	granted := map[allocator.LeaseKey]int64{}

	for id, p := range b.Pools {
		before[id] = state{p.Overrun}
	}

	for key, l := range b.Leases {
		granted[key] = l.Granted
	}

	do()
	for key, l := range b.Leases {
		if p := b.Pools[key.Pool]; p.Overrun > before[key.Pool].overrun && l.Granted > granted[key] {
			missing := min(l.Granted-granted[key], p.Overrun-before[key.Pool].overrun)
			l.Granted, p.Free, p.Overrun = l.Granted-missing, p.Free+missing, p.Overrun-missing
		}
	}
}

// skipRecalls treats every recall as answered.
func skipRecalls(
	d *allocator.Batch,
	request *wire.LeaseRequest,
	pending *allocator.PendingRequest,
	applyPolicy func(*allocator.Batch),
) (*wire.LeaseResponse, bool) {
	for key, l := range d.Allocator.Leases {
		if p := d.Allocator.Pools[key.Pool]; p != nil {
			l.RecalledGeneration = max(l.RecalledGeneration, p.Generation+1)
		}
	}
	clear(d.Allocator.Holders)
	return d.Decide(request, pending, applyPolicy)
}

// skipLastRecall treats a session that has answered one recall as if it had
// answered the next one too.
func skipLastRecall(
	d *allocator.Batch,
	request *wire.LeaseRequest,
	pending *allocator.PendingRequest,
	applyPolicy func(*allocator.Batch),
) (*wire.LeaseResponse, bool) {
	next := func(gen, now int64) int64 {
		if gen == now {
			gen++
		}
		return gen
	}

	for key, l := range d.Allocator.Leases {
		if p := d.Allocator.Pools[key.Pool]; p != nil && p.Central {
			l.RecalledGeneration = next(l.RecalledGeneration, p.Generation)
		}
	}

	for id, holders := range d.Allocator.Holders {
		for i := range holders {
			holders[i].RecalledGeneration = next(holders[i].RecalledGeneration, d.Allocator.Pools[id].Generation)
		}
	}

	return d.Decide(request, pending, applyPolicy)
}

// refuseBehindFirst refuses all requests that follow the first refused one.
func refuseBehindFirst(
	d *allocator.Batch,
	request *wire.LeaseRequest,
	pending *allocator.PendingRequest,
	applyPolicy func(*allocator.Batch),
) (*wire.LeaseResponse, bool) {
	reply, recalling := d.Decide(request, pending, applyPolicy)
	if reply == nil || reply.Status != wire.Done {
		return reply, recalling
	}

	var first *wire.Decision
	for i := range reply.Decisions {
		switch {
		case first == nil && !reply.Decisions[i].Granted:
			first = &reply.Decisions[i]
		case first != nil && reply.Decisions[i].Granted:
			reply.Decisions[i] = *first
			for _, n := range request.Needs[i] {
				d.Allocator.Pools[n.Pool].Free += n.Amount
				d.Allocator.Leases[allocator.LeaseKey{Pool: n.Pool, Session: request.Session}].Granted -= n.Amount
			}
		}
	}

	return reply, recalling
}

// countReturnsTwice adds to the returned total with each repeated return.
func countReturnsTwice(d *allocator.Batch, ret *wire.Return) wire.ReturnResponse {
	for _, v := range ret.Reports {
		p, l := d.Allocator.Pools[v.Pool], d.Allocator.Leases[allocator.LeaseKey{Pool: v.Pool, Session: ret.Session}]
		if p != nil && l != nil && v.Returned > 0 && v.Returned <= l.Returned {
			p.Free++
			l.Returned++
		}
	}
	return d.ApplyReturn(ret)
}

// headroomOfDeposits compares the free units with the sum of all deposits.
func headroomOfDeposits(b *allocator.Batch, request *wire.LeaseRequest, apply func(*allocator.Batch)) {
	for _, n := range slices.Concat(request.Needs...) {
		if p := b.Allocator.Pools[n.Pool]; p != nil && n.Kind == wire.Balance && p.Free <= p.Total/4 {
			return
		}
	}
	apply(b)
}

func leaseMutations() []Mutation {
	return []Mutation{
		{
			"an answer to a recall counts although a grant is in transit",
			8000,
			mutateReports(func(b *allocator.Allocator, s wire.SessionID, v wire.LeaseReport) wire.LeaseReport {
				if l := b.Leases[allocator.LeaseKey{Pool: v.Pool, Session: s}]; l != nil {
					v.GrantedSeen = max(v.GrantedSeen, l.Granted)
				}
				return v
			}),
		},
		{
			"an answer to an older recall counts (old generation)",
			1500,
			mutateReports(func(b *allocator.Allocator, _ wire.SessionID, v wire.LeaseReport) wire.LeaseReport {
				if p := b.Pools[v.Pool]; p != nil {
					v.Generation = max(v.Generation, p.Generation)
				}
				return v
			}),
		},
		{"a refusal does not wait for recalls", 60, func(r *Rules) { r.Decide = skipRecalls }},
		{"a refusal does not wait for returns in transit", 60, func(r *Rules) { r.Decide = skipLastRecall }},
		{"a repeated return counts again", 20, func(r *Rules) { r.ApplyReturn = countReturnsTwice }},
		{"a cost is charged twice", 20, func(r *Rules) {
			r.ApplyCharges = func(s *settlement.Batch, b *allocator.Allocator, t map[wire.SessionID]*session.Record) {
				s.ApplyCharges(b, t)
				s.ApplyCharges(b, t)
			}
		}},
		{"a cost beyond the grants is not covered (overrun in settle)", 20, func(r *Rules) {
			r.ApplyCharges = func(s *settlement.Batch, b *allocator.Allocator, t map[wire.SessionID]*session.Record) {
				undoOverrun(b, func() { s.ApplyCharges(b, t) })
			}
		}},
		{"a return beyond the grants is not covered (overrun in return)", 30, func(r *Rules) {
			r.ApplyReturn = func(d *allocator.Batch, ret *wire.Return) (response wire.ReturnResponse) {
				undoOverrun(d.Allocator, func() { response = d.ApplyReturn(ret) })
				return response
			}
		}},
		{"all requests after the first refused one are refused", 20, func(r *Rules) { r.Decide = refuseBehindFirst }},
		{"the result of a lease request is not stored", 30, func(r *Rules) {
			r.Decide = func(
				d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
			) (*wire.LeaseResponse, bool) {
				delete(d.Results, allocator.RequestKey{Session: request.Session, Account: request.Account})
				return d.Decide(request, pending, applyPolicy)
			}
		}},
	}
}

func holdingMutations() []Mutation {
	return []Mutation{
		{"the queues of an ended session keep their idle units", 90, func(r *Rules) { r.EndSession = func(*holder.Queue) {} }},
		{"a lease request gives up all idle units of its account", 60, func(r *Rules) {
			r.OutgoingRequest = func(q *accountQueue, request *wire.LeaseRequest) *wire.LeaseRequest {
				if q.gaveUp != request.Number {
					q.gaveUp = request.Number
					for _, pool := range q.pools() {
						q.queue.HandleRecall(pool, q.queue.LeaseView(pool).Generation)
					}
				}
				return request
			}
		}},
		{"a lease is forgotten before its charges are settled", 60, func(r *Rules) {
			r.ApplyReturn = func(d *allocator.Batch, ret *wire.Return) wire.ReturnResponse {
				response := d.ApplyReturn(ret)
				if response.Settled = nil; response.Status == wire.Done {
					for _, v := range ret.Reports {
						response.Settled = append(response.Settled, v.Pool)
					}
				}
				return response
			}
		}},
		{
			"the queue of an account is never dropped",
			20,
			func(r *Rules) { r.Unused = func(*holder.Queue, time.Duration) bool { return false } },
		},
		{"the numbers of lease requests begin again after a queue was dropped", 60, func(r *Rules) {
			r.LastNumber = func(*holder.Queue) int64 { return 0 }
		}},
		{"reports of units that were never granted are believed", 20, func(r *Rules) {
			r.ApplyReturn = func(d *allocator.Batch, ret *wire.Return) wire.ReturnResponse {
				response := d.ApplyReturn(ret)
				d.Allocator.ApplyReports(ret.Session, ret.Reports)
				return response
			}
		}},
		{"a fenced session does not learn of its last grant", 500, func(r *Rules) {
			r.Decide = func(
				d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
			) (*wire.LeaseResponse, bool) {
				if record := d.Sessions[request.Session]; record != nil && !record.MayAdmit() {
					return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Fenced}, false
				}
				return d.Decide(request, pending, applyPolicy)
			}
		}},
		{
			"idle units are kept although no request comes",
			60,
			func(r *Rules) { r.IdleTimeout = func(Profile) time.Duration { return time.Hour } },
		},
		{"idle units are given back while no control plane responds", 60, func(r *Rules) {
			r.Next = func(q *accountQueue, now time.Duration) holder.Output {
				if now >= q.usedAt+q.p.w.profile.IdleTimeout {
					q.queue.DisableEscrow()
				}
				return q.queue.Next(now)
			}
		}},
		{"headroom is compared with the sum of all deposits", 90, func(r *Rules) {
			r.Profile = "top-ups"
			r.Policy = headroomOfDeposits
		}},
		{"every lease request reports every lease of the session", 90, func(r *Rules) {
			r.Profile = "many keys"
			r.OutgoingRequest = func(q *accountQueue, request *wire.LeaseRequest) *wire.LeaseRequest {
				copied := *request
				copied.Reports = nil
				for _, pool := range q.pools() {
					at := q.queue.LeaseView(pool)
					copied.Reports = append(copied.Reports, wire.LeaseReport{
						Pool:        pool,
						Generation:  at.Generation,
						GrantedSeen: at.Granted,
						Returned:    at.Returned,
					})
				}
				return &copied
			}
		}},
	}
}

func grantMutations() []Mutation {
	return []Mutation{
		{"a batch fails as a whole if one of its rows is locked", 60, func(r *Rules) {
			r.Profile = "row locks"
			r.SkipsLockedRows = false
		}},
		{"rows are read without a lock", 20, func(r *Rules) { r.LocksRows = false }},
		{"a closed session keeps its units", 20, func(r *Rules) { r.CloseLeases = func(*allocator.Allocator, wire.SessionID) {} }},
		{"granted units are not taken from the free ones", 20, func(r *Rules) {
			r.Decide = func(
				d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
			) (*wire.LeaseResponse, bool) {
				reply, recalling := d.Decide(request, pending, applyPolicy)
				if reply != nil && reply.Status == wire.Done && len(reply.Decisions) > 0 && reply.Decisions[0].Granted {
					d.Allocator.Pools[request.Needs[0][0].Pool].Free++
				}
				return reply, recalling
			}
		}},
		{"a proxy reads more than was granted", 10, func(r *Rules) {
			r.HandleResponse = func(
				q *holder.Queue, now, sentAt time.Duration, request *wire.LeaseRequest, reply *wire.LeaseResponse,
			) bool {
				for i := range reply.Leases {
					reply.Leases[i].Granted++
				}
				return q.HandleResponse(now, sentAt, request, reply)
			}
		}},
		{"a recall gets nothing of an account without running requests", 90, func(r *Rules) {
			r.Profile = "idle accounts"
			r.HandleRecall = func(q *holder.Queue, pool wire.PoolID, generation int64) {
				if q.LeaseView(pool).Running > 0 {
					q.HandleRecall(pool, generation)
				}
			}
		}},
		{"a proxy keeps its idle units when a limit of the account changes", 400, func(r *Rules) {
			r.Profile = "limits"
			r.MayReduce = func(c *wire.KeyChange) bool { return c.Kind == wire.AccountUpdated }
		}},
		{"recalls are ignored", 400, func(r *Rules) {
			r.HandleRecall = func(q *holder.Queue, pool wire.PoolID, generation int64) {
				if q.LeaseView(pool).Central {
					q.HandleRecall(pool, generation)
				}
			}
			r.Decide = func(
				d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
			) (*wire.LeaseResponse, bool) {
				for i := range request.Reports {
					request.Reports[i].Generation = max(request.Reports[i].Generation, 1<<30)
				}
				return d.Decide(request, pending, applyPolicy)
			}
		}},
	}
}

func changeMutations() []Mutation {
	return []Mutation{
		{"a proxy is fresh before the changes of Postgres are applied", 60, func(r *Rules) {
			r.HandleHeartbeat = func(p *proxy, request *wire.HeartbeatRequest, a *wire.HeartbeatResponse) bool {
				without := *a
				without.Changes, without.More = nil, false
				synced, _ := p.client.HandleHeartbeat(p.clock(), request, &without)
				for _, c := range a.Changes {
					p.after(p.w.between(0, window), func() { p.client.HandlePushed(c, func(wire.Ack) {}) })
				}
				return synced
			}
		}},
		{"nothing is checked after the wait", 90, func(r *Rules) {
			r.GateAfter = func(lease.Gate) lease.GateOutcome { return lease.Admitted }
		}},
		{"the key is not checked after the wait", 90, func(r *Rules) {
			r.GateAfter = func(e lease.Gate) lease.GateOutcome {
				if !e.SessionValid() {
					return lease.NoSession
				}
				return lease.Admitted
			}
		}},
		{"a key record is used regardless of its revision (no floor)", 90, func(r *Rules) {
			r.IsCurrent = func(k *session.Invalidations, reading session.RecordVersion) bool {
				reading.Revision, reading.Session = 1<<60, k.Session()
				return k.IsCurrent(reading)
			}
		}},
		{"revoked keys are forgotten", 60, func(r *Rules) {
			r.IsCurrent = func(_ *session.Invalidations, _ session.RecordVersion) bool { return true }
		}},
		{"a change is acknowledged before earlier ones are applied", 8000, func(r *Rules) {
			r.Profile = "stalls"
			r.HandlePushed = func(c *session.Client, change wire.KeyChange, ack func(wire.Ack)) bool {
				change.PreviousRevision = 0
				return c.HandlePushed(change, ack)
			}
		}},
		{"an acknowledgement of any revision confirms a change", 60, func(r *Rules) {
			r.Ack = func(b *session.Barrier, a wire.Ack) {
				a.Revision = 1 << 60
				b.Ack(a)
			}
			r.HandlePushed = func(c *session.Client, _ wire.KeyChange, ack func(wire.Ack)) bool {
				if id := c.Session(); id != 0 {
					ack(wire.Ack{Session: id, Revision: c.Applied()})
				}
				return false
			}
		}},
	}
}

func sessionMutations() []Mutation {
	return []Mutation{
		{"a revocation does not wait for sessions", 150, func(r *Rules) {
			r.BarrierDone = func(*session.Barrier) bool { return true }
		}},
		{"a session expires by the clock of another server", 1500, func(r *Rules) {
			r.Profile = "clock steps"
			r.Remaining = func(left, _, _ time.Duration) time.Duration { return left }
		}},
		{"the silence of a session counts while nobody could hear its proxy", 60, func(r *Rules) {
			r.Profile = "outages"
			r.SessionOver = func(t *session.Record, _, closeAfter time.Duration) bool { return t.Over(session.Never, closeAfter) }
		}},
		{"an absence within a server incarnation is not noticed", 60, func(r *Rules) {
			r.Profile = "outages"
			r.PresentFor = func(*session.Presence, session.Instant, time.Duration) time.Duration { return session.Never }
		}},
		{"a fenced session is extended and served", 20, func(r *Rules) {
			r.ExtendSession = func(t *session.Record, a *wire.HeartbeatRequest, valid time.Duration) bool {
				if t.State == 0 {
					return false
				}
				t.Remaining, t.AppliedRevision = valid, max(t.AppliedRevision, a.AppliedRevision)
				return true
			}
		}},
		{"a session is to end before its proxy was silent for the window", 150, func(r *Rules) {
			r.SessionExpired = func(t *session.Record) bool { return t.State == session.Active && t.Remaining < window/2 }
		}},
		{"an expired session is closed while its requests may still run", 90, func(r *Rules) {
			r.SessionOver = func(t *session.Record, heardFor, _ time.Duration) bool { return t.Over(heardFor, 0) }
		}},
		{"the silence of a session counts although its requests run", 60, func(r *Rules) {
			r.Profile = "long calls"
			r.CloseSession = func(t *session.Record, c *wire.CloseRequest, settled int64) bool {
				silent := t.Remaining
				done := t.Close(c, settled)
				t.Remaining = silent
				return done
			}
		}},
		{"a session is closed before its events are settled", 20, func(r *Rules) {
			r.CloseSession = func(t *session.Record, c *wire.CloseRequest, _ int64) bool { return t.Close(c, c.FinalCount) }
		}},
	}
}

func usageMutations() []Mutation {
	return []Mutation{
		{"no spool capacity is reserved", 90, func(r *Rules) {
			r.GateBefore = func(e lease.Gate) (lease.GateOutcome, error) {
				if !e.SessionValid() {
					return lease.NoSession, nil
				}
				return lease.Admitted, nil
			}
		}},
		{"an event is dropped when the stream has stored it", 60, func(r *Rules) {
			r.OnStored = func(u *usagelog.Log[*usage], batch []*usage) {
				for _, e := range batch {
					u.MarkSettled(event.Settled{Session: int64(e.Session), Beyond: [][2]int64{{e.n, e.n}}}, func(*usage) {})
				}
			}
		}},
		{"events stay held after settlement has caught up", 90, func(r *Rules) {
			r.HoldUsage = func(u *usagelog.Log[*usage], held bool) {
				if held {
					u.Hold(true)
				}
			}
		}},
		{"a settled request is settled again", 20, func(r *Rules) {
			r.MarkInserted = func(s *settlement.Batch, _ map[[16]byte]bool) []int {
				all := map[[16]byte]bool{}
				for _, c := range s.Charges {
					all[c.Request] = true
				}
				return s.MarkInserted(all)
			}
		}},
		{"an altered duplicate counts as a repetition", 90, func(r *Rules) {
			r.ResolveDuplicates = func(s *settlement.Batch, settled map[[16]byte][32]byte) {
				for _, c := range s.Charges {
					settled[c.Request] = c.Fingerprint
				}
				for _, i := range s.Unresolved() {
					s.Outcomes[i] = settlement.Duplicate
				}
			}
		}},
		{"charges of closed sessions are booked on their leases", 20, func(r *Rules) {
			r.ApplyCharges = func(s *settlement.Batch, b *allocator.Allocator, t map[wire.SessionID]*session.Record) {
				for _, record := range t {
					record.State = session.Fenced
				}
				s.ApplyCharges(b, t)
				for key, l := range b.Leases { // the units of a closed session are never freed
					if l.Outstanding() == 0 && key.Session%2 == 0 {
						l.Granted++
						b.Pools[key.Pool].Free--
					}
				}
			}
		}},
	}
}
