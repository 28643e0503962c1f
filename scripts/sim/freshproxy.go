package sim

import (
	"fmt"
	"time"

	"modelgateway/shared/lease/session"
)

// freshProxy is a proxy that admits by freshness alone.
type freshProxy struct {
	actor
	world *freshWorld
	boot  string
	fresh *session.Freshness
	// session is the number of the change that ends its session.
	session int
	// position is the sequence number up to which its consumer has read, in one incarnation.
	position    int
	incarnation int
	// minority means that it is connected to a server that cannot reach the others, and has the first seen messages.
	minority bool
	seen     int
	revoked  map[int]bool
	cache    map[int]bool
	asking   bool
}

// start starts a new process.
func (p *freshProxy) start() {
	p.process++
	p.boot = fmt.Sprintf("%s/%d", p.name, p.process)
	p.fresh, p.revoked, p.cache, p.asking = session.NewFreshness(window), map[int]bool{}, map[int]bool{}, false
	p.register()
	p.position, p.incarnation = 0, p.world.incarnation
	if !p.world.rules.FromStart {
		p.position = len(p.world.messages)
	}
	p.repeat(beatEvery, p.beat)
	p.repeat(readEvery, p.read)
}

// register begins a session.
func (p *freshProxy) register() {
	p.world.sessions++
	p.session = firstSession + p.world.sessions
	p.fresh.Reset()
}

func (p *freshProxy) repeat(d time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		p.after(p.w.between(d*9/10, d), again)
	}
	again()
}

func (p *freshProxy) beat() {
	w := p.world
	b := p.fresh.Beat(w.rules.SentAt(p.clock()))
	if b.Previous == 0 && w.rules.FromStart { // a new consumer
		p.position, p.incarnation = 0, w.incarnation
	}
	boot := p.boot
	w.append(&p.actor, func() bool { return p.minority }, freshMessage{id: w.newID(), boot: boot, beat: b}, func(at session.Place) {
		if !w.rules.ReadsOwn && boot == p.boot {
			p.readBack(stored{freshMessage{boot: boot, beat: b}, at.Incarnation, at.Sequence})
		}
	})
}

// read reads what the stream has behind the position of the consumer. A server
// does not notice that the position lies behind the end of the stream.
func (p *freshProxy) read() {
	w := p.world
	to := len(w.messages)
	if p.minority {
		to = min(to, p.seen)
	}
	if p.deaf || w.busDown {
		return
	}
	if w.incarnation != p.incarnation {
		p.position, p.incarnation = 0, w.incarnation // the consumer was deleted with the stream
	}

	for _, m := range w.read(p.position, to) {
		p.position = int(m.sequence)
		switch {
		case m.boot == "":
			p.revoked[m.key] = true
		case m.boot == p.boot && w.rules.ReadsOwn:
			p.readBack(m)
		}
	}

	if !w.rules.Fresh(p.fresh, p.clock()) { // also before a beat was read: such a response must not count
		p.resync()
	}
}

// readBack handles the proxy's own beat.
func (p *freshProxy) readBack(m stored) {
	w := p.world
	if w.rules.ReadsAgain {
		for _, each := range w.read(int(m.beat.Previous), int(m.sequence)) {
			if each.boot == "" {
				p.revoked[each.key] = true
			}
		}
	}
	if !w.rules.ReadBack(p.fresh, p.clock(), m.incarnation, m.beat, m.sequence) {
		p.fresh.Reset()
	}
}

// resync asks a control plane for the changes in Postgres.
func (p *freshProxy) resync() {
	if p.asking {
		return
	}

	w := p.world
	p.asking = true
	askedAt, c, boot := p.clock(), w.planes[w.r.IntN(len(w.planes))], p.boot
	w.carry(&p.actor, &c.actor, "a request for changes", func() {
		c.serve(func() {
			revoked, slow := sortedKeys(w.revoked), time.Duration(0)
			if !w.lossless && w.chance(.2) {
				slow = w.between(0, 3*window)
			}

			c.after(slow, func() {
				w.carry(&c.actor, &p.actor, "changes", func() {
					if boot != p.boot {
						return
					}
					for _, key := range revoked {
						p.revoked[key] = true
					}
					w.stats.count("changes read from Postgres")
					w.rules.Resynced(p.fresh, p.clock(), askedAt)
				})
			})
		})
	})

	p.after(callTimeout, func() { p.asking = false })
}

// accept handles a request with a key. It reports whether the proxy runs and is
// not fresh.
func (p *freshProxy) accept(key int) (lapsed bool) {
	w := p.world
	switch {
	case p.halted > w.now:
		return false
	case !w.rules.Fresh(p.fresh, p.clock()):
		return true
	case p.revoked[p.session]:
		if !w.pgDown { // it needs a control plane
			p.register()
		}
		return false
	case p.revoked[key]:
		w.stats.Refused++
		return false
	}

	active, known := p.cache[key]
	switch {
	case !known:
		c, boot := w.planes[w.r.IntN(len(w.planes))], p.boot
		w.carry(&p.actor, &c.actor, "a request for a key", func() {
			c.serve(func() {
				active := !w.revoked[key]
				w.carry(&c.actor, &p.actor, "a key", func() {
					if boot == p.boot {
						p.cache[key] = active
					}
				})
			})
		})
	case active:
		w.stats.Admitted++
		if w.now+window < w.outage {
			w.stats.count("requests admitted in an outage")
		}
		if w.confirmed[p.session] {
			w.fail("I2: %s admits in session %d, whose units are free", p.name, p.session)
		}
		if w.confirmed[key] {
			w.fail("I4: %s admits key %d after its revocation was confirmed", p.name, key)
		}
	}

	return false
}
