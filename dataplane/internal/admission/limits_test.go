package admission

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/event"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

type useOf string

func (useOf) ClientAddress() netip.Addr { return netip.Addr{} }
func (u useOf) ModelID() string         { return string(u) }

// limitedRequest is one of a key with a limit for all models, whose windows begin with their first request, and a limit for one model.
func limitedRequest(model string) Request {
	r := request(10)
	r.Use = useOf(model)
	r.Key.LimitPool = 0
	r.Key.Limits = []limit.Limit{
		{ID: 7, Name: "lim_7", Scope: limit.Account, Window: limit.Window{Period: limit.FirstUse, LengthSeconds: 3600}},
		{ID: 8, Name: "lim_8", Scope: limit.Key, Window: limit.Window{Period: limit.Forever}, Models: []string{"large"}},
	}
	return r
}

func addPool(cp *plane, id, total int64, end time.Time) wire.PoolID {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	p := &allocator.Pool{ID: wire.PoolID(id), Kind: wire.Limit, Generation: 1, Total: total, Free: total}
	if !end.IsZero() {
		p.EndMS = end.UnixMilli()
	}
	cp.allocator.Pools[p.ID] = p
	return p.ID
}

// A request is asked for again in the window that the control plane names, is charged there, and the next ones use its idle units
// until the window ends.
func TestRequestFollowsTheControlPlaneIntoAnotherWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 1_000_000, 100, 1000)
		p := newProxy(t, cp, 1)
		for _, pool := range cp.allocator.Pools {
			pool.Central = false
		}
		fifth := addPool(cp, limit.Pool(7, 5), 1_000_000, time.Now().Add(10*time.Second))
		sixth := addPool(cp, limit.Pool(7, 6), 1_000_000, time.Now().Add(20*time.Second))
		cp.allocator.Moved = map[wire.PoolID]wire.PoolID{wire.PoolID(limit.Pool(7, 1)): fifth}

		acquire := func(want wire.PoolID, messages int) {
			t.Helper()
			before := cp.requests
			res, err := p.Acquire(t.Context(), limitedRequest("small"))
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Start(); err != nil {
				t.Fatal(err)
			}
			res.Finish(func(e *event.Usage) { e.Cost = 4 })
			if sent := cp.requests - before; sent != messages {
				t.Errorf("%d lease requests; want %d", sent, messages)
			}
			if last := p.spool.events[len(p.spool.events)-1]; !slices.Equal(last.Limits, []int64{int64(want)}) {
				t.Errorf("the event names %v; want %d", last.Limits, want)
			}
		}
		acquire(fifth, 2)
		acquire(fifth, 0)

		time.Sleep(10 * time.Second)
		synctest.Wait()
		time.Sleep(time.Second)
		if held := cp.held(fifth); held != 8 { // what is charged, and not settled yet
			t.Errorf("%d units of the window are held after its end; want 8", held)
		}
		acquire(sixth, 1)
		for _, id := range []wire.PoolID{fifth, fifth, sixth, balancePool, balancePool, balancePool} {
			cp.mu.Lock()
			cp.allocator.Charge(1, false, id, 4)
			cp.mu.Unlock()
		}
		p.begin(2) // the idle units of the session are returned
		p.stop(t)
		drained(t, cp)
	})
}

// The proxy is wrong about the windows of two limits, and these end while it asks: the request moves four times and is admitted.
func TestRequestFollowsWindowsThatEndWhileItAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 1_000_000, 100, 1000)
		p := newProxy(t, cp, 1)
		request := limitedRequest("small")
		request.Key.Limits = slices.Clone(request.Key.Limits)
		request.Key.Limits[1] = limit.Limit{ID: 9, Name: "lim_9", Scope: limit.Project, Window: request.Key.Limits[0].Window}
		end, want := time.Now().Add(time.Hour), []int64{}
		cp.allocator.Moved = map[wire.PoolID]wire.PoolID{}
		for _, id := range []int64{7, 9} {
			sixth := addPool(cp, limit.Pool(id, 6), 1_000_000, end)
			fifth := wire.PoolID(limit.Pool(id, 5))
			cp.allocator.Moved[wire.PoolID(limit.Pool(id, 1))], cp.allocator.Moved[fifth] = fifth, sixth
			want = append(want, int64(sixth))
		}

		res, err := p.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Start(); err != nil {
			t.Fatal(err)
		}
		res.Finish(func(e *event.Usage) { e.Cost = 4 })
		if last := p.spool.events[len(p.spool.events)-1]; !slices.Equal(last.Limits, want) {
			t.Errorf("the event names %v; want %v", last.Limits, want)
		}
	})
}

// A limit for other models is not needed, and a refusal says which limit is short.
func TestRefusalNamesTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 1000, 100, 1000)
		p := newProxy(t, cp, 1)
		end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		addPool(cp, limit.Pool(7, 1), 15, end)
		addPool(cp, limit.Pool(8, 0), 5, time.Time{})

		refusal := func(model string) *RefusedError {
			t.Helper()
			res, err := p.Acquire(t.Context(), limitedRequest(model))
			if err == nil {
				res.Release()
				return nil
			}
			refused, ok := err.(*RefusedError) //nolint:errorlint // it is not wrapped
			if !ok {
				t.Fatal(err)
			}
			return refused
		}
		if r := refusal("small"); r != nil {
			t.Errorf("another model: got %+v", r)
		}
		if r := refusal("large"); r == nil || r.Limit == nil || r.Limit.Name != "lim_8" || !r.ResetsAt.IsZero() || r.Wanted != 10 {
			t.Errorf("the limit of the model: got %+v", r)
		}
		cp.mu.Lock()
		cp.allocator.Pools[wire.PoolID(limit.Pool(7, 1))].Resize(9)
		cp.mu.Unlock()
		if r := refusal("small"); r == nil || r.Limit == nil || r.Limit.Name != "lim_7" || !r.ResetsAt.Equal(end) {
			t.Errorf("the limit of the account: got %+v", r)
		}
		for _, scope := range []string{"key", "account"} {
			if n := testutil.ToFloat64(p.metrics.refusals.WithLabelValues("limit_insufficient", scope)); n != 1 {
				t.Errorf("%v refusals by a limit of the %s are counted; want one", n, scope)
			}
		}
		p.stop(t)
		drained(t, cp)
	})
}

// A key moves to another project while its request waits: the request is decided once more, by the limits of the new project, and its
// event names that.
func TestRequestCountsInTheProjectThatItsKeyHasMovedTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 1_000_000, 100, 1000)
		p := newProxy(t, cp, 1)
		inProject := func(r *Request, project string, id int64) {
			r.Key.ProjectID = project
			r.Key.Limits = []limit.Limit{{ID: id, Name: "lim", Scope: limit.Project, Window: limit.Window{Period: limit.Forever}}}
			addPool(cp, limit.Pool(id, 0), 100, time.Time{})
		}
		former, now := limitedRequest("small"), limitedRequest("small")
		inProject(&former, "prj_former", 11)
		inProject(&now, "prj_now", 12)
		p.keys.renewed = now.Key
		p.Admission.bus = &hookBus{line: p.line, before: sync.OnceFunc(func() { p.keys.stale.Store(true) })}
		res, err := p.Acquire(t.Context(), former)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Start(); err != nil {
			t.Fatal(err)
		}
		res.Finish(func(e *event.Usage) { e.Cost = 4 })
		last := p.spool.events[len(p.spool.events)-1]
		if last.ProjectID != "prj_now" || !slices.Equal(last.Limits, []int64{limit.Pool(12, 0)}) {
			t.Errorf("the event names project %q and %v; want the new project and its window", last.ProjectID, last.Limits)
		}
		p.stop(t)
	})
}
