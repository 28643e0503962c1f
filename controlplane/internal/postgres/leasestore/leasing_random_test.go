package leasestore_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// driver is one proxy of the random test: it sends lease requests, returns units and
// settles events of every customer, and then closes its session.
type driver struct {
	w         *leaseWorld
	r         *rand.Rand
	replicas  []*postgres.DB
	services  []*leasing.Service
	customers []*storetest.Customer
	session   wire.SessionID
	boot      string

	holders []*holder.Holder
	running [][]*holder.Waiter
	// unsettled events may be settled more than once; count numbers them.
	unsettled []event.Usage
	count     int64
	// spent is the cost of the requests of each customer.
	spent []int64
	// silent drivers never close their sessions, which expire.
	silent bool
	// recalls are the recalls that are not answered yet.
	recalls chan wire.Recall
	// sweeps makes the sweeper run once more.
	sweeps chan struct{}
}

// recallQueue delivers recalls to drivers; recalls for a full queue are lost.
type recallQueue struct {
	leasing.Pusher // announcements are not made
	drivers        map[wire.SessionID]*driver
	sent           atomic.Int64
}

func (r *recallQueue) Connected() bool { return true }

func (r *recallQueue) Recall(s wire.SessionID, recall wire.Recall) error {
	r.sent.Add(1)
	select {
	case r.drivers[s].recalls <- recall:
	default:
	}
	return nil
}

func (d *driver) service() *leasing.Service { return d.services[d.r.IntN(len(d.services))] }
func (d *driver) db() *postgres.DB          { return d.replicas[d.r.IntN(len(d.replicas))] }

// answerRecall returns the idle units of a pool.
func (d *driver) answerRecall(r wire.Recall) {
	for i, c := range d.customers {
		if c.AccountID() == r.Account {
			d.holders[i].HandleRecall(r.Pool, r.Generation)
			d.returnUnits(i)
		}
	}
}

// sweep makes the sweeper run soon. It does not sweep all the time: without a pause it would take the CPU of a slow machine.
func (d *driver) sweep() {
	select {
	case d.sweeps <- struct{}{}:
	default: // it goes round already
	}
}

// ask sends a lease request until it is decided, and answers recalls meanwhile. Each try sweeps: a request waits for the silent
// driver's units until its expired session is fenced, and when the others have ended, nobody else takes a step.
func (d *driver) ask(op *wire.LeaseRequest) wire.LeaseResponse {
	answer := make(chan wire.LeaseResponse, 1)
	for {
		d.sweep()
		d.service().Request(op, func(r wire.LeaseResponse) { answer <- r })
		for waiting := true; waiting; {
			select {
			case r := <-answer:
				if r.Status != wire.Wait && r.Status != wire.Unavailable {
					return r
				}
				waiting = false
			case r := <-d.recalls:
				d.answerRecall(r)
			}
		}
	}
}

func (d *driver) step() {
	for len(d.recalls) > 0 {
		d.answerRecall(<-d.recalls)
	}
	i := d.r.IntN(len(d.customers))
	switch d.r.IntN(6) {
	case 0, 1, 2:
		for range 1 + d.r.IntN(3) {
			t := d.holders[i].Reserve(d.customers[i].Needs(1 + d.r.Int64N(200)))
			if d.r.IntN(8) == 0 {
				d.holders[i].Cancel(t)
			}
		}
		d.op(i)
	case 3:
		d.finish(i)
	case 4:
		d.returnUnits(i)
	case 5:
		d.settle(d.r.IntN(1 + len(d.unsettled)))
	}
}

// op sends the next lease request until there is a response, sometimes to both
// replicas at once.
func (d *driver) op(i int) {
	op := d.holders[i].NextRequest()
	if op == nil {
		return
	}
	twice := make(chan wire.LeaseResponse, 1)
	if d.r.IntN(4) == 0 {
		d.service().Request(op, func(r wire.LeaseResponse) { twice <- r })
	} else {
		twice <- wire.LeaseResponse{Status: wire.Unavailable}
	}
	reply := d.ask(op)
	for d.r.IntN(5) == 0 { // lost, so asked again
		reply = d.ask(op)
	}
	for _, t := range d.holders[i].HandleResponse(&reply) {
		switch {
		case t.Granted():
			d.running[i] = append(d.running[i], t)
		case t.Decision().Reason == "":
			d.w.T.Errorf("session %d: a request is neither granted nor refused: %+v", d.session, reply)
		case t.Decision().Free >= 200:
			d.w.T.Errorf("session %d: refused with enough free: %+v", d.session, t.Decision())
		}
	}
	<-twice
}

func (d *driver) finish(i int) {
	if len(d.running[i]) == 0 {
		return
	}
	cost := d.r.Int64N(250) // may be more than was reserved
	d.holders[i].Release(d.running[i][0], cost)
	d.running[i] = d.running[i][1:]
	d.count++
	d.spent[i] += cost
	d.unsettled = append(d.unsettled, d.customers[i].Event(d.session, d.count, cost))
}

func (d *driver) returnUnits(i int) {
	if ret := d.holders[i].NextReturn(); ret != nil {
		storetest.ReturnUnits(d.service(), ret)
		if d.r.IntN(4) == 0 {
			storetest.ReturnUnits(d.service(), ret)
		}
		d.holders[i].ReturnDelivered(nil)
	}
}

// settle settles n of the events in any order. Some stay in the list and are settled
// twice.
func (d *driver) settle(n int) {
	if n == 0 {
		return
	}
	d.r.Shuffle(len(d.unsettled), func(i, j int) { d.unsettled[i], d.unsettled[j] = d.unsettled[j], d.unsettled[i] })
	d.w.Settle(d.db(), d.unsettled[:n]...)
	d.unsettled = d.unsettled[d.r.IntN(n+1):]
}

// end finishes all requests and closes the session.
func (d *driver) end() {
	for i := range d.customers {
		for len(d.running[i]) > 0 {
			d.finish(i)
		}
		if !d.silent {
			d.returnUnits(i)
		}
	}
	store := leasestore.NewLeases(d.db())
	if d.silent {
		d.w.Expire(d.session, int(session.CloseAfter.Seconds())+1)
		d.settle(len(d.unsettled)) // open or closed: the sweeper runs beside it
		return
	}
	for closed := false; !closed; {
		var err error
		if closed, err = store.Close(d.w.T.Context(), &wire.CloseRequest{Session: d.session, BootID: d.boot, FinalCount: d.count}); err != nil {
			d.w.T.Error(err)
			return
		}
		d.settle(len(d.unsettled))
	}
}

// Proxies make random requests through two replicas at once, and all amounts are right
// in the end.
func TestRandomConcurrentReplicas(t *testing.T) {
	t.Parallel()
	var recalled atomic.Int64
	t.Cleanup(func() {
		if recalled.Load() == 0 {
			t.Error("nothing was ever recalled: no pool had room")
		}
	})
	for seed := range uint64(3) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			replicas := []*postgres.DB{w.Replica(), w.Replica()}
			recalls := &recallQueue{drivers: map[wire.SessionID]*driver{}}
			services := []*leasing.Service{w.RecallingService(replicas[0], recalls), w.RecallingService(replicas[1], recalls)}
			customers := []*storetest.Customer{w.Customer(3000, storetest.Unlimited, 3), w.Customer(100_000, 2500, 6), w.Customer(500, 400, 50), w.Customer(8000, storetest.Unlimited, 100)}
			store := leasestore.NewLeases(replicas[0])

			sweeps := make(chan struct{}, 1)
			var drivers []*driver
			for i := range 6 {
				boot := string(rune('a' + i))
				d := &driver{
					w: w, r: rand.New(rand.NewPCG(seed, uint64(i))), replicas: replicas, services: services, customers: customers,
					session: w.Session(store, boot), boot: boot, running: make([][]*holder.Waiter, len(customers)),
					spent: make([]int64, len(customers)), silent: i == 0,
					recalls: make(chan wire.Recall, 8), sweeps: sweeps,
				}
				recalls.drivers[d.session] = d
				for _, c := range customers {
					d.holders = append(d.holders, holder.NewHolder(d.session, boot, c.AccountID()))
				}
				drivers = append(drivers, d)
			}
			var work, sweep sync.WaitGroup
			sweep.Go(func() {
				for range sweeps {
					if _, _, err := w.Sweep(leasestore.NewLeases(replicas[1]), true); err != nil {
						t.Error(err)
					}
					w.CheckPools()
				}
			})
			for _, d := range drivers {
				work.Go(func() {
					for range 80 {
						d.step()
						d.sweep()
					}
					d.end()
				})
			}
			work.Wait()
			close(sweeps)
			sweep.Wait()
			// The first sweep fences the session of the silent driver, which may have
			// ended after the sweeper's last one; the second closes it.
			for range 2 {
				if _, _, err := w.Sweep(store, true); err != nil {
					t.Error(err)
				}
			}

			w.Check()
			recalled.Add(recalls.sent.Load())
			if open := storetest.Scalar[int](w, "select count(*) from proxy_sessions where state < 3"); open != 0 {
				t.Errorf("%d sessions are not closed", open)
			}
			for i, c := range customers {
				spent := int64(0)
				for _, d := range drivers {
					spent += d.spent[i]
				}
				for _, pool := range []wire.PoolID{c.Balance, c.Limit} {
					if got := w.Figures(pool); got.Settled != spent || got.Held != 0 || got.Free != got.Total-spent {
						t.Errorf("pool %d: %+v; want %d settled and nothing outstanding", pool, got, spent)
					}
				}
				if got := w.Figures(c.Slots); got.Free != got.Total || got.Held != 0 {
					t.Errorf("slots: %+v; want all free", got)
				}
			}
			for _, s := range services {
				s.Stop()
			}
			w.CheckNoDeadlock(replicas...)
		})
	}
}
