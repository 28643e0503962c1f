package sim

import (
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/wire"
)

// Rules are the steps of the protocol. The correct ones call shared/lease. A
// mutation replaces some of them, and the checks of the simulation must find that.
type Rules struct {
	// Profile is the name of a directed profile for all seeds. If it is empty, each seed has a profile of its own.
	Profile string
	// Freshness has the steps of freshness in worlds that have only keys and the stream of changes; nil in all others.
	Freshness *FreshRules
	// Changes has the steps of freshness in all other worlds.
	Changes *FreshRules

	// The steps of the control plane.
	Exceeds    func(reports []wire.LeaseReport, needs [][]wire.Need) bool
	AddRequest func(b *allocator.Batcher, request *wire.LeaseRequest, respond func(wire.LeaseResponse)) bool
	Decide     func(
		d *allocator.Batch, op *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
	) (*wire.LeaseResponse, bool)
	Policy            func(b *allocator.Batch, request *wire.LeaseRequest, apply func(*allocator.Batch))
	ApplyReturn       func(d *allocator.Batch, r *wire.Return) wire.ReturnResponse
	ApplyCharges      func(s *settlement.Batch, b *allocator.Allocator, records map[wire.SessionID]*session.Record)
	MarkInserted      func(s *settlement.Batch, requests map[[16]byte]bool) []int
	ResolveDuplicates func(s *settlement.Batch, settled map[[16]byte][32]byte)
	CloseLeases       func(b *allocator.Allocator, s wire.SessionID)
	ExtendSession     func(t *session.Record, r *wire.HeartbeatRequest, window time.Duration) bool
	SessionExpired    func(t *session.Record) bool
	SessionOver       func(t *session.Record, heardFor, closeAfter time.Duration) bool
	PresentFor        func(p *session.Presence, now session.Instant, gap time.Duration) time.Duration
	CloseSession      func(t *session.Record, c *wire.CloseRequest, settled int64) bool
	Remaining         func(left, servingFor, ttl time.Duration) time.Duration
	// TellsFirst means that a committed change is pushed and appended before the sessions are read.
	TellsFirst      bool
	Bound           func(r session.Reach) (bound time.Duration, known bool)
	Ack             func(b *session.Barrier, a wire.Ack)
	BarrierDone     func(b *session.Barrier) bool
	MarkersToVerify func(a *rollback.Detector, r rollback.Membership) []rollback.CommitMarker
	Observe         func(
		a *rollback.Detector, r rollback.Membership, f rollback.Observation, now time.Duration,
	) (rollback.Membership, rollback.Action)
	AfterCheckpoint func(
		a *rollback.Detector, r rollback.Membership, f rollback.Observation, checkpoint rollback.Transaction, fenced []string,
	) (rollback.Membership, bool)
	FencesReplicas bool
	// ReadsMembershipAgain means that a replica reads the membership again before it declares a loss.
	ReadsMembershipAgain bool
	NextMark             func(m, now rollback.HighWaterMark) rollback.HighWaterMark
	RestoreRevocation    func(d *database, account string, key apikey.Hash)
	UnknownSessions      func(recovering bool) []session.ActiveSession
	EarlierSessions      func(r *wire.RegisterRequest) []wire.EarlierSession
	KeepsRevocations     bool
	// LocksRows means that transactions lock rows, SkipsLockedRows that a batch that has waited for rows decides the
	// messages whose rows are free.
	LocksRows, SkipsLockedRows bool

	// Limits has the steps by which requests count in windows.
	Limits *LimitRules
	// Keys has the steps by which secrets and keys end.
	Keys *KeyRules
	// Resume has the steps by which a process continues in the session of an earlier one.
	Resume *ResumeRules

	// The steps of a proxy.
	HandleHeartbeat func(p *proxy, request *wire.HeartbeatRequest, r *wire.HeartbeatResponse) (synced bool)
	HandlePushed    func(c *session.Client, change wire.KeyChange, ack func(wire.Ack)) (gap bool)
	IsCurrent       func(k *session.Invalidations, r session.RecordVersion) bool
	GateBefore      func(e lease.Gate) (lease.GateOutcome, error)
	GateAfter       func(e lease.Gate) lease.GateOutcome
	HandleResponse  func(q *holder.Queue, now, sentAt time.Duration, request *wire.LeaseRequest, r *wire.LeaseResponse) bool
	RequestFailed   func(q *holder.Queue, now time.Duration, request *wire.LeaseRequest)
	HandleRecall    func(q *holder.Queue, pool wire.PoolID, generation int64)
	Release         func(q *accountQueue, t *holder.Waiter, cost int64)
	EndSession      func(q *holder.Queue)
	Unused          func(q *holder.Queue, now time.Duration) bool
	LastNumber      func(q *holder.Queue) int64
	OutgoingRequest func(q *accountQueue, request *wire.LeaseRequest) *wire.LeaseRequest
	IdleTimeout     func(p Profile) time.Duration
	MayReduce       func(c *wire.KeyChange) bool
	Next            func(q *accountQueue, now time.Duration) holder.Output
	OnStored        func(u *usagelog.Log[*usage], batch []*usage)
	Resync          func(q *holder.Queue)
	Republish       func(u *usagelog.Log[*usage])
	HoldUsage       func(u *usagelog.Log[*usage], held bool)
}

// CorrectIn returns the correct rules, with a directed profile for all seeds. If
// its name is empty, each seed has a profile of its own.
func CorrectIn(profile string) *Rules {
	r := Correct()
	r.Profile = profile
	if profile == freshness {
		r.Freshness = correctFresh()
	}
	return r
}

// Correct returns the rules of shared/lease.
func Correct() *Rules {
	return &Rules{
		Changes:              correctFresh(),
		Resume:               correctResume(),
		Limits:               correctLimits(),
		Keys:                 correctKeys(),
		Exceeds:              allocator.Exceeds,
		AddRequest:           (*allocator.Batcher).AddRequest,
		Decide:               (*allocator.Batch).Decide,
		ApplyReturn:          (*allocator.Batch).ApplyReturn,
		ApplyCharges:         (*settlement.Batch).ApplyCharges,
		MarkInserted:         (*settlement.Batch).MarkInserted,
		ResolveDuplicates:    (*settlement.Batch).ResolveDuplicates,
		CloseLeases:          (*allocator.Allocator).CloseSession,
		ExtendSession:        (*session.Record).Heartbeat,
		SessionExpired:       (*session.Record).Expired,
		SessionOver:          (*session.Record).Over,
		CloseSession:         (*session.Record).Close,
		PresentFor:           (*session.Presence).For,
		Remaining:            session.Remaining,
		TellsFirst:           true,
		Bound:                session.Reach.Bound,
		Ack:                  (*session.Barrier).Ack,
		BarrierDone:          (*session.Barrier).Done,
		NextMark:             rollback.HighWaterMark.Next,
		MarkersToVerify:      (*rollback.Detector).MarkersToVerify,
		Observe:              (*rollback.Detector).Observe,
		AfterCheckpoint:      (*rollback.Detector).AfterCheckpoint,
		FencesReplicas:       true,
		ReadsMembershipAgain: true,
		RestoreRevocation:    func(d *database, account string, key apikey.Hash) { d.revoke(account, key) },
		UnknownSessions:      rollback.UnknownSessions,
		KeepsRevocations:     true,
		LocksRows:            true,
		SkipsLockedRows:      true,
		EarlierSessions:      func(r *wire.RegisterRequest) []wire.EarlierSession { return r.Earlier },

		HandleHeartbeat: func(p *proxy, request *wire.HeartbeatRequest, r *wire.HeartbeatResponse) bool {
			synced, _ := p.client.HandleHeartbeat(p.clock(), request, r)
			return synced
		},
		HandlePushed:    (*session.Client).HandlePushed,
		IsCurrent:       (*session.Invalidations).IsCurrent,
		GateBefore:      lease.Gate.Before,
		GateAfter:       lease.Gate.After,
		HandleResponse:  (*holder.Queue).HandleResponse,
		RequestFailed:   (*holder.Queue).RequestFailed,
		HandleRecall:    (*holder.Queue).HandleRecall,
		Release:         func(q *accountQueue, t *holder.Waiter, cost int64) { q.queue.Release(t, cost) },
		EndSession:      (*holder.Queue).EndSession,
		Unused:          (*holder.Queue).Unused,
		LastNumber:      (*holder.Queue).LastNumber,
		IdleTimeout:     func(p Profile) time.Duration { return p.IdleTimeout },
		MayReduce:       (*wire.KeyChange).MayReduce,
		Next:            func(q *accountQueue, now time.Duration) holder.Output { return q.queue.Next(now) },
		OutgoingRequest: func(_ *accountQueue, request *wire.LeaseRequest) *wire.LeaseRequest { return request },
		Policy:          func(b *allocator.Batch, _ *wire.LeaseRequest, apply func(*allocator.Batch)) { apply(b) },
		OnStored:        func(*usagelog.Log[*usage], []*usage) {},
		Resync:          (*holder.Queue).Resync,
		Republish:       (*usagelog.Log[*usage]).Republish,
		HoldUsage:       (*usagelog.Log[*usage]).Hold,
	}
}
