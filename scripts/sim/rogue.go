package sim

import (
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// attempt identifies a lease request without the process that sent it.
type attempt struct {
	batcher *allocator.Batcher
	session wire.SessionID
	account string
	number  int64
}

// joinByNumber takes every lease request with the number of one that is not decided
// yet for a repetition of it, whichever process has sent it.
func joinByNumber(r *Rules) {
	waiting := map[attempt]*[]func(wire.LeaseResponse){}
	r.AddRequest = func(b *allocator.Batcher, request *wire.LeaseRequest, respond func(wire.LeaseResponse)) bool {
		key := attempt{b, request.Session, request.Account, request.Number}
		if first := waiting[key]; first != nil {
			*first = append(*first, respond)
			return true
		}

		all := &[]func(wire.LeaseResponse){respond}
		added := b.AddRequest(request, func(response wire.LeaseResponse) {
			delete(waiting, key)
			for _, each := range *all {
				each(response)
			}
		})
		if added {
			waiting[key] = all
		}

		return added
	}
}

// bootOf returns the boot id of a session, so that a message seems to be its own.
func bootOf(b *allocator.Batch, s wire.SessionID, sent string) string {
	if record := b.Sessions[s]; record != nil {
		return record.BootID
	}
	return sent
}

// rogueMutations let messages of a proxy have an effect that they must not have.
func rogueMutations() []Mutation {
	return []Mutation{
		{"lease requests of another process are taken for repetitions", 60, joinByNumber},
		{"lease requests of another process are decided", 60, func(r *Rules) {
			r.Decide = func(
				d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
			) (*wire.LeaseResponse, bool) {
				copied := *request
				copied.BootID = bootOf(d, request.Session, request.BootID)
				return d.Decide(&copied, pending, applyPolicy)
			}
		}},
		{"returns of another process are applied", 60, func(r *Rules) {
			r.ApplyReturn = func(d *allocator.Batch, ret *wire.Return) wire.ReturnResponse {
				copied := *ret
				copied.BootID = bootOf(d, ret.Session, ret.BootID)
				return d.ApplyReturn(&copied)
			}
		}},
		{"heartbeats of another process extend a session", 60, func(r *Rules) {
			r.ExtendSession = func(t *session.Record, h *wire.HeartbeatRequest, window time.Duration) bool {
				copied := *h
				copied.BootID = t.BootID
				return t.Heartbeat(&copied, window)
			}
		}},
		{"another process closes a session", 60, func(r *Rules) {
			r.CloseSession = func(t *session.Record, c *wire.CloseRequest, settled int64) bool {
				copied := *c
				copied.BootID = t.BootID
				return t.Close(&copied, settled)
			}
		}},
		{"messages of any size are decided", 60, func(r *Rules) {
			r.Exceeds = func([]wire.LeaseReport, [][]wire.Need) bool { return false }
		}},
	}
}

// abortMutations end the waiting of requests at the wrong time.
func abortMutations() []Mutation {
	return []Mutation{
		{"requests wait although no control plane decides", 60, func(r *Rules) {
			r.RequestFailed = func(*holder.Queue, time.Duration, *wire.LeaseRequest) {}
		}},
		{"requests are aborted at the first failure", 60, func(r *Rules) {
			r.RequestFailed = func(q *holder.Queue, now time.Duration, request *wire.LeaseRequest) {
				q.RequestFailed(now, request)
				q.RequestFailed(now+time.Hour, request)
			}
		}},
		{"a response that says to wait does not end a row of failures", 60, func(r *Rules) {
			r.HandleResponse = func(q *holder.Queue, now, sentAt time.Duration, request *wire.LeaseRequest, a *wire.LeaseResponse) bool {
				return a.Status != wire.Wait && q.HandleResponse(now, sentAt, request, a)
			}
		}},
	}
}
