package sim

import (
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
)

// Rules are the steps of the protocol as a world takes them: those of
// shared/lease, unless a fault is put in to see that it is found.
type Rules struct {
	// In names the directed profile of the worlds that they are played in: that where a fault shows. Empty for any.
	In string

	// The control plane's.
	Op        func(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool)
	Return    func(d *lease.Docket, r *lease.Return) lease.Status
	Post      func(s *lease.Settlement, b *lease.Book, tenures map[lease.SessionID]*lease.Tenure)
	Took      func(s *lease.Settlement, requests map[[16]byte]bool) []int
	Compare   func(s *lease.Settlement, settled map[[16]byte][32]byte)
	Free      func(b *lease.Book, s lease.SessionID)
	Renew     func(t *lease.Tenure, r *lease.Renew, valid time.Duration) bool
	Fence     func(t *lease.Tenure, margin time.Duration) bool
	Outlived  func(t *lease.Tenure, rest time.Duration) bool
	Close     func(t *lease.Tenure, c *lease.CloseSession, settled int64) bool
	Barrier   func(rev int64, pending []lease.Pending, margin, now time.Duration) *lease.Barrier
	Ack       func(b *lease.Barrier, a lease.Ack)
	Down      func(b *lease.Barrier, now time.Duration) bool
	Relax     func(c *lease.Calm, b *lease.Book, live int64, op *lease.Op, now time.Duration)
	Asks      func(a *lease.Attendant, r lease.Roll) []lease.Witness
	Look      func(a *lease.Attendant, r lease.Roll, f lease.Finding, now time.Duration) (lease.Roll, lease.Advice)
	Stay      func(a *lease.Attendant, r lease.Roll, f lease.Finding, beat lease.Commit, fenced []string) (lease.Roll, bool)
	Fences    bool
	Next      func(m, now lease.Mark) lease.Mark
	Revoke    func(d *database, account string, key apikey.Hash)
	Recovers  func(since, valid, margin time.Duration) bool
	Unknown   func(since, valid, margin time.Duration) []lease.Pending
	Earlier   func(r *lease.Register) []lease.Earlier
	Remembers bool

	// The proxy's.
	Before   func(now, deadline lease.Instant) bool
	Extend   func(r *lease.Renewed, sent, received lease.Instant) (lease.Instant, bool)
	Opened   func(r *lease.Registered, sent, received lease.Instant) lease.Instant
	Pushed   func(c *lease.Changes, change lease.Change, apply func(lease.Change)) (lease.Ack, bool)
	Current  func(k *lease.Knowledge, r lease.Reading) bool
	Begin    func(e lease.Entry) (lease.Outcome, error)
	Complete func(e lease.Entry) lease.Outcome
	Answer   func(h *lease.Holder, r *lease.OpReply) []*lease.Ticket
	Recall   func(h *lease.Holder, pool lease.PoolID, gen int64)
	Finish   func(h *lease.Holder, t *lease.Ticket, cost int64)
	Stored   func(u *lease.Unsettled[*usage], batch []*usage)
	Renewed  func(p *proxy, r *lease.Renewed, extend func())
	Restate  func(h *lease.Holder)
	Seen     func(u *lease.Unsettled[*usage])
}

// Correct are the rules of shared/lease.
func Correct() *Rules {
	return &Rules{
		Op: (*lease.Docket).Op, Return: (*lease.Docket).Return, Post: (*lease.Settlement).Post, Took: (*lease.Settlement).Took,
		Compare: (*lease.Settlement).Compare, Free: (*lease.Book).Close, Renew: (*lease.Tenure).Renew, Fence: (*lease.Tenure).Fence,
		Outlived: (*lease.Tenure).Outlived, Close: (*lease.Tenure).Close, Barrier: lease.NewBarrier, Ack: (*lease.Barrier).Ack,
		Down: (*lease.Barrier).Down, Relax: (*lease.Calm).Ease, Next: lease.Mark.Next,
		Asks: (*lease.Attendant).Asks, Look: (*lease.Attendant).Look, Stay: (*lease.Attendant).Stay, Fences: true,
		Revoke:   func(d *database, account string, key apikey.Hash) { d.revoke(account, key) },
		Recovers: lease.Recovering, Unknown: lease.Unknown, Remembers: true,
		Earlier: func(r *lease.Register) []lease.Earlier { return r.Earlier },

		Before:   lease.Instant.Before,
		Extend:   func(r *lease.Renewed, sent, _ lease.Instant) (lease.Instant, bool) { return r.Deadline(sent) },
		Opened:   func(r *lease.Registered, sent, _ lease.Instant) lease.Instant { return r.Deadline(sent) },
		Pushed:   (*lease.Changes).Pushed,
		Current:  (*lease.Knowledge).Current,
		Begin:    lease.Entry.Begin,
		Complete: lease.Entry.Complete,
		Answer:   (*lease.Holder).Answer,
		Recall:   (*lease.Holder).Recall,
		Finish:   (*lease.Holder).Finish,
		Stored:   func(*lease.Unsettled[*usage], []*usage) {},
		Renewed: func(p *proxy, r *lease.Renewed, extend func()) {
			p.apply(r)
			extend()
		},
		Restate: (*lease.Holder).Restate,
		Seen:    (*lease.Unsettled[*usage]).Republish,
	}
}
