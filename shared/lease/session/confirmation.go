package session

import "time"

// Place is where the stream of changes has a message.
type Place struct {
	// Incarnation is the stream's: it differs when the stream was created again.
	Incarnation string
	Sequence    uint64
	// ID is the random id of the message: another message may get the place of a lost one.
	ID string
}

// Confirmation confirms a change that is in Postgres by the stream of changes,
// without an answer of any proxy. A proxy that is fresh has read its own beat
// of the last window, and with it everything that the stream had before. So a
// change is confirmed if the stream still has it when the window has passed since
// it was stored. If the stream has lost it, it is appended again.
type Confirmation struct {
	// wait is the window of Freshness and a margin for the drift of clocks.
	wait  time.Duration
	place Place
	since Instant
	done  bool
}

// NewConfirmation returns the Confirmation of a change that is not in the stream.
func NewConfirmation(wait time.Duration) *Confirmation { return &Confirmation{wait: wait} }

// Append reports whether the change must be appended to the stream.
func (c *Confirmation) Append() bool { return c.place == Place{} }

// Appended records that the stream has acknowledged the change.
func (c *Confirmation) Appended(now Instant, at Place) { c.place, c.since = at, now }

// Due reports whether the stream must be asked for the message at Place, because
// the proxies that have not read it are not fresh any more. A suspension of the
// machine only makes it later.
func (c *Confirmation) Due(now Instant) bool {
	return !c.done && !c.Append() && now.Mono-c.since.Mono >= c.wait
}

// Place returns where the change is.
func (c *Confirmation) Place() Place { return c.place }

// Verified records what the stream has at Place, after Due: the id of the message,
// empty if there is none.
func (c *Confirmation) Verified(found Place) {
	if found == c.place {
		c.done = true
	} else {
		c.place = Place{}
	}
}

// Done reports whether no proxy admits without the change any more.
func (c *Confirmation) Done() bool { return c.done }
