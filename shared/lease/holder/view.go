package holder

import "modelgateway/shared/wire"

// LeaseView is the state of a Holder's lease on one pool.
type LeaseView struct {
	Generation int64
	Central    bool
	// Granted is the greatest granted total that was read, Returned the total returned, Charged the costs of finished
	// requests, Running the units of unfinished ones.
	Granted, Returned, Charged, Running int64
}

// LeaseView returns the state of the lease on a pool.
func (h *Holder) LeaseView(pool wire.PoolID) LeaseView {
	l := h.pools[pool]
	if l == nil {
		return LeaseView{}
	}
	return LeaseView{
		Generation: l.generation,
		Central:    l.central,
		Granted:    l.granted,
		Returned:   l.returned,
		Charged:    l.charged,
		Running:    l.running,
	}
}

// Reserved returns the units of a pool that running requests hold.
func (h *Holder) Reserved(pool wire.PoolID) int64 {
	if l := h.pools[pool]; l != nil {
		return l.running
	}
	return 0
}
