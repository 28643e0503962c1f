package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// Each lease response says what the proxy may use beyond its lease while no control plane decides: its part of the share of
// what is free after the grant, up to the maximum.
func TestLeaseResponseHasTheOutageAllowance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		allowance allocator.OutageAllowance
		want      map[wire.PoolKind]int64
	}{
		{"none", allocator.OutageAllowance{}, map[wire.PoolKind]int64{}},
		{"a share", allocator.OutageAllowance{Percent: 10, Max: 1000, SlotsPercent: 30}, map[wire.PoolKind]int64{wire.Balance: 495, wire.KeyLimit: 45, wire.Slots: 2}},
		{"the maximum", allocator.OutageAllowance{Percent: 10, Max: 40}, map[wire.PoolKind]int64{wire.Balance: 40, wire.KeyLimit: 40}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			db := w.replica()
			store := leasestore.New(db)
			c := w.customer(10_000, 1_000, 10)
			s := w.session(store, "one")
			for range 5 { // a proxy that opens ever more sessions takes nothing from the others
				w.session(store, "other")
			}
			busy := &busyProxies{w: w}
			busy.s = w.startWith(db, busy, leasing.Config{SessionTTL: sessionLength, HeadroomPeriod: -1, OutageAllowance: tt.allowance})
			response := ask(busy.s, &wire.LeaseRequest{
				V: wire.Version, Session: s, BootID: "one", Account: c.accountID(), Number: 1, Needs: [][]wire.Need{c.needs(100)},
			})
			if response.Status != wire.Done || !response.Decisions[0].Granted {
				t.Fatalf("got %+v; want a grant", response)
			}
			kinds := map[wire.PoolID]wire.PoolKind{c.balance: wire.Balance, c.limit: wire.KeyLimit, c.slots: wire.Slots}
			got := map[wire.PoolKind]int64{}
			for _, l := range response.Leases {
				if l.Allowance != 0 {
					got[kinds[l.Pool]] = l.Allowance
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("allowances (-want +got):\n%s", diff)
			}
		})
	}
}

// An event that was admitted under the outage allowance is charged as far as its lease goes, and the rest is overrun. Its record
// is marked, and the mark of a repetition changes nothing.
func TestCostUnderTheOutageAllowanceIsOverrun(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.replica()
	store, service := leasestore.New(db), w.service(db)
	c := w.customer(1_000, 500, 5)
	s := w.session(store, "proxy")
	ask(service, &wire.LeaseRequest{V: wire.Version, Session: s, BootID: "proxy", Account: c.accountID(), Number: 1, Needs: [][]wire.Need{c.needs(100)}})
	covered, beyond := c.event(s, 1, 90), c.event(s, 2, 600)
	beyond.OutageAllowance = []event.PoolRef{{Pool: c.balance, Kind: wire.Balance}, {Pool: c.limit, Kind: wire.KeyLimit}, {Pool: c.slots, Kind: wire.Slots}}
	if got := w.settle(db, covered, beyond); got.Settled != 2 || got.UnderAllowance != 1 || got.AllowanceCost != 600 {
		t.Errorf("got %+v; want both settled, and the second under the allowance", got)
	}
	repeated := beyond
	repeated.OutageAllowance = nil
	if got := w.settle(db, repeated, beyond); got.Duplicates != 2 || got.UnderAllowance != 0 || got.AllowanceCost != 0 {
		t.Errorf("got %+v; want two duplicates", got)
	}
	want := []figures{
		{Total: 1_000, Free: 310, Settled: 690, Overrun: 590},
		{Total: 500, Free: -190, Settled: 690, Overrun: 590},
	}
	if diff := cmp.Diff(want, []figures{w.figures(c.balance), w.figures(c.limit)}); diff != "" {
		t.Errorf("balance and limit (-want +got):\n%s", diff)
	}
	w.check()
	for marked, id := range map[bool]string{false: covered.RequestID, true: beyond.RequestID} {
		page, err := usagestore.New(db).List(t.Context(), usage.Query{OutageAllowance: &marked, Limit: 10})
		if err != nil || len(page.Records) != 1 || page.Records[0].RequestID.String() != id || page.Records[0].OutageAllowance != marked {
			t.Errorf("records whose mark is %v: %+v, %v; want %s", marked, page.Records, err, id)
		}
	}
}
