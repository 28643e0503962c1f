package holder

import "time"

// measure finds the leases whose idle units are low. served is for how long a proxy
// should be able to serve the requests of the last minutes without the control
// plane.
func (h *Holder) measure(now, served time.Duration) {
	h.low = h.low[:0]
	for _, l := range h.leases() {
		if l.unknown {
			continue
		}
		l.demand.measure(now, l.charged, served)
		if !l.central && !l.over && !l.requested && l.demand.isLow(l.idle()) {
			h.low = append(h.low, l)
		}
	}
}
