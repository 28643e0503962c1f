package sim

import (
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/wire"
)

// Rules are the steps of the protocol as a world takes them: those of
// shared/lease, unless a fault is put in to see that it is found.
type Rules struct {
	// In names the directed profile of the worlds that they are played in: that where a fault shows. Empty for any.
	In string

	// The control plane's.
	Op              func(d *allocator.Batch, op *wire.LeaseRequest, stay *allocator.PendingRequest, ease func(*allocator.Batch)) (*wire.LeaseResponse, bool)
	Policy          func(b *allocator.Batch, request *wire.LeaseRequest, apply func(*allocator.Batch))
	Return          func(d *allocator.Batch, r *wire.Return) wire.Status
	Post            func(s *settlement.Batch, b *allocator.Allocator, tenures map[wire.SessionID]*session.Record)
	Took            func(s *settlement.Batch, requests map[[16]byte]bool) []int
	Compare         func(s *settlement.Batch, settled map[[16]byte][32]byte)
	Free            func(b *allocator.Allocator, s wire.SessionID)
	Renew           func(t *session.Record, r *wire.HeartbeatRequest, valid time.Duration) bool
	Fence           func(t *session.Record, margin time.Duration) bool
	Outlived        func(t *session.Record, rest time.Duration) bool
	Close           func(t *session.Record, c *wire.CloseRequest, settled int64) bool
	Barrier         func(rev int64, pending []session.PendingSession, margin, now time.Duration) *session.Barrier
	Ack             func(b *session.Barrier, a wire.Ack)
	Down            func(b *session.Barrier, now time.Duration) bool
	MarkersToVerify func(a *rollback.Detector, r rollback.Membership) []rollback.CommitMarker
	Observe         func(a *rollback.Detector, r rollback.Membership, f rollback.Observation, now time.Duration) (rollback.Membership, rollback.Action)
	AfterCheckpoint func(a *rollback.Detector, r rollback.Membership, f rollback.Observation, checkpoint rollback.Transaction, fenced []string) (rollback.Membership, bool)
	Fences          bool
	Next            func(m, now rollback.HighWaterMark) rollback.HighWaterMark
	Revoke          func(d *database, account string, key apikey.Hash)
	Recovers        func(since, valid, margin time.Duration) bool
	Unknown         func(since, valid, margin time.Duration) []session.PendingSession
	Earlier         func(r *wire.RegisterRequest) []wire.EarlierSession
	Remembers       bool
	// Locks: rows are locked.
	Locks bool

	// The proxy's.
	Before      func(now, deadline session.Instant) bool
	Registered  func(p *proxy, sentAt session.Instant, r *wire.RegisterResponse)
	Heartbeat   func(p *proxy, sentAt session.Instant, request *wire.HeartbeatRequest, r *wire.HeartbeatResponse)
	Pushed      func(c *session.Client, change wire.KeyChange, ack func(wire.Ack)) (gap bool)
	Current     func(k *session.Invalidations, r session.RecordVersion) bool
	Begin       func(e holder.AdmissionGate) (holder.Outcome, error)
	Complete    func(e holder.AdmissionGate) holder.Outcome
	Answer      func(q *holder.Queue, now, sentAt time.Duration, request *wire.LeaseRequest, r *wire.LeaseResponse) bool
	Recall      func(q *holder.Queue, pool wire.PoolID, generation int64)
	Finish      func(q *holder.Queue, t *holder.Waiter, cost int64)
	EndSession  func(q *holder.Queue)
	Requested   func(q *accountQueue, request *wire.LeaseRequest) *wire.LeaseRequest
	IdleTimeout time.Duration
	Stored      func(u *usagelog.Log[*usage], batch []*usage)
	Restate     func(q *holder.Queue)
	Seen        func(u *usagelog.Log[*usage])
}

// CorrectIn returns the correct rules in worlds of a directed profile; empty for
// the profile of each seed.
func CorrectIn(profile string) *Rules {
	r := Correct()
	r.In = profile
	return r
}

// Correct are the rules of shared/lease.
func Correct() *Rules {
	return &Rules{
		Op: (*allocator.Batch).Decide, Return: (*allocator.Batch).ApplyReturn, Post: (*settlement.Batch).ApplyCharges, Took: (*settlement.Batch).MarkInserted,
		Compare: (*settlement.Batch).ResolveDuplicates, Free: (*allocator.Allocator).CloseSession, Renew: (*session.Record).Heartbeat, Fence: (*session.Record).Fence,
		Outlived: (*session.Record).Expired, Close: (*session.Record).Close, Barrier: session.NewBarrier, Ack: (*session.Barrier).Ack,
		Down: (*session.Barrier).Done, Next: rollback.HighWaterMark.Next,
		MarkersToVerify: (*rollback.Detector).MarkersToVerify, Observe: (*rollback.Detector).Observe, AfterCheckpoint: (*rollback.Detector).AfterCheckpoint, Fences: true,
		Revoke:   func(d *database, account string, key apikey.Hash) { d.revoke(account, key) },
		Recovers: rollback.InRecoveryWait, Unknown: rollback.UnknownSessions, Remembers: true, Locks: true,
		Earlier: func(r *wire.RegisterRequest) []wire.EarlierSession { return r.Earlier },

		Before: session.Instant.Before,
		Registered: func(p *proxy, sentAt session.Instant, r *wire.RegisterResponse) {
			_ = p.client.HandleRegistered(p.clock(), sentAt, r)
		},
		Heartbeat: func(p *proxy, sentAt session.Instant, request *wire.HeartbeatRequest, r *wire.HeartbeatResponse) {
			_ = p.client.HandleHeartbeat(p.clock(), sentAt, request, r)
		},
		Pushed:      (*session.Client).HandlePushed,
		Current:     (*session.Invalidations).IsCurrent,
		Begin:       holder.AdmissionGate.Before,
		Complete:    holder.AdmissionGate.After,
		Answer:      (*holder.Queue).HandleResponse,
		Recall:      (*holder.Queue).HandleRecall,
		Finish:      (*holder.Queue).Release,
		EndSession:  (*holder.Queue).EndSession,
		IdleTimeout: idleTimeout,
		Requested:   func(_ *accountQueue, request *wire.LeaseRequest) *wire.LeaseRequest { return request },
		Policy:      func(b *allocator.Batch, _ *wire.LeaseRequest, apply func(*allocator.Batch)) { apply(b) },
		Stored:      func(*usagelog.Log[*usage], []*usage) {},
		Restate:     (*holder.Queue).Resync,
		Seen:        (*usagelog.Log[*usage]).Republish,
	}
}
