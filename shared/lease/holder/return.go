package holder

import (
	"slices"

	"modelgateway/shared/wire"
)

// NextReturn returns the Return to send, or nil: none is sent while one is
// outstanding, or if the outstanding lease request contains the same report.
// Units that came back after that request was sent are returned at once, because
// the request may wait for them. The caller repeats the Return until it calls
// ReturnDelivered.
func (h *Holder) NextReturn() *wire.Return {
	if h.ret != nil {
		return nil
	}
	due := h.firstDue(wire.MaxReports, nil)
	if len(due) == 0 {
		return nil
	}
	h.ret = &wire.Return{
		V:       wire.Version,
		Session: h.session,
		BootID:  h.bootID,
		Account: h.account,
		Reports: reports(due),
	}
	return h.ret
}

// ReturnDelivered records that the outstanding Return has arrived, or that the
// session is closed and takes none. settled has the leases of which the control
// plane has settled every charge.
func (h *Holder) ReturnDelivered(settled []wire.PoolID) {
	if h.ret == nil {
		return
	}

	delivered := h.ret.Reports
	h.ret = nil
	h.confirm(delivered)

	for _, v := range delivered {
		l := h.pools[v.Pool]
		if l == nil {
			continue
		}
		l.askSettled = false
		h.changed(l)
		if slices.Contains(settled, v.Pool) && l.empty() && l.charged == v.Charged && l.returned == v.Returned {
			delete(h.pools, v.Pool)
		}
	}
}

// confirm records that the control plane has received reports.
func (h *Holder) confirm(reports []wire.LeaseReport) {
	for _, v := range reports {
		l := h.pools[v.Pool]
		if l == nil {
			continue
		}
		l.confirmed = max(l.confirmed, v.Returned)
		if l.reportDue && v.Generation == l.generation && v.GrantedSeen == l.granted {
			l.reportDue, l.provisional = false, h.request != nil
		}
	}
}
