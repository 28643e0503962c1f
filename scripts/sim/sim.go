// Package sim simulates the lease protocol in one goroutine with simulated time:
// control plane replicas that share one modelled Postgres, proxies with clocks of
// their own, a bus that loses, duplicates and delays messages, and faults in all
// of them. The decisions are made by the production code of shared/lease. The
// simulation models only the code around it, which sends, stores and waits.
//
// A seed determines one world, that is one run, and its trace. Each invariant is
// checked after every step that could violate it. At the end all faults stop, all
// requests end and all sessions are closed; then no usage may be lost, and no
// units may be outstanding.
package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// The times of the protocol: about a tenth of those in production, so that one
// world has many sessions.
const (
	// window is the setting session.window.
	window = 3 * time.Second
	// maxRequest bounds the calls for which a lease is kept even if their proxy is not heard.
	maxRequest = 6 * time.Second
	// closeAfter takes the place of session.CloseAfter, and is so short that a world has outages that are longer.
	closeAfter = 12 * time.Second
	// longestCall bounds the calls that outlive their session.
	longestCall = 3 * closeAfter
	callTimeout = 400 * time.Millisecond
	idleTimeout = 2 * time.Second
	// longIdleTimeout is a tenth of the default of the data plane.
	longIdleTimeout = 90 * time.Second
)

// world is one simulation.
type world struct {
	profile Profile
	rules   *Rules
	r       *rand.Rand
	now     time.Duration
	steps   int64
	queue   eventHeap
	seq     uint64
	// healed means that no fault happens any more.
	healed bool
	trace  *strings.Builder
	stats  Stats

	pg     *database
	copies []*database
	pgDown bool
	// locks are the rows that open transactions have locked.
	locks   map[rollback.CommitMarker]*lock
	busDown bool
	// pushesCut means that no pushed message reaches a proxy. announcing is called when a replica begins to announce a change.
	pushesCut  bool
	announcing func(wire.KeyChange)
	outages    outages
	// keys is the bucket of key records.
	keys      keyBucket
	bucket    bucket
	stream    stream
	changes   changeStream
	replicas  []*replica
	proxies   []*proxy
	customers []*customer
	oracle    *oracle
	nextID    uint64
	nextKey   int
	nextLimit int64
	// nextSecret is the number of the last secret of a rotation.
	nextSecret int
	// firstLimits is the number of the last limit that was there from the beginning.
	firstLimits int64
	// retired are revoked keys that clients still use.
	retired []client
	// server counts the histories of Postgres, incarnations its starts.
	server, incarnations int
}

type scheduledEvent struct {
	at  time.Duration
	seq uint64
	do  func()
}

// eventHeap is a heap of events by time, and then by the order in which they were
// scheduled.
type eventHeap []scheduledEvent

func (e *eventHeap) Len() int { return len(*e) }
func (e *eventHeap) Less(i, j int) bool {
	x, y := &(*e)[i], &(*e)[j]
	return x.at < y.at || (x.at == y.at && x.seq < y.seq)
}
func (e *eventHeap) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *eventHeap) Push(x any)    { *e = append(*e, x.(scheduledEvent)) }
func (e *eventHeap) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = scheduledEvent{}
	*e = old[:len(old)-1]
	return last
}

// after schedules do by the world's clock.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, scheduledEvent{w.now + max(d, 0), w.seq, do})
}

// runUntil runs all events that are scheduled up to end.
func (w *world) runUntil(end time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(scheduledEvent)
		w.now = e.at
		w.steps++
		e.do()
	}
	w.now = end
}

// violation is the panic value of a world in which an invariant is broken.
type violation string

func (w *world) fail(format string, args ...any) {
	panic(violation(fmt.Sprintf(format, args...)))
}

// log adds a line to the trace, if there is one.
func (w *world) log(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%12s  ", w.now)
		fmt.Fprintf(w.trace, format, args...)
		w.trace.WriteByte('\n')
	}
}

// chance returns true with probability p, and always false after the world has
// healed.
func (w *world) chance(p float64) bool { return !w.healed && p > 0 && w.r.Float64() < p }

// between returns a random duration.
func (w *world) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(w.r.Int64N(int64(high-low)))
}

// newRequestID returns a unique request id.
func (w *world) newRequestID() (id [16]byte) {
	w.nextID++
	for i := range 8 {
		id[15-i] = byte(w.nextID >> (8 * i))
	}
	return id
}

// actor is a process: it can be killed, halted, and cut off, and has clocks of
// its own.
type actor struct {
	w     *world
	name  string
	alive bool
	// process counts the processes of this name. Events that an earlier process scheduled have no effect.
	process int
	// halted is the time until which the process is stopped, asleep the one until which its machine is suspended, and slept
	// how long it is suspended altogether until then.
	halted, asleep, slept time.Duration
	offset                time.Duration
	rate                  float64
	// deaf means that no message reaches the process, mute that none leaves it.
	deaf, mute bool
}

// clock returns the reading of the machine's two clocks.
func (a *actor) clock() session.Instant {
	slept := a.slept - max(0, a.asleep-a.w.now)
	return session.Instant{
		Mono: a.offset + time.Duration(float64(a.w.now-slept)*a.rate),
		Boot: a.offset + time.Duration(float64(a.w.now)*a.rate),
	}
}

// stop stops the process for a while.
func (a *actor) stop(d time.Duration) { a.halted = max(a.halted, a.w.now+d) }

// suspend suspends the machine of the process for a while. Its clock Mono stands still meanwhile.
func (a *actor) suspend(d time.Duration) {
	a.stop(d)
	from, until := max(a.asleep, a.w.now), a.w.now+d
	if until > from {
		a.slept, a.asleep = a.slept+until-from, until
	}
}

// resume ends all stops and suspensions.
func (a *actor) resume() {
	a.slept -= max(0, a.asleep-a.w.now)
	a.halted, a.asleep = min(a.halted, a.w.now), min(a.asleep, a.w.now)
}

// awakening is the time within which a resumed process handles the events that
// were due while it was stopped, in random order.
const awakening = 2 * time.Millisecond

// after schedules do by the process's clock. A stopped process runs it when it is
// resumed, a killed one never.
func (a *actor) after(d time.Duration, do func()) {
	a.plan(time.Duration(float64(d)/a.rate), a.process, do)
}

func (a *actor) plan(d time.Duration, process int, do func()) {
	a.w.after(d, func() {
		switch {
		case !a.alive || a.process != process:
		case a.halted > a.w.now:
			a.plan(a.halted-a.w.now+a.w.between(0, awakening), process, do)
		default:
			do()
		}
	})
}

// carry delivers a message, or loses, duplicates or delays it.
func (w *world) carry(from, to *actor, what string, deliver func()) {
	if w.busDown || from.mute || to.deaf {
		w.stats.count("messages cut off")
		return
	}

	if w.chance(w.profile.LoseMessage) {
		w.stats.count("messages lost")
		w.log("lost: %s of %s to %s", what, from.name, to.name)
		return
	}

	n := 1
	if w.chance(w.profile.DoubleMessage) {
		w.stats.count("messages duplicated")
		n = 2
	}

	for range n {
		d := w.between(100*time.Microsecond, time.Millisecond)
		if w.chance(w.profile.DelayMessage) {
			w.stats.count("messages delayed")
			d = w.between(0, w.profile.MaxDelay)
		}
		process := to.process
		w.after(d, func() {
			if w.busDown || to.deaf {
				w.stats.count("messages cut off")
				return
			}
			to.plan(0, process, deliver)
		})
	}
}

// push carries a message to a proxy that is no response to a request.
func (w *world) push(from *replica, to *proxy, what string, deliver func()) {
	if w.pushesCut || (to.pushesLostUntil > w.now && !w.healed) {
		w.stats.count("pushes cut off")
		return
	}
	w.carry(&from.actor, &to.actor, what, deliver)
}

// ask sends a request of a proxy to a random replica. got is called with the
// first response. If there is a limit and no response arrives within it, failed
// is called, unless it is nil, and later responses are ignored.
func ask[A any](p *proxy, what string, limit time.Duration, serve func(c *replica, reply func(A)), got func(A), failed func()) {
	w := p.w
	over, process := false, p.process
	c := w.replicas[w.r.IntN(len(w.replicas))]
	for range 3 { // a killed one is in no queue group
		if c.alive {
			break
		}
		c = w.replicas[w.r.IntN(len(w.replicas))]
	}

	w.carry(&p.actor, &c.actor, what, func() {
		serve(c, func(a A) {
			w.carry(&c.actor, &p.actor, "reply to "+what, func() {
				if !over && p.process == process {
					over = true
					got(a)
				}
			})
		})
	})

	if limit == 0 {
		return
	}

	p.after(limit, func() {
		if !over {
			over = true
			if failed != nil {
				failed()
			}
		}
	})
}
