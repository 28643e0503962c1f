package spool

import (
	"testing"

	"modelgateway/shared/event"
	"modelgateway/shared/lease/outage"
	"modelgateway/shared/wire"
)

// The pools of the events of this file.
const balance, slots wire.PoolID = 1, 2

// allowed reports whether the outage allowance of the balance, which is 100, has room for an amount.
func allowed(use *outage.AllowanceUse, amount int64) bool {
	needs := []wire.Need{{Pool: balance, Kind: wire.Balance, Amount: amount}}
	if !use.Take(needs, func(wire.PoolID) int64 { return 100 }) {
		return false
	}
	use.End(needs, 0)
	return true
}

// overdraw is a request that is admitted under the outage allowance, costs 60, and ends.
func overdraw(t *testing.T, s *Spool, id string) {
	t.Helper()
	u, e := startUnderAllowance(t, s, id)
	needs := []wire.Need{{Pool: balance, Kind: wire.Balance, Amount: 80}, {Pool: slots, Kind: wire.Slots, Amount: 1}}
	if !s.AllowanceUse().Take(needs, func(wire.PoolID) int64 { return 1000 }) {
		t.Fatal("the allowance has no room")
	}
	e.Cost = 60
	u.AppendFinished(e)
	s.AllowanceUse().End(needs, int64(e.Cost))
}

func startUnderAllowance(t *testing.T, s *Spool, id string) (*Unit, *event.Usage) {
	t.Helper()
	e := usage(1, id)
	e.OutageAllowance = []event.PoolRef{{Pool: balance, Kind: wire.Balance}, {Pool: slots, Kind: wire.Slots}}
	u, err := s.Reserve()
	if err == nil {
		err = u.AppendStarted(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u, e
}

func TestOutageAllowanceIsGivenBackWhenTheEventIsSettled(t *testing.T) {
	t.Parallel()
	s, _, _ := setup(t)
	finish(start(t, s, 1, "covered"), 1, "covered", 50)
	overdraw(t, s, "overdrawn")
	if got := s.AllowanceUse().Balance(); got != 60 {
		t.Errorf("%d of the allowance is used; want the cost of the event", got)
	}
	settle(s, 1, 1)
	if allowed(s.AllowanceUse(), 50) {
		t.Error("the event of a covered request gave the allowance back")
	}
	settle(s, 1, 2)
	settle(s, 1, 2)
	if got := s.AllowanceUse().Balance(); got != 0 || !allowed(s.AllowanceUse(), 100) {
		t.Errorf("%d of the allowance is used after the settlement; want nothing", got)
	}
}

// The death of the process gives nothing back: what is not settled counts again, also the cost of a request that was
// running.
func TestUnsettledEventsUseTheOutageAllowanceAfterARestart(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	for _, id := range []string{"settled", "unsettled"} {
		overdraw(t, s, id)
	}
	settle(s, 1, 1)
	running, _ := startUnderAllowance(t, s, "running")
	progress(running, 7)
	implausible, e := startUnderAllowance(t, s, "implausible")
	e.Cost, e.Usage.Output = 1000, -1
	implausible.AppendFinished(e)

	again := mustOpen(t, cfg, d)
	if got := again.AllowanceUse().Balance(); got != 60+7 {
		t.Errorf("%d of the allowance is used after the restart; want %d", got, 60+7)
	}
	settle(again, 1, 3)
	if got := again.AllowanceUse().Balance(); got != 7 {
		t.Errorf("%d of the allowance is used after the settlement of the ended requests; want that of the aborted one", got)
	}
	settle(again, 1, 4)
	if got := again.AllowanceUse().Balance(); got != 0 {
		t.Errorf("%d of the allowance is used at the end; want nothing", got)
	}
	if third := mustOpen(t, cfg, d); third.AllowanceUse().Balance() != 0 || !allowed(third.AllowanceUse(), 100) {
		t.Error("the allowance is used after a restart without unsettled events")
	}
}
