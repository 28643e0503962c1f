package holder

import "time"

// demand is that of one lease. The zero value has no measurements.
type demand struct {
	// measuredAt is when charged was read, begunAt when it was read first; zero if it was not.
	measuredAt, begunAt time.Duration
	charged             int64
	perSecond           float64
	// target is how many idle units are needed, asked the last one that was reported.
	target, asked int64
	// filled is the number of idle units after the last response to a lease request.
	filled int64
}

// smoothing is how long the consumption of a moment counts. lowShare of the idle
// units are left when they are topped up: half of them should do, and the rest is
// for the chance by which requests come.
const (
	smoothing = 5 * time.Minute
	lowShare  = 0.6
)

// measure reads how much was charged, and sets the target to what requests use in
// twice the time for which they are to be served: more than half of them are always
// left.
func (c *demand) measure(now time.Duration, charged int64, served time.Duration) {
	if c.measuredAt == 0 || charged < c.charged {
		c.measuredAt, c.begunAt, c.charged = now, now, charged
		return
	}
	passed := now - c.measuredAt
	if passed <= 0 {
		return
	}
	weight := min(passed.Seconds()/min(smoothing, now-c.begunAt).Seconds(), 1)
	c.perSecond += weight * (float64(charged-c.charged)/passed.Seconds() - c.perSecond)
	c.measuredAt, c.charged = now, charged
	c.target = int64(2 * c.perSecond * served.Seconds())
}

// isLow reports whether the idle units should be topped up: much of what the last
// response left is used, or the target has doubled. What is asked for may be more
// than the pool can spare, so that is not compared with the target alone.
func (c *demand) isLow(idle int64) bool {
	return float64(idle) < lowShare*float64(min(c.target, c.filled)) || c.target > 2*max(c.asked, c.filled)
}

// ask returns the target to report.
func (c *demand) ask() int64 {
	c.asked = c.target
	return c.target
}

// recordFilled records the number of idle units after a response to a lease request.
func (c *demand) recordFilled(idle int64) { c.filled = idle }
