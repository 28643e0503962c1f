package allocator

import "modelgateway/shared/wire"

// OutageAllowance says what a proxy may use of a pool beyond its lease while no
// control plane decides. The zero value allows nothing.
type OutageAllowance struct {
	// Percent is the share of the free units of a balance or key limit that all proxies may use together, Max the most for
	// each of them, in nano-units.
	Percent, Max int64
	// SlotsPercent is the share of an account's slots that all proxies may use together; each may use one of them, if any is
	// free.
	SlotsPercent int64
}

// Of returns the allowance of a pool for each of so many live proxies.
func (o OutageAllowance) Of(p *Pool, live int64) int64 {
	free, live := max(p.Free, 0), max(live, 1)
	switch {
	case p.Unlimited:
		return 0
	case p.Kind == wire.Slots:
		proxies := 100 * live // rounded up: otherwise few slots would be none
		return min((min(p.Total, maxSlots)*o.SlotsPercent+proxies-1)/proxies, free)
	default:
		return min((free/100*o.Percent+free%100*o.Percent/100)/live, o.Max)
	}
}

// maxSlots keeps the product of slots and percent small.
const maxSlots = 1 << 40
