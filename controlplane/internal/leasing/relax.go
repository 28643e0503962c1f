package leasing

import (
	"time"

	"modelgateway/shared/lease"
)

// maxCalm bounds the pools whose calm is remembered.
const maxCalm = 1 << 16

// relax lets sessions hold idle units of those pools of an op that have had
// room for a while, as far as this replica has seen. It is a matter of speed
// alone: before any refusal, idle units are recalled.
func (s *Service) relax(state *State, op *lease.Op, now time.Time) {
	if s.recaller == nil || s.cfg.Calm < 0 {
		return
	}
	for _, needs := range op.Needs {
		for _, n := range needs {
			p := state.Book.Pools[n.Pool]
			if p == nil || !p.Central {
				continue
			}
			if !p.Roomy(state.Live, n.Amount) {
				delete(s.calm, p.ID)
				continue
			}
			since, known := s.calm[p.ID]
			switch {
			case !known:
				s.noteCalm(p.ID, now)
			case now.Sub(since) >= s.cfg.Calm:
				p.Relax()
				delete(s.calm, p.ID)
			}
		}
	}
}

func (s *Service) noteCalm(id lease.PoolID, now time.Time) {
	if len(s.calm) >= maxCalm {
		clear(s.calm) // calm is seen again in a while
	}
	s.calm[id] = now
}
